"""Runs git safely on repositories and worktrees.

An agent may have written anything in its tree: the `.git` file, the hooks path and fsmonitor may be
planted. So git never discovers a managed worktree by itself: it gets the administrative directory,
the common directory and the work tree explicitly, and hooks, fsmonitor and automatic gc are off in
every call. All code that runs git on a repository that agents use calls `git` or `run_raw`.
"""

import functools
import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bullpen import proc
from bullpen.files import read_plain
from bullpen.worktrees.errors import Code, WorktreeError, reported

MINIMUM = (2, 38)  # merge-tree --write-tree

# Settings that choose which configuration is read stay; all others would redirect us.
KEPT_VARIABLES = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"})
SAFE = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.splitIndex=false"),  # an index of ours is one file
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)
# Safety copies are commits, and a person may have no identity configured.
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Bullpen"), ("EMAIL", "bullpen@localhost"))
}
# Refs of an agent (refs/replace) and a file would put other objects in the place of those named.
# A file that is missing is silent; an empty one has git advise against such files.
AS_COMMITTED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}
CHECKOUT_SECONDS = 1800.0
REFLOG_BYTES = 1 << 13  # its first line
BIRTH = "bullpen: born here"  # in the reflog of every branch that we create
REF_BYTES = 1 << 12
ON_BRANCH = re.compile(r"ref: refs/heads/([^\s\x00-\x1f]+)\n?")
MOST_OPENED = 256


@dataclass(frozen=True)
class Repository:
    """One repository: where its shared git directory is, and the tree we came from."""

    git_dir: Path  # of the tree we came from; its HEAD is "the current branch"
    common_dir: Path  # shared by all worktrees
    root: Path | None  # top of the tree we came from; None when bare

    @property
    def admin_dir(self) -> Path:
        """Where git keeps one directory per linked worktree."""
        return self.common_dir / "worktrees"

    @property
    def own_dir(self) -> Path:
        """Where Bullpen keeps its lock and journal for this repository."""
        return self.common_dir / "bullpen"

    def __str__(self) -> str:
        return str(self.root or self.common_dir)


@dataclass(frozen=True)
class Checkout:
    """A linked worktree: its files and git's administrative directory of it."""

    path: Path
    admin: Path


# Git directories, and directories that one lies in, which git was asked about, as they were then:
# each landing opens one twice.
_opened: dict[Path, tuple[tuple[int, ...], Repository]] = {}


def open_repository(start: Path) -> Repository:
    """The repository that holds `start`; `NOT_A_REPO` says why there is none."""
    require_git()
    with reported(f"cannot look at {start}", Code.NOT_A_REPO):
        start = start.absolute()  # "." tells nobody where
        is_directory = start.is_dir()
    if not is_directory:
        raise WorktreeError(Code.NOT_A_REPO, f"no such directory: {start}")
    identity = _identity(start)
    known = _opened.get(start)
    if known is not None and known[0] == identity:
        return known[1]
    repo = _ask_for_repository(start)
    if identity and repo in (Repository(start, start, None), _usual(start)):
        if len(_opened) >= MOST_OPENED:
            _opened.clear()
        _opened[start] = identity, repo
    return repo


def _usual(start: Path) -> Repository:
    """With its git directory in it."""
    return Repository(start / ".git", start / ".git", start)


def _identity(start: Path) -> tuple[int, ...]:
    """Of a git directory, or of one that it lies in, as long as it is the same with the same
    settings; empty for another."""
    try:
        git_dir = start / ".git" if os.path.lexists(start / ".git") else start  # as git looks
        directories, config = (start.stat(), git_dir.stat()), (git_dir / "config").stat()
    except OSError:
        return ()
    which = [number for each in directories for number in (each.st_dev, each.st_ino, each.st_uid)]
    return (*which, config.st_ino, config.st_mtime_ns, config.st_size)


def _ask_for_repository(start: Path) -> Repository:
    # Paths may hold newlines, and rev-parse has no -z: the two booleans are the separators.
    done = run_raw(
        [
            *("-C", str(start), "rev-parse", "--path-format=absolute"),
            *("--git-dir", "--is-bare-repository", "--git-common-dir"),
            *("--is-inside-work-tree", "--show-toplevel"),
        ]
    )
    match = re.fullmatch(
        r"(/.+?)\n(?:true|false)\n(/.+?)\n(true|false)\n(?:(/.+)\n)?", done.text, re.DOTALL
    )
    if match is None:
        owner = "dubious ownership" in done.error_text
        raise WorktreeError(
            Code.NOT_A_REPO,
            f"git refuses {start}: it belongs to somebody else"
            if owner
            else f"not a git repository: {start}",
            hint=f"git config --global --add safe.directory {start}" if owner else "git init",
            details={"git": done.error_text},
        )
    git_dir, common_dir, inside, top = match.groups()
    return Repository(
        git_dir=Path(git_dir).resolve(),
        common_dir=Path(common_dir).resolve(),
        root=Path(top).resolve() if inside == "true" and top else None,
    )


