"""Which forge and which repository a remote of git is: from its URL. Pure.

Called by `bullpen finish --pr`. GitHub's and GitLab's own hosts are known; what another host is, a
director's file of this home says (`server`): a token is sent nowhere else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from bullpen.errors import BullpenError, Kind

HOSTS = {"github.com": "github", "ssh.github.com": "github", "gitlab.com": "gitlab"}
SHORT = re.compile(r"(?:[^@/:\s]+@)?([^@/:\s]+):(?!/)(\S+)")  # git@host:owner/name.git


@dataclass(frozen=True)
class KnownServer:
    """A forge that a director's file names."""

    type: str
    server: str


@dataclass(frozen=True)
class RemoteForge:
    """Where a remote is. `server`: None for the forge's own."""

    type: str
    repo: str
    server: str | None = None


def find_forge(url: str, servers: Iterable[KnownServer]) -> RemoteForge:
    """The forge of that remote; raises with what to do."""
    host, port, path = _split(url)
    repo = path.strip("/").removesuffix(".git")
    if "/" not in repo:
        raise BullpenError(f"origin is {_shown(url)}, which names no repository of a forge")
    if host in HOSTS:
        return RemoteForge(HOSTS[host], repo)
    for known in servers:
        parts = urlsplit(known.server)
        # By ssh a server has another port than by HTTP.
        if parts.hostname == host and (port is None or parts.port == port):
            return RemoteForge(known.type, repo, known.server)
    raise BullpenError(
        f"origin is at {host}, and nothing says which forge that is",
        hint="bullpen director init github (or gitlab), with that server: there",
        kind=Kind.UNSUPPORTED,
    )


def _split(url: str) -> tuple[str, int | None, str]:
    """Host, port if it says one of HTTP, and path."""
    short = SHORT.fullmatch(url)
    if short is not None and "://" not in url:
        return short[1].lower(), None, short[2]
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "ssh", "git+ssh") or not parts.hostname:
        raise BullpenError(
            f"origin is {_shown(url)}, which is on no forge",
            hint="git remote set-url origin https://github.com/OWNER/NAME.git",
            kind=Kind.UNSUPPORTED,
        )
    return parts.hostname, parts.port if parts.scheme.startswith("http") else None, parts.path


def _shown(url: str) -> str:
    """Without a password that somebody wrote into it."""
    return re.sub(r"//[^@/]*@", "//", url)[:200]
