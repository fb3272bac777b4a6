"""What a repository brings for agent programs: texts, which every agent gets, and code, which is
used only if somebody trusts it. Reads the disk, writes nothing.

Used by the engines, by the hub's `agents/program` and by `bullpen run`. An agent may have written
what is read here: no link leads out of the repository, and nothing is read without end.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bullpen.files import read_plain

TEXT_BYTES = 1 << 18


def find_top(directory: Path) -> Path:
    """Of the checkout that holds the directory; itself if there is none."""
    return next((d for d in (directory, *directory.parents) if (d / ".git").exists()), directory)


def list_directories(top: Path, cwd: Path) -> tuple[Path, ...]:
    """From the top of a checkout down to the directory. Pure."""
    if not cwd.is_relative_to(top):
        return (cwd,)
    return tuple(reversed([d for d in (cwd, *cwd.parents) if d.is_relative_to(top)]))


def find_code(names: Iterable[str], top: Path, cwd: Path) -> tuple[str, ...]:
    """Which of these are there, by their paths below the top."""
    paths = [d / name for name in names for d in list_directories(top, cwd)]
    base = top if cwd.is_relative_to(top) else cwd
    return tuple(str(path.relative_to(base)) for path in paths if _says_something(path))


def read_texts(names: Iterable[str], top: Path, cwd: Path) -> str:
    """What the first of these files in each directory says, the outermost first."""
    wanted = tuple(names)
    texts = (next(_texts(d, wanted, top), "") for d in list_directories(top, cwd))
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _says_something(path: Path) -> bool:
    """An empty directory does not: Codex's own sandbox makes such for as long as a command runs."""
    try:
        return any(path.iterdir())
    except FileNotFoundError:
        return path.is_symlink()
    except OSError:  # a file; or who cannot look cannot tell
        return True


def _texts(directory: Path, names: Iterable[str], top: Path) -> Iterator[str]:
    for name in names:
        try:
            path = (directory / name).resolve(strict=True)  # AGENTS.md is often a link to CLAUDE.md
            if path.is_relative_to(top.resolve()):
                yield read_plain(path, TEXT_BYTES).decode("utf-8", "replace")
        except (OSError, RuntimeError):  # none; or a loop of links
            continue
