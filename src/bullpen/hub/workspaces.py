"""Where a task works: choosing the directory, making it, and one task at a time in it.

Choosing and making are synchronous and called in threads; the table of who works where lives on
the event loop. What a caller names is never a path before it was checked here.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError, Kind
from bullpen.hub.task_rows import Session
from bullpen.hub.trees import open_site
from bullpen.model import names
from bullpen.model.project import Project, check_repository
from bullpen.model.task import Wish
from bullpen.paths import Home
from bullpen.proc import run
from bullpen.projects import load_project
from bullpen.settings import Settings
from bullpen.worktrees import Spec
from bullpen.worktrees.git import SAFE, Repository, git, scrubbed
from bullpen.worktrees.since import Looked, look_at
from bullpen.worktrees.site import find_checkout

log = logging.getLogger("bullpen.hub")

LOCAL = ("/", "~/")  # so begins a repository on this machine
CLONE_SECONDS = 1800.0
ASIDE = ".cloning."  # what a clone is called until it is whole
LOCK_REASON = "a task works in it"


@dataclass(frozen=True)
class Site:
    """What choosing a directory needs to know."""

    home: Home
    settings: Settings
    person: Path
    session_dir: Path  # the agent's, for directories of its own


def project_of(home: Home, wish: Wish) -> Project | None:
    """The project that is named; one that is told along has no file."""
    return load_project(home, wish.project) if isinstance(wish.project, str) else None


def check_wish(home: Home, settings: Settings, person: Path, wish: Wish) -> None:
    """Refuse what can be refused before the task is acknowledged."""
    workdir, repo = _named(wish, project_of(home, wish))
    if repo:
        try:
            check_repository(repo)
        except ValueError as error:
            raise BullpenError(f"repo {repo[:200]!r} {error}") from error
    if wish.worktree is not None:
        names.subtree_name(wish.worktree)
    place = workdir or (repo if repo and repo.startswith(LOCAL) else None)
    if place and wish.session_id is None:
        _checked_directory(home, settings, person, place)


def _named(wish: Wish, project: Project | None) -> tuple[str | None, str | None]:
    """The directory, or the repository; what a task itself names counts before its project's."""
    workdir = wish.workdir or (project.workdir if project and not wish.repo else None)
    return workdir, wish.repo or (project.repo if project and not workdir else None)


def make(site: Site, wish: Wish, session: Session, is_wanted: Callable[[], bool]) -> Session:
    """The session with its directory, which is there when this returns. May take as long as a
    clone does, unless it is no longer wanted."""
    if session.directory:
        check_there(session)
        return session
    workdir, repo = _named(wish, project_of(site.home, wish))
    if workdir:
        found = _checked_directory(site.home, site.settings, site.person, workdir)
        return session.model_copy(update={"directory": str(found), **_checkout_at(found)})
    if repo:
        branch = wish.worktree or f"task-{session.id[:8]}"
        return _make_worktree(site, session, repo, branch, is_wanted)
    directory = site.session_dir / session.id
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return session.model_copy(update={"directory": str(directory.resolve())})


def _make_worktree(
    site: Site, session: Session, repo: str, branch: str, is_wanted: Callable[[], bool]
) -> Session:
    name = names.subtree_name(branch)
    found = open_site(site.home, site.settings, _local(site, repo, is_wanted))
    path = worktrees.path_for(found, name)
    base = ""
    if not repo.startswith(LOCAL) and find_checkout(found, path) is None:
        base = _newest(found.repo, repo, is_wanted)
    worktrees.ensure(found, Spec(name, branch=branch, base=base))
    # From git's own records: the `.git` in it may be an agent's that worked there before.
    checkout = find_checkout(found, path)
    return session.model_copy(
        update={
            "directory": str(path.resolve()),
            "repo": str(found.repo.common_dir),
            "worktree": name,
            "git_dir": str(checkout.admin) if checkout else "",
            "common_dir": str(found.repo.common_dir),
        }
    )


def check_there(session: Session) -> None:
    """Its directory may have been removed since, or replaced by a link to anywhere."""
    place = Path(session.directory)
    try:
        is_same = place.is_dir() and place.resolve(strict=True) == place
    except (OSError, RuntimeError):
        is_same = False
    if not is_same:
        raise BullpenError(f"the directory of the session is gone: {place}")


def _checkout_at(directory: Path) -> dict[str, str]:
    looked = look_at(directory)
    if looked is None:
        return {}
    return {"git_dir": str(looked.repo.git_dir), "common_dir": str(looked.repo.common_dir)}


def believe(session: Session, earlier: Iterable[Session]) -> Session:
    """The session, without trust in the checkout that was found if an agent may have made it: one
    that worked around it, or in it when it was none. Pure."""

    def found(one: Session) -> tuple[str, str, str]:
        return one.directory, one.git_dir, one.common_dir

    for other in earlier:
        if other.id != session.id and not session.worktree and found(other) != found(session):
            return session.model_copy(update={"common_dir": ""})
    return session


def unsure_of(session: Session) -> Path | None:
    """The git directory in it that an agent may have made, or a person: git is not run there, and
    no agent writes to it."""
    path = Path(session.git_dir)
    is_unsure = session.git_dir and not session.common_dir
    return path if is_unsure and path.is_relative_to(session.directory) else None


def checkout_of(session: Session) -> Looked | None:
    """As git may be asked about it at any time."""
    if not session.common_dir:
        return None
    root = Path(session.directory)
    return Looked(Repository(Path(session.git_dir), Path(session.common_dir), root), root)


