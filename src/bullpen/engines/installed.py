"""Which directories of an installation a sandbox shows. Called by `programs` and by the hub's
`sandbox/policy`. Reads links, writes nothing.

Below the person's home directory logins lie beside programs (`~/.fly/bin`, `~/.fly/config.yml`):
there only what programs need is named, never what holds it. Elsewhere it is the whole root.
"""

import os
from collections.abc import Iterator
from pathlib import Path

BIN = ("bin", "sbin")
# Beside `bin`. Not `etc`: npm and conda keep tokens there.
BESIDE_BIN = ("lib", "lib64", "libexec", "share", "include", "pyvenv.cfg")
# Directories on PATH in the person's home, and where the rest of those programs is.
INSTALLED = {
    ".local/bin": (
        *(".local/bin", ".local/lib", ".local/share/claude", ".local/share/pipx"),
        *(".local/share/uv/tools", ".local/share/uv/python", ".local/share/mise"),
        *(".local/share/pnpm", ".local/share/fnm"),
    ),
    ".cargo/bin": (".cargo/bin", ".cargo/env", ".rustup"),
    ".pyenv/bin": (".pyenv",),
    ".pyenv/shims": (".pyenv",),
    ".rbenv/shims": (".rbenv",),
    ".asdf/shims": (".asdf",),
}


def entry_roots(entry: Path, person: Path) -> Iterator[Path]:
    """What programs in that directory of PATH need; it may not all exist."""
    if not entry.is_absolute():
        return
    names, homes = by_both_names(entry), by_both_names(person)
    listed = next((paths for name in names for home in homes if (paths := _list(name, home))), ())
    wide = {each for home in homes for each in (home, *home.parents, home / ".local")}
    if listed:
        yield from (*names, *(person / path for path in listed))
    elif entry.name not in BIN or any(name.parent in wide for name in names):
        yield entry
    elif lies_in(entry, person):
        yield from (entry, *(entry.parent / name for name in BESIDE_BIN))
    else:
        yield entry.parent


def lies_in(path: Path, directory: Path) -> bool:
    """By its name, or by where links lead."""
    outer = by_both_names(directory)
    return any(name.is_relative_to(each) for name in by_both_names(path) for each in outer)


def by_both_names(path: Path) -> tuple[Path, ...]:
    """As it is written, and without links."""
    return tuple(dict.fromkeys((Path(os.path.normpath(path)), Path(os.path.realpath(path)))))


def _list(entry: Path, home: Path) -> tuple[str, ...]:
    return INSTALLED.get(str(entry.relative_to(home)), ()) if entry.is_relative_to(home) else ()