def git(
    repo: Repository,
    *words: str | Path,
    at: Checkout | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    fds: Sequence[int] = (),
    accept: Container[int] = (0,),
    output: IO[bytes] | None = None,
) -> proc.Done:
    """Run git on the repository, or on one of its worktrees (`at`).

    An exit code outside `accept` is `GIT_FAILED` with git's own words in details. With `output`
    everything that git prints goes there instead of into the result.
    """
    directories = {
        "GIT_DIR": str(at.admin if at else repo.git_dir),
        "GIT_COMMON_DIR": str(repo.common_dir),
    }
    if at:
        directories["GIT_WORK_TREE"] = str(at.path)
    elif repo.root:
        directories["GIT_WORK_TREE"] = str(repo.root)
    done = run_raw(
        list(words),
        cwd=at.path if at else repo.root or repo.common_dir,
        stdin=stdin,
        env={**directories, **(env or {})},
        timeout=timeout,
        fds=fds,
        output=output,
    )
    if done.code not in accept:
        raise WorktreeError(
            Code.GIT_FAILED,
            f"git {words[0]} failed: {done.error_text or f'exit {done.code}'}",
            details={
                "git": done.error_text,
                "exit": done.code,
                "command": [str(word) for word in words],
            },
        )
    return done


def run_raw(
    words: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    fds: Sequence[int] = (),
    output: IO[bytes] | None = None,
) -> proc.Done:
    """Git with the scrubbed environment and the safe settings; judges nothing."""
    with reported("cannot run git"):
        return proc.run(
            ["git", *SAFE, *words],
            cwd=cwd,
            stdin=stdin,
            env={**scrubbed(os.environ), **(env or {})},
            timeout=timeout,
            pass_fds=fds,
            output=output,
        )


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would redirect git, with what keeps it predictable."""
    passed = {
        name: value
        for name, value in environment.items()
        if not name.startswith("GIT_") or name in KEPT_VARIABLES
    }
    quiet = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    return passed | IDENTITY | quiet | AS_COMMITTED


@functools.cache
def require_git() -> tuple[int, ...]:
    """The version of git, once per process; too old is refused with both versions."""
    done = run_raw(["--version"])
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.text)
    version = tuple(int(part or 0) for part in match.groups()) if match else (0,)
    if version < MINIMUM:
        raise WorktreeError(
            Code.GIT_FAILED,
            f"git {'.'.join(map(str, version))} is too old: 2.38 or newer is needed",
            hint="install a newer git",
        )
    return version


# ── what exists ──────────────────────────────────────────────────────────────


def resolve(repo: Repository, revisions: Sequence[str]) -> dict[str, str | None]:
    """Object ids by revision, None where there is none; one process for all of them."""
    valid = [text for text in revisions if text and not re.search(r"[\s\x00-\x1f]", text)]
    result: dict[str, str | None] = dict.fromkeys(revisions)
    if valid:
        done = git(repo, "cat-file", "--batch-check", stdin=os.fsencode("\n".join(valid)) + b"\n")
        for text, line in zip(valid, done.text.splitlines(), strict=True):
            words = line.rsplit(" ", 2)
            # "<oid> <type> <size>"; anything else ends in missing or ambiguous
            result[text] = words[0] if len(words) == 3 and words[2].isdigit() else None
    return result


def has_commits(repo: Repository) -> bool:
    """Whether any commit exists at all."""
    return bool(git(repo, "rev-list", "-n1", "--all").out)


def current_branch(repo: Repository) -> str | None:
    """The branch of the tree we came from; None when its head is detached."""
    branch = _read_branch(repo)
    if branch:
        return branch
    done = git(repo, "symbolic-ref", "-q", "HEAD", accept=(0, 1))
    return done.text.strip().removeprefix("refs/heads/") or None


def _read_branch(repo: Repository) -> str:
    """The same from git's files; empty where git has to be asked what they mean. Saves a
    process."""
    try:
        head = ON_BRANCH.fullmatch(os.fsdecode(read_plain(repo.git_dir / "HEAD", REF_BYTES)))
        if head is None or ".." in head[1]:
            return ""
        commit = read_plain(repo.common_dir / "refs" / "heads" / head[1], REF_BYTES)
    except OSError:
        return ""
    return "" if commit.startswith(b"ref:") else head[1]


def branch_exists(repo: Repository, branch: str) -> bool:
    """Whether a local branch of that name exists."""
    return resolve(repo, [f"refs/heads/{branch}"])[f"refs/heads/{branch}"] is not None


def is_born_elsewhere(repo: Repository, branch: str) -> bool:
    """Whether somebody else created this branch: its reflog begins with a birth not by us.

    A reflog that has expired, or that is not kept in a file, proves nothing.
    """
    try:
        log = read_plain(repo.common_dir / "logs" / "refs" / "heads" / branch, REFLOG_BYTES)
    except OSError:
        return False
    first = log.partition(b"\n")[0]
    return first.startswith(b"0" * 40) and BIRTH.encode() not in first


def validate(repo: Repository) -> None:
    """Raise unless worktrees can be made here."""
    if not has_commits(repo):
        raise WorktreeError(
            Code.NOT_A_REPO,
            f"{repo} has no commit yet: a worktree needs one to start from",
            hint="git commit --allow-empty -m 'Start'",
        )


def is_repository(start: Path) -> bool:
    """Whether `start` lies in a repository."""
    try:
        open_repository(start)
    except WorktreeError as error:
        if error.code is Code.NOT_A_REPO:
            return False
        raise
    return True
