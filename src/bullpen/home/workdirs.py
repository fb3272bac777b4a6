"""Where tasks may work: the directories that a home allows.

Used by the hub, which refuses others (`hub/tasks/workspaces`), and by `bullpen task`, which asks
before it names one (`cli/tasks/where`). Looks at the disk, changes nothing.
"""

from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.home.settings import Settings


def allowed_roots(home: Home, settings: Settings, person: Path) -> list[Path]:
    """Below which directories tasks may work: the home's surroundings, what is cloned into it, and
    what the settings name."""
    named = (
        Path(str(person) + text[1:] if text.startswith("~") else text) for text in settings.workdirs
    )
    return [home.root.parent, home.projects, *named]


def named_directory(person: Path, text: str) -> Path:
    """As it is named; no link is followed. Pure."""
    return person / text[2:] if text.startswith("~/") else Path(text)


def checked_directory(home: Home, settings: Settings, person: Path, text: str) -> Path:
    """Absolute, there, under an allowed root wherever its links lead, and nothing of the home's
    own."""
    path = named_directory(person, text)
    if not path.is_absolute() or "\0" in text:
        raise BullpenError(f"workdir {text[:200]!r} is no absolute path")
    try:
        directory = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise BullpenError(f"no directory {text[:200]!r}") from error
    if not directory.is_dir():
        raise BullpenError(f"{text[:200]!r} is no directory")
    roots = [root.resolve() for root in allowed_roots(home, settings, person)]
    if not any(directory.is_relative_to(root) for root in roots):
        raise BullpenError(
            f"{directory} is under no directory where tasks may work",
            hint=f"add it to `workdirs` in {home.config_file}",
            kind=Kind.DENIED,
        )
    own = home.root.resolve()
    hidden = _find_hidden(directory, person.resolve())
    if directory.is_relative_to(own):
        free = (home.projects.resolve(), home.worktrees.resolve())
        if not any(directory.is_relative_to(each) and directory != each for each in free):
            raise BullpenError(f"{directory} belongs to Bullpen itself", kind=Kind.DENIED)
    elif hidden and not any(
        directory.is_relative_to(root) and root.is_relative_to(hidden) for root in roots
    ):
        raise BullpenError(
            f"{directory} is under {hidden}, where programs keep what is theirs or secret",
            hint=f"add it to `workdirs` in {home.config_file}",
            kind=Kind.DENIED,
        )
    return directory


def _find_hidden(directory: Path, person: Path) -> Path | None:
    """The hidden directory of the person's home directory that it is, or lies in: `~/.ssh`. Pure.
    With a home in `~` all of `~` is around the home."""
    if not directory.is_relative_to(person) or directory == person:
        return None
    first = directory.relative_to(person).parts[0]
    return person / first if first.startswith(".") else None
