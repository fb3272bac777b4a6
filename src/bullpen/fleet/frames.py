"""What one hub says to another: a signature, a head of JSON, a body. And what was said before.

The signature is over the subject, too, which names both hosts and the channel: nothing that was
signed for one place counts at another. Nor does what the same key has signed for the server, to
log in: a frame begins with a word of its own. Pure.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from bullpen.errors import BullpenError
from bullpen.fleet.nkeys import Signer, Verifier

SIGNATURE_BYTES = 64
REMEMBERED = 4096  # requests of one life of a host that may arrive out of order


@dataclass(frozen=True)
class Frame:
    """One that arrived; nobody has looked at its signature yet."""

    subject: str
    signature: bytes
    signed: bytes
    head: dict[str, Any]
    body: bytes

    def is_from(self, verifier: Verifier) -> bool:
        return verifier.is_signed(_claim(self.subject, self.signed), self.signature)


def encode(signer: Signer, subject: str, head: dict[str, Any], body: bytes) -> bytes:
    """As it is sent there."""
    signed = json.dumps(head, separators=(",", ":")).encode() + b"\n" + body
    return signer.sign(_claim(subject, signed)) + signed


def decode(subject: str, data: bytes) -> Frame:
    """BullpenError for what is none."""
    signature, signed = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    line, _, body = signed.partition(b"\n")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BullpenError("a frame without a head") from error
    number = head.get("n") if isinstance(head, dict) else None
    if not isinstance(number, int) or not isinstance(head.get("kind"), str):
        raise BullpenError("a frame with a head that is none")
    return Frame(subject, signature, signed, head, body)


def _claim(subject: str, signed: bytes) -> bytes:
    return b"bullpen frame\0" + subject.encode() + b"\0" + signed


@dataclass
class Taken:
    """The requests of one life of a host: those below a number, and some above."""

    life: str
    below: int = 0
    recent: set[int] = field(default_factory=set)


class Replays:
    """Which requests were taken. A channel is called by the life of the hub that opened it and a
    number that grows: so no clock is asked, and what is remembered does not grow. Of a life that
    was followed by another its name is kept: it is over."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._over: dict[str, set[str]] = defaultdict(set)

    def take(self, host: str, channel: str) -> bool:
        """Whether it is new. Called once for each request, after its signature was checked."""
        life, _, text = channel.partition("-")
        if not (life.isalnum() and text.isascii() and text.isdecimal() and len(text) < 16):
            return False
        if life in self._over[host]:
            return False
        taken = self._taken.setdefault(host, Taken(life))
        if taken.life != life:
            self._over[host].add(taken.life)
            taken = self._taken[host] = Taken(life)
        number = int(text)
        if number < taken.below or number in taken.recent:
            return False
        taken.recent.add(number)
        if len(taken.recent) > REMEMBERED:  # the older half is forgotten, and refused
            taken.below = sorted(taken.recent)[REMEMBERED // 2]
            taken.recent = {each for each in taken.recent if each >= taken.below}
        return True
