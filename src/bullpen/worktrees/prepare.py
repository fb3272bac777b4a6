"""Prepares a fresh checkout: copies untracked files and the persona, runs the set-up command."""

import errno
import functools
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from bullpen import proc
from bullpen.errors import BullpenError
from bullpen.files import open_beneath, read_tail
from bullpen.home import marker
from bullpen.worktrees import exclude
from bullpen.worktrees.errors import Code, WorktreeError
from bullpen.worktrees.git import Checkout, Repository, git
from bullpen.worktrees.repo_lock import Lock
from bullpen.worktrees.site import Site

# From the repository, the checkout, a directory for files of the sandbox, a command line and its
# environment to what is run instead.
SetupWrap = Callable[
    [Repository, Checkout, Path, Sequence[str], Mapping[str, str]],
    tuple[Sequence[str], Mapping[str, str]],
]
PERSONA_COPY = "CLAUDE.local.md"
SETUP_SECONDS = 1800.0
TAIL_BYTES = 4000
COPY_BYTES = 1 << 20
REDIRECTING = frozenset(
    f"GIT_{word}"
    for word in (
        *("DIR", "COMMON_DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "NAMESPACE"),
        *("OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "CEILING_DIRECTORIES"),
    )
)


def check_patterns(patterns: tuple[str, ...]) -> None:
    """Globs are relative to the repository and stay in it."""
    for pattern in patterns:
        parts = PurePosixPath(pattern)
        if not pattern or parts.is_absolute() or ".." in parts.parts or "\0" in pattern:
            raise WorktreeError(
                Code.INVALID,
                f"copy pattern {pattern!r} leaves the repository",
                hint="use paths relative to the repository's root, e.g. .env or config/*.local",
            )


def copy_untracked(site: Site, patterns: tuple[str, ...], target: Path) -> None:
    """Bring files along that git does not track and a checkout therefore lacks."""
    root = site.repo.root
    if not patterns or root is None:
        return
    done = git(
        site.repo,
        *("ls-files", "-z", "--others", "--"),
        *(f":(top,glob){pattern.rstrip('/')}" for pattern in patterns),
        *(f":(top,glob){pattern.rstrip('/')}/**" for pattern in patterns),
    )

    @functools.cache
    def in_a_home(directory: Path) -> bool:
        return directory != root and (marker.is_home(directory) or in_a_home(directory.parent))

    for name in filter(None, done.text.split("\0")):
        source, copy = root / name, target / name
        # A trailing slash is another repository (a worktree, a vendored clone): not ours to copy.
        if name.endswith("/") or source.is_relative_to(site.base) or os.path.lexists(copy):
            continue
        if in_a_home(source.parent):
            continue  # credentials, other agents' sessions
        # Where we have a directory, the commit may have a file, or a link that leads outside.
        above = [target / parent for parent in PurePosixPath(name).parents]
        if any(os.path.lexists(p) and (p.is_symlink() or not p.is_dir()) for p in above):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_file():  # sockets and pipes cannot be copied
            _copy_file(root, source, copy)


def _copy_file(root: Path, source: Path, copy: Path) -> None:
    """With its mode and time. By descriptors: an agent that works in that tree may put a link to
    somebody's keys into its path after git has named it."""
    descriptor = open_beneath(root, source, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file, copy.open("xb") as output:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no plain file any more", str(source))
        shutil.copyfileobj(file, output, COPY_BYTES)
        output.flush()
        os.fchmod(output.fileno(), stat.S_IMODE(status.st_mode))
        os.utime(output.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def place_persona(repo: Repository, checkout: Checkout, persona: Path) -> None:
    """Copy the persona into the tree, where git will not see it.

    Never over a tracked file: git would show it modified, and `commit -a` commit it.
    """
    tracked = git(repo, "ls-files", "-z", "--", PERSONA_COPY, at=checkout).out
    if tracked:
        raise WorktreeError(
            Code.DIRTY,
            f"the repository tracks {PERSONA_COPY}: the persona would change it",
            hint="give the persona to the engine instead, or untrack that file",
        )
    # Never through a link that an agent put there.
    (checkout.path / PERSONA_COPY).unlink(missing_ok=True)
    shutil.copyfile(persona, checkout.path / PERSONA_COPY)


def exclude_persona(repo: Repository, _lock: Lock) -> None:
    """Have every worktree of the repository ignore persona copies."""
    exclude.add_lines(repo.common_dir / "info" / "exclude", [f"/{PERSONA_COPY}"])


def check_persona(persona: Path | None) -> None:
    """`ROLE_NOT_FOUND` only if one was asked for."""
    if persona is not None and not persona.is_file():
        raise WorktreeError(
            Code.ROLE_NOT_FOUND,
            f"no persona at {persona}",
            hint="write one, or leave the persona out",
        )


def run_setup(
    site: Site,
    name: str,
    checkout: Checkout,
    command: str,
    wrap: SetupWrap | None,
    variables: Mapping[str, str],
    fds: list[int],
) -> None:
    """Run the set-up command once, in place: environments hold absolute paths.

    In a sandbox it gets no descriptors: it would write to what lies behind them. It dies with us.
    """
    if not command:
        return
    import tempfile  # takes long to load, and most commands run no set-up

    log = setup_log(site, name)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    problem, hint = "", ""
    with log.open("wb") as output, tempfile.TemporaryDirectory(prefix="bullpen-setup-") as scratch:
        try:
            argv: Sequence[str] = ["sh", "-c", command]
            env: Mapping[str, str] = {**setup_environment(), **variables}
            if wrap:
                argv, env = wrap(site.repo, checkout, Path(scratch), argv, env)
            done = proc.run(
                argv,
                cwd=checkout.path,
                env=env,
                timeout=SETUP_SECONDS,
                pass_fds=() if wrap else fds,
                output=output,
            )
        except (BullpenError, ValueError) as error:  # ValueError: a NUL in the command
            problem = str(error)
            hint = getattr(error, "hint", "") or ""
        else:
            problem = f"exit {done.code}" if done.code else ""
    if problem:
        tail = read_tail(log, TAIL_BYTES).decode("utf-8", "replace").strip()
        raise WorktreeError(
            Code.SETUP_FAILED,
            f"setup of {name} failed ({problem}): {command}\n{tail}".rstrip(),
            hint=hint or f"the whole output: {log}",
            details={"output": tail, "log": str(log), "command": command},
        )


def setup_log(site: Site, name: str) -> Path:
    """Where the output of a worktree's set-up is kept."""
    return site.records / f"{name}.setup.log"


def setup_environment() -> dict[str, str]:
    """The caller's, without what would point git or bullpen elsewhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in REDIRECTING and not name.startswith("BULLPEN_")
    }
