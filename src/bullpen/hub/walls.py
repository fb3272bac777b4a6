"""Which walls an agent gets: from its role, its directory and its engine to a sandbox's policy.

Planning reads and decides; `raise_wall` is called right before a start and fails shut.
"""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import bullpen
from bullpen.engines import ENGINES, Engine, Start, get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub.doors import DIRECTORY
from bullpen.hub.launch import Ground, Plan, load_role_of
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.paths import Home
from bullpen.sandboxes import Git, Network, Policy, Sandbox, Wrapped, get_sandbox, limits
from bullpen.sandboxes.prepare import remove_planted
from bullpen.worktrees.since import Looked, look_at

log = logging.getLogger("bullpen.hub")

PROXY_PORTS = range(3128, 3228)  # inside: nobody else listens there
# Programs that a person installed, and where the rest of them lies. Not whole directories where
# logins and keys of other programs lie, too.
BESIDE = {
    ".local/bin": (
        *(".local/bin", ".local/lib", ".local/share/claude", ".local/share/pipx"),
        *(".local/share/uv", ".local/share/mise", ".local/share/pnpm", ".local/share/fnm"),
    ),
    ".cargo/bin": (".cargo/bin", ".cargo/env", ".rustup"),
    ".pyenv/bin": (".pyenv",),
    ".pyenv/shims": (".pyenv",),
    ".rbenv/shims": (".rbenv",),
    ".asdf/shims": (".asdf",),
}


class SandboxError(BullpenError):
    """Walls were wanted, and there can be none."""


@dataclass(frozen=True)
class Wall:
    """What a start is put behind."""

    sandbox: Sandbox
    policy: Policy


def plan(
    hub_port: int,
    role: Role,
    engine: Engine,
    start: Start,
    checkout: Looked | None,
    *,
    unsure: Path | None = None,
    keep: Iterable[str],
    is_terminal: bool,
) -> Wall:
    """The walls for that start. `checkout` is what its directory belongs to, if that was one before
    an agent worked there; `unsure` a git directory that may be a person's or an agent's."""
    cwd, wanted = Path(start.cwd), role.sandbox
    read_only = [_path(text, cwd, start.person) for text in wanted.read_only_paths]
    writable = [_path(text, cwd, start.person) for text in wanted.read_write_paths]
    git = None
    if unsure is not None:
        read_only.append(unsure)
    if checkout is not None and checkout.is_main:
        # Its configuration and hooks run in the person's own shell: an agent may look, not write.
        git = Git(checkout.repo.common_dir, checkout.repo.common_dir, checkout.root)
    elif checkout is not None:
        git = Git(checkout.repo.common_dir, checkout.repo.git_dir, checkout.root)
        writable.append(checkout.root)
    policy = Policy(
        cwd=cwd,
        home=start.home,
        session=start.session,
        person=start.person,
        doors=start.session / DIRECTORY,
        writable=(*engine.writable(start), *writable),
        read_only=tuple(read_only),
        programs=(*engine.programs(start), *_programs(start.env.get("PATH", ""), start.person)),
        git=git,
        network=None if wanted.allow_network else _network(hub_port, engine.hosts(start)),
        ssh_agent=_ssh_agent(start.env) if wanted.ssh_agent else None,
        is_terminal=is_terminal,
        processes=wanted.processes,
        memory_bytes=wanted.memory_mb * (1 << 20) if wanted.memory_mb else None,
        keep=frozenset(keep),
        prefixes=_prefixes(engine),
    )
    return Wall(get_sandbox(), policy)


def of_plan(ground: Ground, planned: Plan) -> Wall:
    """The walls of an agent in a terminal."""
    role = planned.start.role
    assert role is not None
    checkout = find_checkout(Path(planned.start.cwd), planned.start.home)
    return plan(
        ground.port,
        role,
        planned.engine,
        planned.start,
        checkout,
        keep=role.env,
        is_terminal=True,
    )


