"""Where an agent's program is, and what of the disk it needs to run. Reads, writes nothing."""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from bullpen import proc
from bullpen.engines.installed import by_both_names, entry_roots, lies_in
from bullpen.engines.versions import RequiredProgram
from bullpen.errors import BullpenError, Kind
from bullpen.files import find_planted

log = logging.getLogger("bullpen.engines")

# Visible in every sandbox.
OF_THE_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")))
MOST_LINKED = 32  # each is one more mount
MOST_PROGRAMS = 8  # links and interpreters, each leading to the next


def find_program(env: Mapping[str, str], needed: RequiredProgram) -> str:
    """The program: what its variable names, else the first on the agent's own PATH."""
    variable, name = needed.variable, needed.program
    wanted = env.get(variable) or os.environ.get(variable) or name
    path = proc.find_program(wanted, env)
    if path is None:
        raise BullpenError(
            f"{wanted} is not installed" if wanted == name else f"no program {wanted}",
            hint=f"{needed.install} · or set {variable}",
            kind=Kind.UNAVAILABLE,
        )
    return path


def install_roots(argv0: str, env: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories (or files) that a program is installed in, so that it runs where only they
    can be seen: where each link on the way lies, where the last one leads to, and the same for the
    interpreter that a script names. Never a home directory as a whole, or what is above one."""
    person = Path(env.get("HOME") or "/nonexistent")
    roots: list[Path] = []
    names = [argv0]
    for _ in range(MOST_PROGRAMS):
        if not names:
            break
        path = proc.find_program(names.pop(0), env)
        if path is None:
            continue
        named = file = Path(path)
        for _ in range(MOST_PROGRAMS):
            roots += _roots_of(file, person, is_named=file == named)
            if not file.is_symlink():
                break
            file = _next(file)
        names += _interpreter(file)
    own_roots = [path for path in roots if not any(path.is_relative_to(s) for s in OF_THE_SYSTEM)]
    return tuple(
        path
        for path in dict.fromkeys(own_roots)
        if not any(path != other and path.is_relative_to(other) for other in own_roots)
    )


def path_roots(search_path: str, person: Path, writable: Collection[Path]) -> Iterator[Path]:
    """What everything on PATH needs; also the programs that links lead to in those of its
    directories that lie in the person's home. `writable`: where an agent can write."""
    entries = [entry for entry in map(Path, search_path.split(os.pathsep)) if entry.is_absolute()]
    shown = [root for entry in entries for root in entry_roots(entry, person)]
    yield from shown
    env = {"PATH": search_path, "HOME": str(person)}
    # What an agent could write there must not choose what its next start shows it.
    written = [path.resolve() for path in writable]
    links = (link for each in entries if lies_in(each, person) for link in _links_in(each))
    own_links = (link for link in links if not find_planted(link, written))
    roots = dict.fromkeys(root for link in own_links for root in install_roots(str(link), env))
    hidden = [
        root
        for root in roots
        if lies_in(root, person) and not any(root.is_relative_to(each) for each in shown)
    ]
    if len(hidden) > MOST_LINKED:
        log.warning(
            "too many programs on PATH are links: name their directories in read_only_paths",
            extra={"left_out": list(map(str, hidden[MOST_LINKED:]))},
        )
    yield from hidden[:MOST_LINKED]


def _links_in(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_symlink())
    except OSError:
        return []  # an entry of PATH may be anything


def _next(link: Path) -> Path:
    """Where it leads to, by the names of the directories as they are on the way: where these are
    themselves links, it leads there also where only what was found is to be seen."""
    by_name = Path(os.path.normpath(link.parent / link.readlink()))
    if os.path.lexists(by_name):
        return by_name
    return Path(os.path.normpath(link.parent.resolve() / link.readlink()))


def _roots_of(file: Path, person: Path, *, is_named: bool) -> list[Path]:
    """What of an installation that file belongs to. Not named: a link leads to it."""
    parts, directory = file.parts, file.parent
    if "node_modules" in parts:  # packages lie beside those that they need
        return [Path(*parts[: parts.index("node_modules") + 1])]
    if directory.name == "bin" and not file.is_symlink():
        return [path for path in entry_roots(directory, person) if path.exists()]
    wide = {each for home in by_both_names(person) for each in (home, *home.parents)}
    is_alone = not is_named and directory.name != "bin" and lies_in(directory, person)
    return [file if is_alone or directory in wide else directory]


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
