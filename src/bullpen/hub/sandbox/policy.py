"""The sandbox of an agent: from its role, its directory and its engine to a `Policy`.

Called by `agents/program` and `tasks/run_plan`. `plan` reads the disk and decides. `wrap_command`
is called right before a start: it returns a command in a sandbox, or raises.
"""

import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import bullpen
from bullpen.engines import ENGINES, Start
from bullpen.engines.base import Prepare
from bullpen.engines.programs import path_roots
from bullpen.errors import BullpenError, Kind
from bullpen.home import accepted
from bullpen.home.paths import Home
from bullpen.hub.context import HubContext
from bullpen.hub.sandbox.agent_sockets import DIRECTORY
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.sandboxes import Git, Network, Policy, Sandbox, WrappedCommand, get_sandbox, limits
from bullpen.sandboxes.bounds import named_path, ssh_socket
from bullpen.sandboxes.prepare import remove_planted
from bullpen.worktrees.changes import VerifiedCheckout, verify_checkout
from bullpen.worktrees.private.store import store_of
from bullpen.worktrees.unfinished import set_aside_commands

log = logging.getLogger("bullpen.hub")

PROXY_PORTS = range(3128, 3228)  # inside: nobody else listens there


class SandboxError(BullpenError):
    """A sandbox was wanted, and there can be none."""


@dataclass(frozen=True)
class SandboxPlan:
    """The sandbox of one start."""

    sandbox: Sandbox
    policy: Policy


def plan(
    hub_port: int,
    role: Role,
    engine: Prepare,
    start: Start,
    checkout: VerifiedCheckout | None,
    *,
    unsure: Path | None = None,
    written: Path | None = None,
    real_cwd: str,
    keep: Iterable[str],
    is_terminal: bool,
) -> SandboxPlan:
    """The sandbox for that start. `checkout`: what its directory belongs to, if that was one before
    an agent worked there. `unsure`: a git directory that may be a person's or an agent's.
    `written`: around its directory, where agents wrote before. `real_cwd`: where its directory led
    when it was chosen; empty if that is not known."""
    cwd, wanted = Path(start.cwd), role.sandbox
    read_only = [named_path(text, cwd, start.person) for text in wanted.read_only_paths]
    writable = [named_path(text, cwd, start.person) for text in wanted.read_write_paths]
    git = None
    if unsure is not None:
        read_only.append(unsure)
    if checkout is not None and checkout.is_main:
        # Its configuration and hooks run in the person's own shell: an agent may look, not write.
        git = Git(checkout.repo.common_dir, checkout.repo.common_dir, checkout.root)
    elif checkout is not None:
        git = Git(checkout.repo.common_dir, checkout.repo.git_dir, checkout.root)
        writable.append(checkout.root)
    writable = [*engine.writable(start), *writable]
    policy = Policy(
        cwd=cwd,
        home=start.home,
        session=start.session,
        person=start.person,
        sockets=start.session / DIRECTORY,
        writable=tuple(writable),
        read_only=tuple(read_only),
        hidden=_other_homes(start),
        written=(written,) if written else (),
        real_cwd=Path(real_cwd) if real_cwd else None,
        programs=(*engine.programs(start), *_programs(start, (cwd, *writable))),
        git=git,
        network=None if wanted.allow_network else _network(hub_port, engine.hosts(start)),
        ssh_agent=ssh_socket(start.env) if wanted.ssh_agent else None,
        is_terminal=is_terminal,
        processes=wanted.processes,
        memory_bytes=wanted.memory_mb * (1 << 20) if wanted.memory_mb else None,
        keep=frozenset(keep),
        prefixes=_prefixes(engine),
    )
    return SandboxPlan(get_sandbox(), policy)


def plan_for_agent(
    context: HubContext, agent: Agent, engine: Prepare, start: Start, *, is_terminal: bool
) -> SandboxPlan:
    """The sandbox of an agent that is no task agent."""
    assert start.role is not None
    checkout = find_checkout(Path(start.cwd), start.home)
    return plan(
        context.port,
        start.role,
        engine,
        start,
        checkout,
        written=Path(agent.worktree.path) if agent.worktree else None,
        real_cwd=agent.real_cwd,
        keep=start.role.env,
        is_terminal=is_terminal,
    )