def _local(site: Site, repo: str, is_wanted: Callable[[], bool]) -> Path:
    """The repository on this machine; one that is elsewhere is cloned first."""
    check_repository(repo)
    if repo.startswith(LOCAL):
        return _checked_directory(site.home, site.settings, site.person, repo)
    stem = repo.rstrip("/").rpartition("/")[2].removesuffix(".git")
    key = hashlib.sha256(repo.encode()).hexdigest()[:8]
    place = site.home.projects / f"{names.slug(stem)}-{key}"
    if not place.exists():
        aside = site.home.projects / f"{ASIDE}{place.name}.{os.urandom(6).hex()}"
        try:
            _ask_server("clone", repo, ["clone", "-q", "--", repo, str(aside)], is_wanted)
            with contextlib.suppress(OSError):  # somebody else cloned it meanwhile
                aside.rename(place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return place


def _newest(clone: Repository, repo: str, is_wanted: Callable[[], bool]) -> str:
    """The branch that the server would have us begin at, as it is there now; empty if it names
    none."""
    fetch = [
        *SAFE,
        "--git-dir",
        str(clone.git_dir),
        "fetch",
        "-q",
        "--no-recurse-submodules",
        "origin",
    ]
    try:
        _ask_server("fetch", repo, fetch, is_wanted)
    except BullpenError:
        # Of several at once only one succeeds (git: "cannot lock ref"); the others find it done.
        _ask_server("fetch", repo, fetch, is_wanted)
    head = ("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD")
    return git(clone, *head, accept=(0, 1)).text.strip()


def _ask_server(what: str, repo: str, words: Sequence[str], is_wanted: Callable[[], bool]) -> None:
    done = run(
        ["git", *words],
        env={**scrubbed(os.environ), "GIT_TERMINAL_PROMPT": "0"},
        timeout=CLONE_SECONDS,
        is_wanted=is_wanted,
    )
    if done.code:
        raise BullpenError(
            f"cannot {what} {repo}: {done.error_text.strip()[-500:]}",
            hint=f"try the same with git {what}",
            kind=Kind.COMMAND_FAILED,
        )


def sweep_clones(home: Home) -> None:
    """Those that hubs which were killed left half-made."""
    for path in home.projects.glob(f"{ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


def allowed_roots(home: Home, settings: Settings, person: Path) -> list[Path]:
    """Below which directories tasks may work: the home's surroundings, what is cloned into it, and
    what the settings name."""
    named = (
        Path(str(person) + text[1:] if text.startswith("~") else text) for text in settings.workdirs
    )
    return [home.root.parent, home.projects, *named]


def _checked_directory(home: Home, settings: Settings, person: Path, text: str) -> Path:
    """Absolute, there, under an allowed root wherever its links lead, and nothing of the home's
    own."""
    path = person / text[2:] if text.startswith("~/") else Path(text)
    if not path.is_absolute() or "\0" in text:
        raise BullpenError(f"workdir {text[:200]!r} is no absolute path")
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise BullpenError(f"no directory {text[:200]!r}") from error
    if not found.is_dir():
        raise BullpenError(f"{text[:200]!r} is no directory")
    roots = [root.resolve() for root in allowed_roots(home, settings, person)]
    if not any(found.is_relative_to(root) for root in roots):
        raise BullpenError(
            f"{found} is under no directory where tasks may work",
            hint=f"add it to `workdirs` in {home.config_file}",
            kind=Kind.DENIED,
        )
    own = home.root.resolve()
    free = (home.projects.resolve(), home.worktrees.resolve())
    if found.is_relative_to(own) and not any(
        found.is_relative_to(each) and found != each for each in free
    ):
        raise BullpenError(f"{found} belongs to Bullpen itself", kind=Kind.DENIED)
    return found


# ── worktrees of tasks are not removed while one works there ──


def lock_tree(home: Home, settings: Settings, session: Session) -> None:
    """Until `unlock_tree`; a lock that a person set stays theirs."""
    if not session.worktree:
        return
    try:
        site = open_site(home, settings, Path(session.repo))
        if worktrees.lock_reason(site, session.worktree) is None:
            worktrees.lock(site, session.worktree, LOCK_REASON)
    except BullpenError as error:
        log.warning("cannot lock a worktree", extra={"name": session.worktree, "why": str(error)})


def unlock_tree(home: Home, settings: Settings, session: Session) -> None:
    """Only our own lock is lifted."""
    if not session.worktree:
        return
    try:
        site = open_site(home, settings, Path(session.repo))
        if worktrees.lock_reason(site, session.worktree) == LOCK_REASON:
            worktrees.unlock(site, session.worktree)
    except BullpenError as error:
        log.warning("cannot unlock a worktree", extra={"name": session.worktree, "why": str(error)})


# ── one task at a time ──


class Workspaces:
    """Who works where."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._held: dict[str, Path] = {}  # task -> directory
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def hold(self, task: str, directory: Path) -> AsyncIterator[None]:
        """Wait until nobody else works there, then nobody else does."""
        async with self._freed:
            await self._freed.wait_for(lambda: not self.others(task, directory))
            self._held[task] = directory
        try:
            yield
        finally:
            async with self._freed:
                del self._held[task]
                self._freed.notify_all()

    def others(self, task: str, directory: Path) -> list[str]:
        """The tasks that keep this one out."""
        return [
            other
            for other, held in self._held.items()
            if other != task and overlap(held, directory, self._home)
        ]


def overlap(first: Path, second: Path, home: Path) -> bool:
    """Whether work in one may touch the other. What lies in the home is out of reach for who works
    around it."""
    inner, outer = sorted((first, second), key=lambda path: len(path.parts), reverse=True)
    if not inner.is_relative_to(outer):
        return False
    return inner.is_relative_to(home) == outer.is_relative_to(home)
