"""Everything of a home that has a file and can be started: agents that take tasks, the view,
directors. In that order they are started, and in the other stopped.

Called by `up` and `down`. Each is started and stopped as its own command does it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bullpen.cli import directors
from bullpen.cli.connect import connect
from bullpen.cli.elsewhere import name_here
from bullpen.cli.tasks import agents as task_agents
from bullpen.cli.view import start_view, stop_view
from bullpen.directors import config as director_configs
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import list_agent_files
from bullpen.home.paths import Home
from bullpen.home.yamlfile import read
from bullpen.suggest import did_you_mean

DRAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Configured:
    """One of them. `start` and `stop` say whether they had anything to do. `autostart` is true as
    well where the file does not say it in a form that can be read: its start says why."""

    kind: str
    name: str
    autostart: bool
    start: Callable[[], bool]
    stop: Callable[[], bool]


def list_configured(home: Home) -> list[Configured]:
    """All, right or wrong: what is wrong with a file its start says."""
    return [
        *(_agent(home, name) for name in list_agent_files(home)),
        *_view(home),
        *(_director(home, name) for name in director_configs.list_directors(home)),
    ]


def pick(everything: Sequence[Configured], names: Sequence[str]) -> list[Configured]:
    """Those that are named, in the order of all."""
    known = [one.name for one in everything]
    names = [name_here(name) for name in names]
    for name in names:
        if name not in known:
            raise BullpenError(
                f"nothing is configured as {name}{did_you_mean(name, known)}",
                hint="files are in agents/ and directors/ in the home; web is the view",
                kind=Kind.NOT_FOUND,
            )
    return [one for one in everything if one.name in names]


def _agent(home: Home, name: str) -> Configured:
    def is_running() -> bool:
        agent = task_agents.find_agent(connect(), name)
        return agent is not None and agent.running

    def start() -> bool:
        was_running = is_running()
        if not was_running:
            task_agents.start(connect(), name, None)
        return not was_running

    def stop() -> bool:
        if not is_running():
            return False
        task_agents.tell_to_leave(connect(), name, timeout_seconds=DRAIN_SECONDS, force=None)
        return True

    return Configured("agent", name, _says_autostart(home.agents / f"{name}.yaml"), start, stop)


def _director(home: Home, name: str) -> Configured:
    return Configured(
        "director",
        name,
        _says_autostart(home.directors / f"{name}.yaml"),
        lambda: directors.start_director(home, name) is not None,
        lambda: directors.stop_director(home, name),
    )


def _view(home: Home) -> list[Configured]:
    file = home.root / "web" / "config.yaml"
    if not file.exists():
        return []
    autostart = _says_autostart(file)
    return [Configured("view", "web", autostart, lambda: start_view(home), lambda: stop_view(home))]


def _says_autostart(file: Path) -> bool:
    data = read(file).data
    return data.get("autostart", False) is not False if isinstance(data, dict) else True
