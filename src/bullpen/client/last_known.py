"""What the home's files say of its components while no hub answers: the register, and the task
agents that served at a port. Reads only, and asks nobody.
"""

import contextlib
import time
from dataclasses import dataclass

from pydantic import ValidationError

from bullpen import proc
from bullpen.client.processes import read_rows
from bullpen.home.agent_files import claimed_ports
from bullpen.home.paths import KILLED, Home
from bullpen.home.session_file import read_session_file
from bullpen.model.component import GONE_SECONDS, Component
from bullpen.model.state import VIEW, State, View

# All columns: a database that no hub of this version has opened has fewer.
COMPONENTS = "SELECT * FROM components"
LAST_STATES = (
    "SELECT latest.agent, events.data FROM latest JOIN events ON events.id = latest.last"
    " WHERE latest.kind = 'agent.state'"
)


@dataclass(frozen=True)
class LastKnownAgent:
    """A task agent that has not ended, with the port that its file names."""

    name: str
    port: int
    state: State


def list_components(home: Home) -> list[Component]:
    """The register as the last hub left it. Who has died since is gone, too."""
    now = time.time()
    known = [Component(**dict(row)) for row in read_rows(home, COMPONENTS)]
    dated = [
        one
        if one.gone_at is not None or proc.start_time(one.pid) == one.start_time
        else one.model_copy(update={"gone_at": now})
        for one in known
    ]
    return [one for one in dated if one.gone_at is None or one.gone_at > now - GONE_SECONDS]


def list_task_agents(home: Home) -> list[LastKnownAgent]:
    """Those that ran under the last hub."""
    ports = agent_ports(home)
    return [
        LastKnownAgent(name, ports[name], view.state)
        for name, data in read_rows(home, LAST_STATES)
        if name in ports and (view := _find_view(data)) and _is_running(home, name, view)
    ]


def agent_ports(home: Home) -> dict[str, int]:
    """The port that the file of an agent names."""
    return {
        path.stem: port
        for path, port in claimed_ports(home)
        if path.parent == home.agents and 0 < port < 1 << 16
    }


def _find_view(data: str) -> View | None:
    with contextlib.suppress(ValidationError):  # of another version: then nothing is known
        return VIEW.validate_json(data)
    return None


def _is_running(home: Home, name: str, view: View) -> bool:
    session = read_session_file(home, name)
    if view.is_over or not session.takes_tasks or session.run != view.run:
        return False
    try:
        return (home.session(name) / KILLED).read_text() != view.run
    except (OSError, UnicodeDecodeError):
        return True  # it was not killed with its home
