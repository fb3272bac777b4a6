"""Blocks of TCP ports: which one a worktree gets, and the variables that tell of it. Pure.

`ports` asks: it knows which ports are taken, and puts the block on record.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_RANGE = range(20000, 30000)
MOST_PORTS = 100  # that one worktree may have
PROJECT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")  # all that Compose allows


@dataclass(frozen=True)
class Block:
    """Ports that follow each other."""

    first: int
    count: int

    @property
    def ports(self) -> range:
        return range(self.first, self.first + self.count)

    def __str__(self) -> str:
        last = self.ports[-1]
        return f"{self.first}-{last}" if last != self.first else f"{self.first}"


def choose_block(
    ports: range, count: int, start: int, is_free: Callable[[int], bool]
) -> Block | None:
    """The first block of so many free ports at or after `start`; after the end of the range it is
    looked for from the beginning. None if there is none."""
    last = ports.stop - count
    start = start if ports.start <= start <= last else ports.start
    for first, end in ((start, last), (ports.start, start - 1)):
        while first <= end:
            block = Block(first, count)
            used = next((port for port in reversed(block.ports) if not is_free(port)), None)
            if used is None:
                return block
            first = used + 1
    return None


def place_to_start(ports: range, count: int, key: str) -> int:
    """Where to look first. It differs from base to base, so that two homes hardly meet: what the
    other one gave away shows only while somebody listens there."""
    places = max(len(ports) // count, 1)
    number = int.from_bytes(hashlib.sha256(key.encode(errors="surrogateescape")).digest()[:8])
    return ports.start + number % places * count


def port_variables(name: str, block: Block) -> dict[str, str]:
    """What the programs in the worktree of that name are told."""
    numbered = {f"BULLPEN_PORT_{number}": str(port) for number, port in enumerate(block.ports)}
    return {
        **numbered,
        "PORT": str(block.first),
        "COMPOSE_PROJECT_NAME": project_name(name),
    }


def project_name(name: str) -> str:
    """The worktree's name. One that Compose would refuse is changed and marked, so that no two
    worktrees share a project."""
    if PROJECT_NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:6]
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_") or "worktree"
    return f"{plain}-{mark}"
