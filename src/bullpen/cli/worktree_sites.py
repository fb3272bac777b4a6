"""Where the worktrees of a command are, and who works in them.

Called by `commands/worktree`. Asks no hub: the files of the home and its holders say it.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import click

from bullpen import worktrees
from bullpen.cli import output
from bullpen.cli.elsewhere import name_here, without_own_host
from bullpen.errors import BullpenError, Kind
from bullpen.files import read_object
from bullpen.home.paths import Home, current_home
from bullpen.model import names
from bullpen.worktrees import Site, WorktreeError
from bullpen.worktrees.site import is_name


class SiteSettings(TypedDict, total=False):
    """What `config.yaml` may say of worktrees, besides their base."""

    branch_prefix: str
    pool: int
    max_depth: int
    port_range: range


def open_site(repo: Path | None, name: str = "") -> Site:
    """The site of that repository under this home's settings. Where none is given, that of the
    worktree of this name: the home knows it. Else that of the current directory."""
    name_here(name)
    base, settings = _settings()
    if name and is_name(name) and not os.path.lexists(base / name):
        # Made before `worktrees.base` was changed, perhaps.
        path = _path_of_agent(current_home().session(name) / "session.json")
        base = path.parent if path and path.name == name else base
    if repo is None and name:
        repo = worktrees.find_repository(base, name)
    return worktrees.open_site((repo or Path()).expanduser(), base, **settings)


def open_kept_site(repo: Path | None, text: str) -> tuple[Site, str]:
    """The site of the repository that keeps a copy of the worktree of that name or branch, which is
    gone, and its name. Looked for in the current directory's and in those that the home knows."""
    name = names.worktree_named(text)
    base, settings = _settings()
    for candidate in () if repo else (Path(), *_known_repositories(base)):
        with contextlib.suppress(WorktreeError):  # it may be gone
            site = worktrees.open_site(candidate, base, **settings)
            if any(copy.name == name for copy in worktrees.list_safety_copies(site.repo)):
                return site, name
    return open_site(repo, text), text


def worktree_named(text: str) -> str:
    """The worktree that a person means who names it, or its branch. A text with a slash that names
    none here stays as it is: it may be HOST/AGENT."""
    name = names.worktree_named(text)
    base, _ = _settings()
    is_here = os.path.lexists(base / name) or current_home().session(name).exists()
    return name if is_here else without_own_host(text)


def named_argument(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """The same for an argument of a command."""
    return worktree_named(text)


def named_arguments(
    _ctx: click.Context, _param: click.Parameter, texts: Sequence[str]
) -> tuple[str, ...]:
    """The same for several."""
    return tuple(map(worktree_named, texts))


@contextlib.contextmanager
def told_of_agents(name: str) -> Iterator[None]:
    """Where no worktree of that name is found: of an agent that never had one, that is said, with
    where it works."""
    try:
        yield
    except WorktreeError as error:
        if error.code not in (worktrees.Code.WORKTREE_NOT_FOUND, worktrees.Code.NOT_A_REPO):
            raise
        session = read_object(current_home().session(name) / "session.json")
        if not session or session.get("worktree"):
            raise
        raise BullpenError(
            f"{name} has no worktree of its own: what it changed is in {session.get('cwd')}",
            hint="look there with git diff",
            kind=Kind.CONFLICT,
        ) from error


def all_names() -> list[str]:
    """Of the worktrees of all repositories."""
    base, _ = _settings()
    return sorted(path.name for path in base.glob("[!.]*"))


def _settings() -> tuple[Path, SiteSettings]:
    """Where the home's worktrees lie, and what is set for them."""
    home = current_home()
    if sets_nothing(home.config_file):
        return home.worktrees, {}
    from bullpen.home.settings import load_settings

    rules = load_settings(home.config_file).worktrees
    # A relative base is relative to the home.
    base = home.root / Path(rules.base).expanduser() if rules.base else home.worktrees
    return base, {
        "branch_prefix": rules.branch_prefix,
        "pool": rules.pool,
        "max_depth": rules.max_depth,
        "port_range": rules.ports,
    }


def bases_of_agents() -> list[Path]:
    """Where the worktrees of the home's agents lie, wherever new ones are made now."""
    paths = map(_path_of_agent, sorted(current_home().sessions.glob("*/session.json")))
    return [path.parent for path in paths if path]


def _path_of_agent(session_file: Path) -> Path | None:
    """The worktree of the agent of that session, if it has one that is there."""
    worktree = read_object(session_file).get("worktree")
    path = worktree.get("path") if isinstance(worktree, dict) else None
    return Path(path) if isinstance(path, str) and os.path.lexists(path) else None


def _known_repositories(base: Path) -> Iterator[Path]:
    """Those with worktrees, those that agents worked in, and the one that the home lies in."""
    home = current_home()
    yield from worktrees.list_repositories(base)
    for path in sorted(home.sessions.glob("*/session.json")):
        worktree = read_object(path).get("worktree")
        if isinstance(worktree, dict) and isinstance(worktree.get("repo"), str):
            yield Path(worktree["repo"])
    yield home.root


def bring_over(site: Site, *names: str) -> None:
    """What sandboxed agents have committed is looked at, too: that of these worktrees, or of all.
    What cannot be brought over is told, and counts as work."""
    if not (site.repo.own_dir / "private").is_dir():
        return
    from bullpen.sandboxes.inside import bring_over_all

    for name, why in bring_over_all(site.repo, names).items():
        output.write_error(f"{name}: its commits were not brought over: {why}")


def sets_nothing(config_file: Path) -> bool:
    """Whether the file holds comments only, as `init` writes it.

    Reading settings costs more than all the rest of a short command; without any, the
    library's defaults are the settings' defaults.
    """
    try:
        lines = config_file.read_bytes().splitlines()
    except FileNotFoundError:
        return True
    return all(not line.strip() or line.lstrip().startswith(b"#") for line in lines)


def has_ended(home: Home, name: str) -> bool:
    """Whether no agent can be working there: it left an exit record, or there never was one."""
    session = home.session(name)
    return not session.exists() or (session / "exit.json").exists()


def why_used(site: Site, name: str) -> str:
    """Whose program runs in that worktree, and what ends it; empty if none does."""
    worker = _find_worker(current_home(), worktrees.path_for(site, name))
    return f"{worker} is running in it · bullpen stop {worker}" if worker else ""


def why_kept(site: Site, name: str) -> str:
    """Also of an agent whose end is not known."""
    used = why_used(site, name)
    return used or ("" if has_ended(current_home(), name) else worktrees.NOT_ENDED)


def refuse_used(site: Site, name: str) -> None:
    """Whatever is forced, and whoever has locked it."""
    why, _, stop = why_used(site, name).partition(" · ")
    if why:
        raise BullpenError(f"{name} is in use: {why}", hint=stop, kind=Kind.CONFLICT)


def _find_worker(home: Home, path: Path) -> str:
    from bullpen.client.processes import find_agents
    from bullpen.home.session_file import read_session_file

    for process in find_agents(home):
        if Path(read_session_file(home, process.name).cwd).is_relative_to(path):
            return process.name
    return ""
