"""NKeys: Ed25519 keys in the letters that NATS writes them in.

The server checks the same keys that sign what hubs say to each other. Home-made is the writing
alone (base32 with a checksum, 20 lines): the package for it is a source archive that brings a
second library of cryptography. Pure but for `make_seed`.
"""

import base64
import binascii
import hashlib
import os

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bullpen.errors import BullpenError

USER, SEED = 20 << 3, 18 << 3  # the prefixes U and S
KEY_BYTES = 32


class Signer:
    """A private key; `public` is how others know it."""

    def __init__(self, seed: str) -> None:
        raw = _decode(seed, "seed")
        is_user = len(raw) == KEY_BYTES + 2 and raw[0] & 0xF8 == SEED and _kind(raw) == USER
        if not is_user:
            raise BullpenError("the seed of a key begins with SU")
        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:])
        self.public = _encode(bytes([USER]) + self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(data)


class Verifier:
    """A public key."""

    def __init__(self, public: str) -> None:
        raw = _decode(public, "public key")
        if len(raw) != KEY_BYTES + 1 or raw[0] != USER:
            raise BullpenError("a public key begins with U")
        self._key = Ed25519PublicKey.from_public_bytes(raw[1:])

    def is_signed(self, data: bytes, signature: bytes) -> bool:
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


def make_seed() -> str:
    """Of a new key."""
    return _seed(os.urandom(KEY_BYTES))


def derive_seed(seed: str, purpose: str) -> str:
    """Of another key of the same owner, which tells nothing of the first."""
    return _seed(hashlib.sha256(f"bullpen {purpose}\0{seed}".encode()).digest())


def _seed(secret: bytes) -> str:
    return _encode(bytes([SEED | USER >> 5, (USER & 31) << 3]) + secret)


def _kind(raw: bytes) -> int:
    return (raw[0] & 7) << 5 | raw[1] >> 3


def _encode(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _decode(text: str, what: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as error:
        raise BullpenError(f"this is no {what} of NATS") from error
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise BullpenError(f"this is no {what} of NATS: a letter of it is wrong")
    return raw[:-2]
