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
from bullpen.home.paths import Home
from bullpen.home.projects import load_project
from bullpen.home.settings import Settings
from bullpen.home.workdirs import checked_directory, named_directory
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.tasks.rows import NamedDirectory, TaskSession
from bullpen.model import names
from bullpen.model.project import Project, check_repository
from bullpen.model.task import Giver, Wish
from bullpen.proc import run
from bullpen.worktrees import Spec
from bullpen.worktrees.changes import VerifiedCheckout, head_of, verify_checkout
from bullpen.worktrees.git import SAFE, Repository, git, scrubbed
from bullpen.worktrees.plain import find_tip
from bullpen.worktrees.site import find_checkout, foreign_repository

log = logging.getLogger("bullpen.hub")

LOCAL = ("/", "~/")  # so begins a repository on this machine
CLONE_SECONDS = 1800.0
ASIDE = ".cloning."  # what a clone is called until it is whole
LOCK_REASON = worktrees.TASK_WORKS


@dataclass(frozen=True)
class TaskSite:
    """What has to be known to choose or make the directory of a task."""

    home: Home
    settings: Settings
    person: Path
    session_dir: Path  # the agent's, for directories of its own
    ports: int = 0  # that a worktree gets
    written: tuple[Path, ...] = ()  # where agents work or worked, on the way to what is named
    giver: Giver | None = None  # the agent that gave the task
    earlier: tuple[TaskSession, ...] = ()  # of agents that may have made a git directory there


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
    for branch in (wish.worktree, wish.branch):
        if branch is not None:
            names.subtree_name(branch)
    directory = workdir or (repo if repo and repo.startswith(LOCAL) else None)
    if directory and wish.session_id is None:
        checked_directory(home, settings, person, directory)


def _named(wish: Wish, project: Project | None) -> tuple[str | None, str | None]:
    """The directory, or the repository; what a task itself names counts before its project's."""
    workdir = wish.workdir or (project.workdir if project and not wish.repo else None)
    return workdir, wish.repo or (project.repo if project and not workdir else None)


def read_named(wish: Wish) -> NamedDirectory:
    """What the first task of a session names."""
    project = wish.project if isinstance(wish.project, str) else None
    return NamedDirectory(
        project=project,
        workdir=wish.workdir,
        repo=wish.repo,
        worktree=wish.worktree,
        branch=wish.branch,
    )


def _wish_in(home: Home, session: TaskSession, wish: Wish) -> Wish:
    """The wish, with what the session was asked for first if it names nothing itself. The set-up of
    that first task has failed: those that follow must not work in an empty directory instead."""
    if any(_named(wish, project_of(home, wish))):
        return wish
    named = session.named.model_dump(exclude_none=True)
    return wish.model_copy(update=named)


def make(
    site: TaskSite, wish: Wish, session: TaskSession, is_wanted: Callable[[], bool]
) -> TaskSession:
    """The session with its directory, which is there when this returns. May take as long as a
    clone does, unless it is no longer wanted."""
    if session.directory:
        check_there(session)
        if session.worktree and (site.giver or site.ports):
            tree = _site_of(site, session)
            _refuse_others(site, tree, session.worktree)
            worktrees.reserve_ports(tree, session.worktree, site.ports)
        return session
    wish = _wish_in(site.home, session, wish)
    workdir, repo = _named(wish, project_of(site.home, wish))
    if workdir:
        directory = _find_directory(site, workdir)
        root = _find_top(site, session.id, directory) if wish.branch else None
        if root is not None and wish.branch:
            below = str(directory.relative_to(root))
            session = session.model_copy(update={"below": "" if below == "." else below})
            return _make_worktree(site, session, str(root), wish.branch, is_wanted)
        return session.model_copy(update={"directory": str(directory), **_checkout_at(directory)})
    if repo:
        branch = wish.worktree or wish.branch or f"task-{session.id[:8]}"
        return _make_worktree(site, session, repo, branch, is_wanted)
    directory = site.session_dir / session.id
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return session.model_copy(update={"directory": str(directory.resolve())})


