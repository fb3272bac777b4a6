"""What a host has to be one of the fleet: its key, and the fleet's word that the key is its own.

Made by `keys`, stored by `bullpen fleet join`, read by the hub. The file is private to its owner.
"""

import base64
import binascii
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.fleet.nkeys import Signer, Verifier, derive_seed
from bullpen.home.paths import short_path
from bullpen.home.settings import HOST_NAME, Fleet

LARGEST_BYTES = 4096


@dataclass(frozen=True)
class Certificate:
    """The fleet's word that this public key is that host's."""

    public: str
    signature: str


@dataclass(frozen=True)
class Credential:
    """One host's. `authority` is the public key of the fleet, `signature` that key's word, `server`
    the certificate of its server."""

    host: str
    seed: str
    authority: str
    signature: str
    server: str

    @property
    def certificate(self) -> Certificate:
        return Certificate(Signer(self.seed).public, self.signature)

    @property
    def queue_seed(self) -> str:
        """Of the key with which this host logs in for tasks: it is another user of the server."""
        return derive_seed(self.seed, "queue")

    def to_text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def issue(authority_seed: str, host: str, seed: str, server: str = "") -> Credential:
    """A host's credential, signed by the fleet's own key."""
    authority = Signer(authority_seed)
    signature = authority.sign(_claim(host, Signer(seed).public))
    word = base64.b64encode(signature).decode()
    return Credential(host, seed, authority.public, word, server)


def check_certificate(authority: str, host: str, certificate: Certificate) -> Verifier:
    """What checks that host's signatures; BullpenError if the fleet never said that it is its."""
    try:
        signature = base64.b64decode(certificate.signature, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if not Verifier(authority).is_signed(_claim(host, certificate.public), signature):
        raise BullpenError(f"the fleet has given no such key to {host}", kind=Kind.DENIED)
    return Verifier(certificate.public)


def own_file(root: Path, fleet: Fleet) -> Path:
    """Where the key is that these settings of the home at `root` name."""
    return root / Path(fleet.creds).expanduser()


def read_own(root: Path, fleet: Fleet) -> Credential:
    """That of the machine whose home is at `root`; BullpenError if it is another one's."""
    credential = read_credential(own_file(root, fleet))
    if credential.host != fleet.name:
        raise BullpenError(
            f"{fleet.creds} is the key of {credential.host}, and config.yaml calls this machine "
            f"{fleet.name}",
            hint=f"fleet: name: {credential.host}",
        )
    return credential


def read_credential(path: Path) -> Credential:
    """The file's contents; BullpenError if others may read it, or if it is none."""
    shown = short_path(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BullpenError(
            f"the fleet's key {shown} cannot be read: {error.strerror}",
            hint="bullpen fleet key HOST makes one where the server is",
            kind=Kind.UNAVAILABLE,
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        text = file.read(LARGEST_BYTES) if stat.S_ISREG(status.st_mode) else b""
    credential = _parse(text, shown)
    if status.st_mode & 0o077:
        raise BullpenError(f"others may read {shown}", hint=f"chmod 600 {shown}", kind=Kind.DENIED)
    return credential


def _parse(text: bytes, shown: str) -> Credential:
    wrong = BullpenError(
        f"{shown} is no key of a fleet", hint="bullpen fleet key HOST makes one where the server is"
    )
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise wrong from error
    names = ("host", "seed", "authority", "signature", "server")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(n), str) for n in names):
        raise wrong
    credential = Credential(*(fields[name] for name in names))
    if HOST_NAME.fullmatch(credential.host) is None:
        raise wrong
    check_certificate(credential.authority, credential.host, credential.certificate)
    return credential


def _claim(host: str, public: str) -> bytes:
    return f"bullpen fleet host\0{host}\0{public}".encode()
