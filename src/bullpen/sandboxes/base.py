"""What a sandbox is: a policy, and a module that runs a command line under it.

`wrap` looks at what exists and changes nothing; `prepare` writes; `unavailable` tries.
`hub/sandbox/policy.py` makes policies from roles. A sandbox never falls back to none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Git:
    """The repository of a working directory that is a checkout. `admin` is the checkout's own
    directory in `common`; the same as `common` for a main checkout, where it is all read-only."""

    common: Path
    admin: Path
    root: Path  # of the checkout, with its `.git` file


@dataclass(frozen=True)
class Network:
    """What can be reached when there is no network: ports of the loopback inside. Each is connected
    to a socket in the agent's own directory (`Policy.sockets`), where the hub listens."""

    hub_port: int
    proxy_port: int  # takes CONNECT
    hosts: tuple[str, ...] = ()  # `host:port` on this loopback that go through the tunnel, too


@dataclass(frozen=True)
class Policy:
    """What one program may reach. Everything that is not named is out of reach."""

    cwd: Path
    home: Path  # of Bullpen: masked as a whole, wherever it lies
    session: Path  # the agent's own, in the home: read-only
    person: Path  # the person's home directory: of it only what is named comes back
    sockets: Path  # where the agent's own sockets are: `<session>/api`, read-write
    writable: tuple[Path, ...] = ()  # the worktree, the engine's own configuration, more
    read_only: tuple[Path, ...] = ()  # also within what is writable: they come last
    hidden: tuple[Path, ...] = ()  # masked within what is writable: other homes, the list of them
    written: tuple[Path, ...] = ()  # where agents wrote before: no link in there is followed
    real_cwd: Path | None = None  # where `cwd` led at the first start, if that is known
    programs: tuple[Path, ...] = ()  # install roots of what it runs, read-only
    git: Git | None = None
    network: Network | None = None  # None: the machine's own
    ssh_agent: Path | None = None
    is_terminal: bool = True  # else on pipes
    processes: int = 1024
    memory_bytes: int | None = None
    keep: frozenset[str] = frozenset()  # variables that may be known inside, beyond the usual ones
    prefixes: tuple[str, ...] = ()  # how others begin that may be, too


@dataclass(frozen=True)
class WrappedCommand:
    """What to start. `env` is the whole environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Sandbox(Protocol):
    """One kind of sandbox."""

    name: str

    def unavailable(self) -> str:
        """Why no sandbox can be made here, and what to do about it; empty if one can. Tries it."""
        ...

    def prepare(self, policy: Policy) -> None:
        """Write what the sandbox needs, before each start. Blocks."""
        ...

    def wrap(self, argv: tuple[str, ...], env: Mapping[str, str], policy: Policy) -> WrappedCommand:
        """The same program in the sandbox. `env` is cut to what may be known inside."""
        ...