def find_above(home: Home, person: Path, wish: Wish, session: TaskSession) -> tuple[Path, ...]:
    """The real directories on the way to the one that a task names; none if it names none."""
    named = find_named(home, person, wish, session)
    above = named.parents if named else ()
    return tuple(dict.fromkeys(Path(os.path.realpath(each)) for each in above))


def find_named(home: Home, person: Path, wish: Wish, session: TaskSession) -> Path | None:
    """The directory on this machine that a task names, or its project; no link is followed."""
    wish = _wish_in(home, session, wish)
    workdir, repo = _named(wish, project_of(home, wish))
    text = workdir or (repo if repo and repo.startswith(LOCAL) else None)
    return named_directory(person, text) if text else None


def _find_directory(site: TaskSite, text: str) -> Path:
    """Checked; and not where a link leads that an agent may have made: it would choose what the
    next one can reach."""
    directory = checked_directory(site.home, site.settings, site.person, text)
    named = named_directory(site.person, text)
    for above in reversed(named.parents):
        real = Path(os.path.realpath(above))
        # From here on agents could write. The first such is reached by nothing of theirs.
        if any(real.is_relative_to(root) for root in site.written):
            if real / named.relative_to(above) != directory:
                raise BullpenError(
                    f"{named} leads to {directory} by a link that an agent may have made",
                    hint="look who made that link, and remove it, or name the directory that it"
                    " leads to",
                    kind=Kind.DENIED,
                )
            break
    return directory


def _find_top(site: TaskSite, id: str, directory: Path) -> Path | None:
    """The top of the checkout around it, if that has a commit to begin at and tasks may work there.
    Not of one that an agent may have made: what its git directory says would run here."""
    above = (each for each in (directory, *directory.parents) if os.path.lexists(each / ".git"))
    top = next(above, None)
    checkout = verify_checkout(top) if top else None
    if checkout is None:
        return None
    session = TaskSession(id=id, directory=str(checkout.root))
    session = session.model_copy(update=_fields_of(checkout))
    if not believe(session, earlier_than(session, site.earlier)).common_dir:
        return None
    if not head_of(checkout):
        return None
    try:
        return _find_directory(site, str(checkout.root))
    except BullpenError:
        return None


def _make_worktree(
    site: TaskSite, session: TaskSession, repo: str, branch: str, is_wanted: Callable[[], bool]
) -> TaskSession:
    clone = open_site(site.home, site.settings, _local(site, repo, is_wanted))
    name = _choose_name(clone, branch)
    path = worktrees.path_for(clone, name)
    base = site.giver.branch if site.giver else ""
    if not repo.startswith(LOCAL) and find_checkout(clone, path) is None:
        base = _newest(clone.repo, repo, is_wanted)
    _refuse_others(site, clone, name, is_made=False)
    spec = Spec(name, branch=branch, base=base, ports=site.ports, made_for=_made_for(site))
    worktrees.ensure(clone, spec)
    _refuse_others(site, clone, name)  # somebody else may have made it meanwhile
    # From git's own records: the `.git` in it may be an agent's that worked there before.
    checkout = find_checkout(clone, path)
    return session.model_copy(
        update={
            "directory": str(path.resolve()),
            "repo": str(clone.repo.common_dir),
            "worktree": name,
            "branch": branch,
            "git_dir": str(checkout.admin) if checkout else "",
            "common_dir": str(clone.repo.common_dir),
        }
    )


def _choose_name(clone: worktrees.Site, branch: str) -> str:
    """The branch's own name, unless that is another repository's."""
    name = names.subtree_name(branch)
    own = names.subtree_name_in(str(clone.repo.common_dir), branch)
    record = worktrees.find_record(clone, name)
    is_foreign = record is not None and not record.is_of(clone.repo)
    is_taken = is_foreign or foreign_repository(clone, worktrees.path_for(clone, name)) is not None
    return own if is_taken or worktrees.find_record(clone, own) is not None else name


def _site_of(site: TaskSite, session: TaskSession) -> worktrees.Site:
    """Of the worktree that it was given, wherever new ones are made now."""
    base = Path(session.directory).parent
    return open_site(site.home, site.settings, Path(session.repo), base)


