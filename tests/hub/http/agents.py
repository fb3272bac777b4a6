"""Agents as a client of the API knows them: their tokens, their sockets, their start."""

import json
from pathlib import Path
from typing import Any

from bullpen.home.paths import Home
from tests.hub.http.http import Where, ask
from tests.hub.pen import Pen


def token_of(home: Home, agent: str) -> str:
    """What the agent finds in its environment."""
    env = json.loads((home.private(agent) / "env").read_text())["env"]
    return str(env["BULLPEN_TOKEN"])


def agent_socket_of(home: Home, agent: str) -> Path:
    return home.session(agent) / "api" / "hub.sock"


def start_agent(where: Where, pen: Pen, name: str, token: str = "", **fields: Any) -> None:
    answer = ask(
        where, "POST", "/agents", body=pen.launch("/bin/cat", name=name, **fields), token=token
    )
    assert answer.status == 201, answer
