"""Where an agent's program is, and what of the disk it needs to run. Reads, writes nothing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from bullpen.errors import BullpenError, Kind

# Visible in every sandbox.
OF_THE_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")))
MOST_PROGRAMS = 8  # links and interpreters, each leading to the next


def find_program(env: Mapping[str, str], variable: str, name: str, package: str) -> str:
    """The program: what the variable names, else the first on the agent's own PATH."""
    wanted = env.get(variable) or os.environ.get(variable) or name
    found = shutil.which(wanted, path=env.get("PATH", os.defpath))
    if found is None:
        raise BullpenError(
            f"{wanted} is not installed" if wanted == name else f"no program {wanted}",
            hint=f"npm install -g {package} · or set {variable}",
            kind=Kind.UNAVAILABLE,
        )
    return str(Path(found).absolute())


def install_roots(argv0: str, env: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories (or files) that a program is installed in, so that it runs where only they
    can be seen: where each link on the way lies, where the last one leads to, and the same for the
    interpreter that a script names. Never a home directory as a whole, or what is above one."""
    person = Path(env.get("HOME") or "/nonexistent")
    wide = {Path("/"), person, person.resolve(), *person.parents, *person.resolve().parents}
    wide |= {person / ".local", person.resolve() / ".local"}
    found: list[Path] = []
    names = [argv0]
    for _ in range(MOST_PROGRAMS):
        if not names:
            break
        path = shutil.which(names.pop(0), path=env.get("PATH", os.defpath))
        if path is None:
            continue
        place = Path(path).absolute()
        for _ in range(MOST_PROGRAMS):
            found.append(_root_of(place, wide))
            if not place.is_symlink():
                break
            place = _next(place)
        names += _interpreter(place)
    kept = [path for path in found if not any(path.is_relative_to(s) for s in OF_THE_SYSTEM)]
    return tuple(
        path
        for path in dict.fromkeys(kept)
        if not any(path != other and path.is_relative_to(other) for other in kept)
    )


def _next(link: Path) -> Path:
    """Where it leads to, by the names of the directories as they are on the way: where these are
    themselves links, it leads there also where only what was found is to be seen."""
    by_name = Path(os.path.normpath(link.parent / link.readlink()))
    if os.path.lexists(by_name):
        return by_name
    return Path(os.path.normpath(link.parent.resolve() / link.readlink()))


def _root_of(file: Path, wide: set[Path]) -> Path:
    """What of an installation that file belongs to."""
    parts = file.parts
    if "node_modules" in parts:  # packages lie beside those that they need
        return Path(*parts[: parts.index("node_modules") + 1])
    directory = file.parent
    if directory.name == "bin" and not file.is_symlink() and directory.parent not in wide:
        return directory.parent
    return file if directory in wide else directory


def _interpreter(file: Path) -> list[str]:
    """The program that a script names in its first line."""
    try:
        with file.open("rb") as text:
            first = text.readline(512)
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return [words[0], *rest[:1]]
    return words[:1]
