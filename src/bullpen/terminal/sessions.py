"""Finds the session directory of an agent, running or not, by its name."""

from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.suggest import nearest


def known(home: Home) -> list[str]:
    """Names of all agents that have left something, sorted."""
    if not home.sessions.is_dir():
        return []
    return sorted(
        path.name
        for path in home.sessions.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def find_session(home: Home, name: str) -> Path:
    """Its directory; BullpenError with the near names when there is none."""
    names = known(home)
    if name in names:
        return home.session(name)
    near = nearest(name, names)
    more = f" · did you mean {near}?" if near else _list(names)
    raise BullpenError(f"no agent called {name}{more}", kind=Kind.NOT_FOUND)


def _list(names: list[str]) -> str:
    if not names:
        return " · there is none yet"
    return f" · known: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
