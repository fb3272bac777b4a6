"""Makes a home: the directories, the starter files, the marker. Called by `bullpen init`.

The marker comes last and every step before it can be repeated, so the next run completes what a
killed one began. Never overwrites a file.
"""

import errno
import os
from pathlib import Path

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.files import create_once
from bullpen.home import accepted, marker
from bullpen.home.paths import (
    DIRECTORIES,
    Home,
    make_directories,
    person_home,
    refuse_unfit_filesystem,
)
from bullpen.worktrees import exclude

STARTER = Path(__file__).parent / "starter"

# What must not be committed when the home is the root of a repository itself; its roles,
# templates and config.yaml may be, and its other directories are often the project's own.
RUNTIME = (
    "/.bullpen-*.txt",
    "/.env",
    "/hub.json",
    "/state.db*",
    "/trusted.json",
    "/claude-config/",
    "/credentials/",
    "/logs/",
    "/sessions/",
    "/sockets/",
    "/web/",
    "/worktrees/",
)


def create_home(target: Path) -> Home:
    """Make `target` a home, or say why not."""
    root = target.resolve()
    _refuse_existing(root)
    accepted.refuse_agents_directory(root)
    refuse_unfit_filesystem(root)
    try:
        _refuse_clash(root)
        _fill(root)
        accepted.note(root, os.environ, person_home())
        made = marker.create(root)
    except OSError as error:
        readonly = isinstance(error, PermissionError) or error.errno == errno.EROFS
        raise BullpenError(
            f"cannot make the home {root}: {error.strerror}: {error.filename}",
            kind=Kind.DENIED if readonly else Kind.COMMAND_FAILED,
        ) from error
    if not made:  # another init was faster
        raise _exists(root)
    return Home(root)


def _refuse_existing(root: Path) -> None:
    # DIR and DIR/.bullpen hide each other: only one of them would ever be found.
    hiding = root.parent if root.name == ".bullpen" else root / ".bullpen"
    for home in (root, hiding):
        if marker.is_home(home):
            raise _exists(home)


def _exists(home: Path) -> BullpenError:
    try:
        accepted.check(home, os.environ, person_home())
        hint = "bullpen doctor"
    except BullpenError as error:
        hint = error.hint
    return BullpenError(f"there is a home already: {home}", hint=hint, kind=Kind.CONFLICT)


def _refuse_clash(root: Path) -> None:
    starter = [root / path.relative_to(STARTER) for path in STARTER.rglob("*") if path.is_dir()]
    for path in (root, *(root / name for name in DIRECTORIES), *starter):
        if (path.exists() or path.is_symlink()) and not path.is_dir():
            raise BullpenError(
                f"{path} is in the way: it is not a directory",
                hint="choose another directory: bullpen init DIR",
                kind=Kind.CONFLICT,
            )


def _fill(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(STARTER.rglob("*")):
        copy = root / path.relative_to(STARTER)
        if path.is_dir():
            copy.mkdir(mode=0o700, exist_ok=True)
        else:
            create_once(copy, path.read_bytes())
    marker.home_id(root)
    _exclude_from_git(root)
    make_directories(root)


def _exclude_from_git(root: Path) -> None:
    inside, _, prefix = _rev_parse(root, "--is-inside-work-tree", "--show-prefix").partition("\n")
    if inside != "true":
        return
    # Git answers for linked worktrees and submodules, whose .git is a file.
    file = Path(_rev_parse(root, "--path-format=absolute", "--git-path", "info/exclude"))
    exclude.add_lines(file, exclude_patterns(prefix))


def exclude_patterns(prefix: str) -> tuple[str, ...]:
    """The lines that hide a home; `prefix` is its path in the repository, ending in `/`."""
    return (exclude.pattern_of(prefix),) if prefix else RUNTIME


def _rev_parse(root: Path, *options: str) -> str:
    """Git's answer, empty where there is no repository or no git."""
    if proc.find_program("git") is None:
        return ""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = proc.run(["git", "rev-parse", *options], cwd=root, env=env, timeout=20)
    return done.text.removesuffix("\n") if done.code == 0 else ""