def around(ground: Ground, agent: Agent, env: Mapping[str, str]) -> Wall:
    """The same walls once more, for another program than the agent's own, on pipes."""
    role = load_role_of(ground.home, agent.role, agent.pod, agent.overrides)
    start = Start(
        role=role,
        words=(),
        agent=agent.name,
        cwd=agent.cwd,
        session=ground.home.session(agent.name),
        home=ground.home.root,
        person=ground.person,
        env=env,
        is_sandboxed=True,
    )
    engine = get_engine(agent.engine)
    checkout = find_checkout(Path(agent.cwd), start.home)
    return plan(ground.port, role, engine, start, checkout, keep=role.env, is_terminal=False)


_is_known_to_work: set[str] = set()


def raise_wall(wall: Wall, argv: tuple[str, ...], env: Mapping[str, str]) -> Wrapped:
    """What to start instead. Blocks; never returns what has no walls."""
    sandbox = wall.sandbox
    try:
        if sandbox.name not in _is_known_to_work:
            why = sandbox.unavailable()
            if why:
                raise SandboxError(why, kind=Kind.UNAVAILABLE)
            _is_known_to_work.add(sandbox.name)
        sandbox.prepare(wall.policy)
        return sandbox.wrap(argv, env, wall.policy)
    except SandboxError:
        raise
    except BullpenError as error:
        raise SandboxError(error.message, hint=error.hint, kind=error.kind) from error


def tidy(checkout: Looked | None) -> None:
    """After a sandboxed program has ended: what it may have left for a git outside to stumble over
    in the repository."""
    if checkout is not None and not checkout.is_main:
        git = Git(checkout.repo.common_dir, checkout.repo.git_dir, checkout.root)
        removed = remove_planted(git)
        if removed:
            log.warning(
                "removed links and pipes from a repository",
                extra={"paths": list(map(str, removed))},
            )


def tidy_agent(home: Home, agent: Agent, running: Iterable[str]) -> None:
    """The same for one in a terminal; and the limits of those that have ended."""
    if agent.worktree is not None:
        tidy(look_at(Path(agent.worktree.path)))
    limits.sweep(home.root, [home.session(name) for name in running])


def _prefixes(engine: Engine) -> tuple[str, ...]:
    """A plain program may be a cover for any of them."""
    every = (engine,) if engine.is_model else ENGINES.values()
    return tuple(prefix for each in every for prefix in each.variables)


def tunnel_hosts(wall: Wall | None) -> tuple[str, ...]:
    """Where the hub leads it to, when it has no network."""
    network = wall.policy.network if wall else None
    return network.hosts if network else ()


def _network(hub_port: int, hosts: tuple[str, ...]) -> Network:
    taken = {hub_port, *(int(host.rpartition(":")[2]) for host in hosts)}
    proxy = next(port for port in PROXY_PORTS if port not in taken)
    return Network(hub_port, proxy, hosts)


def find_checkout(cwd: Path, home: Path) -> Looked | None:
    """The checkout that the directory belongs to: itself, or one of ours around it."""
    worktrees = home / "worktrees"
    for place in (cwd, *cwd.parents):
        if place != cwd and not place.is_relative_to(worktrees):
            return None
        found = look_at(place)
        if found is not None:
            return found
    return None


def _path(text: str, cwd: Path, person: Path) -> Path:
    """As a role writes it: from /, from ~, or from the working directory."""
    if text == "~" or text.startswith("~/"):
        return person / text[2:]
    return Path(os.path.normpath(cwd / text))


def _programs(search_path: str, person: Path) -> Iterator[Path]:
    """The install roots of everything on PATH, and of Bullpen itself: its hooks run inside."""
    yield from (Path(sys.prefix), Path(sys.base_prefix), Path(bullpen.__file__).parents[1])
    for entry in filter(None, search_path.split(os.pathsep)):
        yield from entry_roots(Path(entry), person)


def entry_roots(entry: Path, person: Path) -> Iterator[Path]:
    """What programs in that directory need. Pure."""
    if not entry.is_absolute():
        return
    beside = BESIDE.get(str(entry.relative_to(person))) if entry.is_relative_to(person) else None
    if beside is not None:
        yield from (person / path for path in beside)
    elif entry.name in ("bin", "sbin") and entry.parent != person and len(entry.parts) > 2:
        yield entry.parent
    else:
        yield entry


def _ssh_agent(env: Mapping[str, str]) -> Path | None:
    socket = env.get("SSH_AUTH_SOCK", "")
    return Path(socket) if socket and Path(socket).exists() else None
