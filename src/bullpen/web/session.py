"""The cookie of a log-in: who it is, until when, signed with the token. Pure.

Nothing of it is stored until it is ended (`web/ended`); another token makes all of them worthless.
Made by `web/login`, read by `web/guard`.
"""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass

from bullpen.errors import BullpenError

DAYS = 30
SECONDS = DAYS * 24 * 3600
NAME_CHARACTERS = 40
PURPOSE = b"bullpen web log-in 2\0"  # another one for another form of the data


@dataclass(frozen=True)
class Session:
    """Somebody who is logged in. `name` is what they called themselves; it proves nothing. `id` is
    that of the log-in; empty for who shows the token itself."""

    name: str = ""
    id: str = ""


def cookie_name(port: int) -> str:
    """Cookies ignore ports: without it two views of one machine would share them."""
    return f"__Host-bullpen-{port}"


def check_name(name: str) -> str:
    """A name to be shown beside what its owner decides."""
    name = " ".join(name.split())
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise BullpenError(f"a name has 1 to {NAME_CHARACTERS} printable characters")
    return name


def sign(session: Session, token: str, now: float) -> str:
    """The value of a cookie."""
    data = json.dumps([session.name, session.id, int(now) + SECONDS]).encode()
    return f"{_encode(data)}.{_encode(_mac(data, token))}"


def verify(value: str, token: str, now: float) -> Session | None:
    """Whose cookie it is; None if it is not ours, too old, or of another token."""
    data, _, mac = value.partition(".")
    try:
        raw, given = _decode(data), _decode(mac)
    except ValueError:
        return None
    if not token or not hmac.compare_digest(given, _mac(raw, token)):
        return None
    name, id, until = json.loads(raw)
    return Session(name, id) if now < until else None


def set_cookie(port: int, value: str, seconds: int = SECONDS) -> str:
    """The header that sets it. Browsers send cookies to every port of a host, and `Secure` ones to
    loopback without TLS, too: what an agent serves at http://localhost:3000 would get it. A
    partition is that of pages over https alone."""
    return (
        f"{cookie_name(port)}={value}; Max-Age={seconds}; Path=/; HttpOnly; Secure;"
        " SameSite=Strict; Partitioned"
    )


def find_cookies(header: str, port: int) -> list[str]:
    """The values of that name in what a browser sends. Pages of another port of the same host may
    have set one, too, in front of ours."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [value for name, _, value in pairs if name == cookie_name(port)]


def _mac(data: bytes, token: str) -> bytes:
    return hmac.new(token.encode(), PURPOSE + data, hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    if not text.isascii():
        raise ValueError
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