_is_known_to_work: set[str] = set()


def wrap_command(
    sandbox_plan: SandboxPlan, argv: tuple[str, ...], env: Mapping[str, str]
) -> WrappedCommand:
    """What to start instead. Blocks; never returns a command without its sandbox."""
    sandbox = sandbox_plan.sandbox
    try:
        if sandbox.name not in _is_known_to_work:
            why = sandbox.unavailable()
            if why:
                raise SandboxError(why, kind=Kind.UNAVAILABLE)
            _is_known_to_work.add(sandbox.name)
        sandbox.prepare(sandbox_plan.policy)
        return sandbox.wrap(argv, env, sandbox_plan.policy)
    except SandboxError:
        raise
    except BullpenError as error:
        raise SandboxError(error.message, hint=error.hint, kind=error.kind) from error


def tidy(checkout: VerifiedCheckout | None) -> list[str]:
    """After a sandboxed program has ended that had no git of its own (one of before, or on macOS):
    remove links and pipes that it may have left in the repository, where a git outside of the
    sandbox would follow them; and take away what `git rebase --continue` would run outside.
    Returns what to tell of that."""
    if checkout is None or checkout.is_main or _has_own_git(checkout):
        return []
    git = Git(checkout.repo.common_dir, checkout.repo.git_dir, checkout.root)
    removed = remove_planted(git)
    if removed:
        log.warning(
            "removed links and pipes from a repository", extra={"paths": list(map(str, removed))}
        )
    moved = set_aside_commands(checkout.repo, checkout.repo.git_dir)
    return [f"a half-done rebase that runs commands was taken away: {path}" for path in moved]


def _has_own_git(checkout: VerifiedCheckout) -> bool:
    repo = checkout.repo
    return store_of(repo.common_dir, repo.git_dir, checkout.root).exists


def tidy_agent(home: Home, agent: Agent, running: Iterable[str]) -> list[str]:
    """The same for one in a terminal. Also removes the limits of those that have ended."""
    limits.remove_ended(home.root, [home.session(name) for name in running])
    if agent.worktree is None:
        return []
    return tidy(verify_checkout(Path(agent.worktree.path)))


def _prefixes(engine: Prepare) -> tuple[str, ...]:
    """A plain program may start any of them."""
    engines: Iterable[Prepare] = (engine,) if engine.is_model else ENGINES.values()
    return tuple(prefix for each in engines for prefix in each.variables)


def tunnel_hosts(sandbox_plan: SandboxPlan | None) -> tuple[str, ...]:
    """The hosts that the hub connects it to, when it has no network."""
    network = sandbox_plan.policy.network if sandbox_plan else None
    return network.hosts if network else ()


def _network(hub_port: int, hosts: tuple[str, ...]) -> Network:
    taken = {hub_port, *(int(host.rpartition(":")[2]) for host in hosts)}
    proxy = next(port for port in PROXY_PORTS if port not in taken)
    return Network(hub_port, proxy, hosts)


def find_checkout(cwd: Path, home: Path) -> VerifiedCheckout | None:
    """The checkout that the directory belongs to: itself, or one of ours around it."""
    worktrees = home / "worktrees"
    for directory in (cwd, *cwd.parents):
        if directory != cwd and not directory.is_relative_to(worktrees):
            return None
        checkout = verify_checkout(directory)
        if checkout is not None:
            return checkout
    return None


def _other_homes(start: Start) -> tuple[Path, ...]:
    """The person's other homes, and the list of them. Who starts an agent may be an agent, and say
    where it is: then it is also where the hub's own environment says, and where it usually is."""
    lists = {accepted.list_path(env, start.person) for env in (start.env, os.environ, {})}
    # One that this user cannot look at is hidden from the sandbox, too: `is_dir` would raise.
    homes = {home for path in lists for home in accepted.read(path) if os.path.isdir(home)}  # noqa: PTH112
    return (*sorted(path.parent for path in lists), *sorted(homes - {start.home}))


def _programs(start: Start, writable: Collection[Path]) -> Iterator[Path]:
    """What everything on PATH needs, and Bullpen itself: its hooks run inside."""
    yield from (Path(sys.prefix), Path(sys.base_prefix), Path(bullpen.__file__).parents[1])
    yield from path_roots(start.env.get("PATH", ""), start.person, writable)