def _refuse_others(
    site: TaskSite, tree: worktrees.Site, name: str, *, is_made: bool = True
) -> None:
    """An agent chooses the branch of a task that it gives, so it could choose one where another
    agent or a person works. It gets those alone that were made for its tasks; in a task, those that
    were made for the tasks of that one."""
    if site.giver is None:
        return
    record = worktrees.find_record(tree, name)
    is_own = record.made_for == _made_for(site) if record else not is_made
    is_agents = (worktrees.lock_reason(tree, name) or "").startswith(worktrees.AGENT_RUNS)
    if not is_own or is_agents:
        raise BullpenError(
            f"worktree {name} was not made for tasks of {site.giver.name}, or an agent runs in it",
            hint="another branch_name",
            kind=Kind.DENIED,
        )


def _made_for(site: TaskSite) -> str:
    giver = site.giver
    if giver is None:
        return ""
    return f"tasks of {giver.name}, {giver.born}" + (f", {giver.task}" if giver.task else "")


def find_port_variables(session: TaskSession) -> dict[str, str]:
    """What a task is told of the ports of its worktree; empty if it has none, or no worktree."""
    return worktrees.find_port_variables(Path(session.directory)) if session.worktree else {}


def check_there(session: TaskSession) -> None:
    """Its directory may have been removed since, or replaced by a link to anywhere."""
    directory = Path(session.directory)
    try:
        is_same = directory.is_dir() and directory.resolve(strict=True) == directory
    except (OSError, RuntimeError):
        is_same = False
    if not is_same:
        raise BullpenError(f"the directory of the session is gone: {directory}")


def _checkout_at(directory: Path) -> dict[str, str]:
    looked = verify_checkout(directory)
    return _fields_of(looked) if looked else {}


def _fields_of(checkout: VerifiedCheckout) -> dict[str, str]:
    return {"git_dir": str(checkout.repo.git_dir), "common_dir": str(checkout.repo.common_dir)}


def of_terminals(directories: Iterable[str]) -> tuple[TaskSession, ...]:
    """Sandboxed agents in terminals that work there, as sessions without an id. Pure."""
    return tuple(TaskSession(id="", directory=directory) for directory in directories)


def earlier_than(session: TaskSession, others: Iterable[TaskSession]) -> list[TaskSession]:
    """Those that worked around its checkout, or in terminals around its git directory. Pure."""
    return [
        other
        for other in others
        if Path(session.directory if other.id else session.git_dir).is_relative_to(other.directory)
    ]


def believe(session: TaskSession, earlier: Iterable[TaskSession]) -> TaskSession:
    """The session, without trust in the checkout that was found if an agent may have made it: one
    that worked around it, or in it when it was none. Pure."""

    def checkout_of(one: TaskSession) -> tuple[str, str, str]:
        return one.directory, one.git_dir, one.common_dir

    for other in earlier:
        if (
            other.id != session.id
            and not session.worktree
            and checkout_of(other) != checkout_of(session)
        ):
            return session.model_copy(update={"common_dir": ""})
    return session


def unsure_of(session: TaskSession) -> Path | None:
    """The git directory in it that an agent may have made, or a person: git is not run there, and
    no agent writes to it."""
    path = Path(session.git_dir)
    is_unsure = session.git_dir and not session.common_dir
    return path if is_unsure and path.is_relative_to(session.directory) else None


def checkout_of(session: TaskSession) -> VerifiedCheckout | None:
    """As git may be asked about it at any time."""
    if not session.common_dir:
        return None
    root = Path(session.directory)
    return VerifiedCheckout(Repository(Path(session.git_dir), Path(session.common_dir), root), root)


