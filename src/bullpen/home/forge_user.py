"""Asks GitHub or GitLab who a token belongs to, so that agents can commit as that person.

Called by `bullpen auth set git-config --from`, never at an agent's start. The token goes into one
header of one request, not into the address and to no other host: a redirection is an error. The
answer is untrusted text and is checked.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    ProxyHandler,
    Request,
    build_opener,
    getproxies,
)

from bullpen.errors import BullpenError, Kind
from bullpen.home.credentials import identity_text

SECONDS = 20.0
LARGEST_BYTES = 1 << 20
PIECE_BYTES = 1 << 14


@dataclass(frozen=True)
class Forge:
    """Where its people are, and what their fields are called."""

    name: str
    credential: str
    variable: str  # names another server
    base: str
    path: str
    login: str
    emails: tuple[str, ...]  # the first that is set
    hidden_email: str  # what the forge itself gives to those who show none


FORGES = {
    "github": Forge(
        "github",
        "github-token",
        "GITHUB_API_URL",
        "https://api.github.com",
        "/user",
        "login",
        ("email",),
        "{id}+{login}@users.noreply.{host}",
    ),
    "gitlab": Forge(
        "gitlab",
        "gitlab-token",
        "GITLAB_URL",
        "https://gitlab.com",
        "/api/v4/user",
        "username",
        ("commit_email", "email", "public_email"),
        "{id}-{login}@users.noreply.{host}",
    ),
}


class _NoRedirection(HTTPRedirectHandler):
    """It would take the token along, to whatever host the answer names."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(forge: Forge, token: str, env: Mapping[str, str] = os.environ) -> str:
    """The identity of the token's owner, in the form in which it is kept."""
    base = base_of(forge, env)
    if not token.isascii():
        # The library would raise an error that holds it.
        raise BullpenError(f"{forge.credential} is no token: it is not ASCII", hint=_again(forge))
    return identity_of(forge, _user(forge, f"{base}{forge.path}", token), _host(base))


def base_of(forge: Forge, env: Mapping[str, str] = os.environ) -> str:
    """The address that the environment names, or the forge's own; one that a token may go to."""
    return _checked_base(forge, env.get(forge.variable) or forge.base)


def identity_of(forge: Forge, user: object, host: str) -> str:
    """Name and address out of what a forge says of a user. Pure."""
    fields = user if isinstance(user, dict) else {}
    login, number = fields.get(forge.login), fields.get("id")
    names = [name for name in (fields.get("name"), login) if isinstance(name, str)]
    emails = [fields[key] for key in forge.emails if isinstance(fields.get(key), str)]
    if isinstance(login, str) and isinstance(number, int):
        emails.append(forge.hidden_email.format(id=number, login=login, host=host))
    for name in names:
        for email in emails:
            try:
                return identity_text(name, email)
            except BullpenError:
                continue  # empty, or with characters that git drops: the next one serves
    raise BullpenError(
        f"{forge.name} does not say who the token belongs to",
        hint="bullpen auth set git-config, and type name and address",
        kind=Kind.COMMAND_FAILED,
    )


def _user(forge: Forge, url: str, token: str) -> object:
    request = Request(url, headers={"Accept": "application/json", "User-Agent": "bullpen"})
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    # A plain request, which goes to this machine only, must not pass a proxy either.
    proxies = {name: at for name, at in getproxies().items() if name == "https"}
    opener = build_opener(ProxyHandler(proxies), _NoRedirection)
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return json.loads(_read(answer))
    except HTTPError as error:
        code = error.code
        error.close()
    except (URLError, HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise BullpenError(
            f"{forge.name} cannot be reached at {url}: {reason}",
            hint=f"another server: {forge.variable}=https://…",
            kind=Kind.UNAVAILABLE,
        ) from None
    except (ValueError, RecursionError):
        raise _no_answer(forge, url) from None
    if code in (401, 403):
        raise BullpenError(
            f"{forge.name} refuses the {forge.credential} of this home ({code})",
            hint=_again(forge),
            kind=Kind.DENIED,
        )
    raise BullpenError(
        f"{forge.name} answers {code} at {url}",
        hint=f"is {forge.variable} right?" if 300 <= code < 500 else "try again later",
        kind=Kind.UNAVAILABLE,
    )


def _read(answer: HTTPResponse) -> bytes:
    """The body, if it is of a sensible length and comes in sensible time."""
    deadline = time.monotonic() + SECONDS
    body = b""
    while piece := answer.read1(PIECE_BYTES):
        body += piece
        if len(body) > LARGEST_BYTES or time.monotonic() > deadline:
            raise ValueError("too long")
    return body


def _no_answer(forge: Forge, url: str) -> BullpenError:
    return BullpenError(
        f"what answers at {url} is not {forge.name}",
        hint=f"is {forge.variable} right?",
        kind=Kind.UNAVAILABLE,
    )


def _checked_base(forge: Forge, text: str) -> str:
    """The address of the server, if a token may be sent there."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port  # the port raises if it is none
    except ValueError:
        host = ""
    is_safe = bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    )
    if not is_safe or not text.isprintable() or " " in text or "@" in text or parts.query:
        # Not repeated: it may hold a credential.
        raise BullpenError(
            f"{forge.variable} is no address that a token may be sent to",
            hint="https://host, without a user in it",
        )
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(base: str) -> str:
    return (urlsplit(base).hostname or "").removeprefix("api.")


def _again(forge: Forge) -> str:
    return f"bullpen auth set {forge.credential} < FILE"
