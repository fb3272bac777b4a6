"""What a host writes at the server for others to read, with its signature. Pure.

A signature is over the subject: nothing counts at another place. Who has to have signed what, say
`task_records` and `hub/fleet_mail`.
"""

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from bullpen.errors import BullpenError
from bullpen.fleet.credential import Certificate, Credential, check_certificate
from bullpen.fleet.frames import Frame, decode, encode
from bullpen.fleet.nkeys import Signer, Verifier
from bullpen.model.value import Value

V = TypeVar("V", bound=Value)


class SignedRecords:
    """One host's signature for others, and its check of theirs."""

    def __init__(self, credential: Credential) -> None:
        self._authority = credential.authority
        self._host = credential.host
        self._certificate = credential.certificate
        self._signer = Signer(credential.seed)
        self._verifiers: dict[tuple[str, Certificate], Verifier] = {}

    def sign(self, subject: str, value: Value, text: bytes = b"") -> bytes:
        """As it is sent there. `text` goes along as it is: JSON would make six bytes of one."""
        head: dict[str, Any] = {
            "kind": type(value).__name__,
            "n": 0,
            "by": self._host,
            "key": [self._certificate.public, self._certificate.signature],
        }
        body = json.dumps(value.model_dump(mode="json")).encode()  # ASCII: half a surrogate, too
        return encode(self._signer, subject, head, body + b"\n" + text if text else body)

    def parse(self, subject: str, data: bytes, model: type[V]) -> tuple[Frame, V, bytes]:
        """What it says, and the text that goes along; nobody has looked at its signature yet.
        BullpenError for what is no such record."""
        frame = decode(subject, data)
        line, _, text = frame.body.partition(b"\n")
        try:
            if frame.head["kind"] != model.__name__ or len(frame.head["key"]) != 2:
                raise BullpenError(f"it is no {model.__name__}")
            return frame, model.model_validate_json(line), text
        except (KeyError, TypeError, ValidationError) as error:
            raise BullpenError(f"nobody can read it: {error}") from error

    def check(self, frame: Frame, host: str) -> None:
        """BullpenError if that host never said it."""
        known = host, Certificate(*map(str, frame.head["key"]))
        if known not in self._verifiers:
            self._verifiers[known] = check_certificate(self._authority, *known)
        if not frame.is_from(self._verifiers[known]):
            raise BullpenError(f"its signature is not that of {host}")