def _local(site: TaskSite, repo: str, is_wanted: Callable[[], bool]) -> Path:
    """The repository on this machine; one that is elsewhere is cloned first."""
    check_repository(repo)
    if repo.startswith(LOCAL):
        return _find_directory(site, repo)
    stem = repo.rstrip("/").rpartition("/")[2].removesuffix(".git")
    key = hashlib.sha256(repo.encode()).hexdigest()[:8]
    clone = site.home.projects / f"{names.slug(stem)}-{key}"
    if not clone.exists():
        aside = site.home.projects / f"{ASIDE}{clone.name}.{os.urandom(6).hex()}"
        try:
            _ask_server("clone", repo, ["clone", "-q", "--", repo, str(aside)], is_wanted)
            with contextlib.suppress(OSError):  # somebody else cloned it meanwhile
                aside.rename(clone)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return clone


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


def is_scratch(session: TaskSession) -> bool:
    """Whether its directory was made for it alone, and not by git."""
    return bool(session.directory) and Path(session.directory).name == session.id


def clear_scratch(session: TaskSession) -> bool:
    """Remove the directory of a session that nobody can go on with. With a file in it, it stays:
    that may be the only copy of somebody's work. Whether it is gone."""
    root = Path(session.directory)
    directories = []
    for path, inner, files in os.walk(root):
        if files or any((Path(path) / name).is_symlink() for name in inner):
            return False
        directories.append(path)
    for path in reversed(directories):
        try:
            Path(path).rmdir()
        except OSError:  # something came into it meanwhile
            return False
    return not root.exists()


def remove_stale_clones(home: Home) -> None:
    """Remove clones that killed hubs left half-made."""
    for path in home.projects.glob(f"{ASIDE}*"):
        shutil.rmtree(path, ignore_errors=True)


# ── worktrees of tasks are not removed while one works there ──


def lock_tree(home: Home, settings: Settings, session: TaskSession) -> None:
    """Until `unlock_tree`; a lock that a person set stays theirs."""
    if not session.worktree:
        return
    try:
        site = open_site(home, settings, Path(session.repo))
        if worktrees.lock_reason(site, session.worktree) is None:
            worktrees.lock(site, session.worktree, LOCK_REASON)
    except BullpenError as error:
        log.warning("cannot lock a worktree", extra={"name": session.worktree, "why": str(error)})


def unlock_tree(home: Home, settings: Settings, session: TaskSession) -> None:
    """Only our own lock is lifted."""
    if not session.worktree:
        return
    try:
        site = open_site(home, settings, Path(session.repo))
        if worktrees.lock_reason(site, session.worktree) == LOCK_REASON:
            worktrees.unlock(site, session.worktree)
    except BullpenError as error:
        log.warning("cannot unlock a worktree", extra={"name": session.worktree, "why": str(error)})


def remove_empty(home: Home, settings: Settings, session: TaskSession) -> None:
    """The worktree of a task that is over, with its branch, if that is where it began. What
    `worktree remove` would refuse to remove stays."""
    site = open_site(home, settings, Path(session.repo))
    record = worktrees.find_record(site, session.worktree)
    if record is None or record.id != Path(session.git_dir).name:
        return
    if find_tip(site.repo, f"refs/heads/{record.branch}") == record.base_commit:
        worktrees.remove(site, session.worktree)


# ── one task at a time ──


class Workspaces:
    """Who works where."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._directories: dict[str, Path] = {}  # task -> directory
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def hold(self, task: str, directory: Path) -> AsyncIterator[None]:
        """Wait until nobody else works there, then nobody else does."""
        async with self._freed:
            await self._freed.wait_for(lambda: not self.others(task, directory))
            self._directories[task] = directory
        try:
            yield
        finally:
            async with self._freed:
                del self._directories[task]
                self._freed.notify_all()

    def others(self, task: str, directory: Path) -> list[str]:
        """The tasks that keep this one out."""
        return [
            other
            for other, others in self._directories.items()
            if other != task and overlap(others, directory, self._home)
        ]


def overlap(first: Path, second: Path, home: Path) -> bool:
    """Whether work in one may touch the other. What lies in the home is out of reach for who works
    around it."""
    inner, outer = sorted((first, second), key=lambda path: len(path.parts), reverse=True)
    if not inner.is_relative_to(outer):
        return False
    return inner.is_relative_to(home) == outer.is_relative_to(home)
