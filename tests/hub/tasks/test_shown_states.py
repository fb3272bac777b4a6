"""The true state of a task agent, wherever states are shown: starting, an error with its reason,
draining; also by the next hub, and for sessions of before."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.agents import sessions
from bullpen.hub.render.agents import list_text
from bullpen.hub.store.store import Store
from bullpen.model.agent import Agent
from bullpen.model.event import Draft
from bullpen.model.launch import Launch
from bullpen.model.state import Draining, Errored, Idle
from bullpen.model.task import TaskRequest
from tests.hub.http.http import ask
from tests.hub.http.inside import Inside, made_inside
from tests.hub.parts import Parts, in_parts, until
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until

NOWHERE = "/nonexistent/claude"
COMMAND = {"agent_type": "command", "command": ["/bin/cat"]}


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        yield made


def shown(hub: Inside, target: str) -> Any:
    answer = ask(hub.socket, "GET", target)
    assert answer.status == 200, answer.body
    is_json = answer.headers["content-type"].startswith("application/json")
    return answer.json if is_json else answer.body.decode()


def everywhere(hub: Inside, name: str) -> dict[str, str]:
    """The state of that agent by each command and route that shows it."""
    (listed,) = [one for one in shown(hub, "/agents")["agents"] if one["name"] == name]
    return {
        "GET /agents": listed["words"],
        "GET /agents/NAME": shown(hub, f"/agents/{name}")["words"],
        "GET explain": shown(hub, f"/agents/{name}/explain")["words"],
        "list": shown(hub, "/agents?text=true"),
        "status": shown(hub, "/status?text=true"),
        "status NAME": shown(hub, f"/agents/{name}?text=true"),
        "explain": shown(hub, f"/agents/{name}/explain?text=true"),
    }


def start(hub: Inside, pen: Pen, name: str, claude: str = "") -> None:
    """With that program as its engine; without one its role names a program that is there."""
    engine = {"agent_type": "claude"} if claude else COMMAND
    role = {"name": name, "sandbox": {"enabled": False}, **engine}
    (pen.home.roles / f"{name}.yaml").write_text(json.dumps(role))
    env = {**pen.env, "BULLPEN_CLAUDE_BIN": claude, "ANTHROPIC_API_KEY": "k"}
    body = {"kind": "headless", "name": name, "role": name, "cwd": "/", "env": env}
    answer = ask(hub.socket, "POST", "/agents", body=body)
    assert answer.status == 201, answer.body


def phase(hub: Inside, name: str) -> str:
    return str(shown(hub, f"/agents/{name}/status")["state"])


def stop(hub: Inside, name: str) -> None:
    assert ask(hub.socket, "DELETE", f"/agents/{name}?grace=0").status == 200


def test_c1_a_missing_engine_is_an_error_wherever_states_are_shown(pen: Pen) -> None:
    with made_inside(pen) as hub:
        start(hub, pen, "amy", NOWHERE)
        wait_until(lambda: phase(hub, "amy") == "error")
        for where, text in everywhere(hub, "amy").items():
            assert "error (" in text, where
            assert NOWHERE in text, where
            assert "idle" not in text, where
    with made_inside(pen) as hub:  # the next hub looks again, and finds the same
        wait_until(lambda: phase(hub, "amy") == "error")
        for where, text in everywhere(hub, "amy").items():
            assert NOWHERE in text, where
        stop(hub, "amy")
        assert "exited (0)" in everywhere(hub, "amy")["list"]


def test_c1_an_agent_that_takes_tasks_is_idle(pen: Pen) -> None:
    with made_inside(pen) as hub:
        start(hub, pen, "amy")
        wait_until(lambda: phase(hub, "amy") == "idle")
        for where, text in everywhere(hub, "amy").items():
            assert "idle" in text, where
        evidence = shown(hub, "/agents/amy/explain")["evidence"]
        assert [each["says"] for each in evidence] == ["waits for tasks"]
        stop(hub, "amy")


def test_c1_an_agent_that_still_looks_for_its_engine_is_starting(pen: Pen, tmp_path: Path) -> None:
    gate, program = tmp_path / "gate", tmp_path / "claude"
    program.write_text(f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.02; done\necho 9.9.9\n")
    program.chmod(0o755)
    with made_inside(pen) as hub:
        with opened(gate):
            start(hub, pen, "amy", str(program))
            for where, text in everywhere(hub, "amy").items():
                assert "starting" in text, where
        wait_until(lambda: phase(hub, "amy") == "idle")
        assert everywhere(hub, "amy")["GET /agents"] == "idle"
        stop(hub, "amy")


@contextmanager
def opened(gate: Path) -> Iterator[None]:
    """Whatever happens, the gate is open in the end."""
    try:
        yield
    finally:
        gate.touch()


def test_c2_an_agent_that_waits_for_its_last_task_is_draining() -> None:
    async def story(parts: Parts) -> None:
        amy = await parts.task_agent("amy", "/bin/sleep", "1000")
        task = await parts.tasks.submit("amy", TaskRequest(prompt="x"))
        await until(lambda: amy.view.state.state == "working")
        await parts.task_agents.shut_down("amy", 60, force=True)
        assert amy.view.state == Draining()
        assert "draining" in list_text([amy], {}, colour=False, now=time.time())
        assert parts.events_now("agent.state")[-1]["state"] == {"state": "draining"}
        with pytest.raises(BullpenError, match="leaves, and has not left yet"):
            await parts.hub.launcher.launch(launch("amy"))
        await parts.tasks.cancel(task.id)
        await amy.over.wait()

    in_parts(story, factory=True)


def launch(name: str) -> Launch:
    return Launch(kind="headless", name=name, role=name, cwd="/")


@pytest.mark.parametrize("last", ["recorded", "unknown"])
def test_b2_a_session_of_before_loads(pen: Pen, last: str) -> None:
    """With the command that task agents once had, and a state without a stage."""
    role = {"name": "amy", "sandbox": {"enabled": False}, **COMMAND}
    (pen.home.roles / "amy.yaml").write_text(json.dumps(role))
    fields = {"kind": "headless", "role": "amy", "cwd": "/", "created": "2026-01-01T00:00:00"}
    agent = Agent(name="amy", run="0" * 32, command=("-",), **fields)
    sessions.create(pen.home, agent, sessions.LaunchEnv(pen.env))
    if last == "recorded":
        record_old_state(pen, agent)
    with made_inside(pen) as hub:
        wait_until(lambda: phase(hub, "amy") == "idle")
        assert everywhere(hub, "amy")["GET /agents"] == "idle"
        lines = everywhere(hub, "amy")["status NAME"].splitlines()
        assert not [line for line in lines if line.startswith("command")]
        task = ask(hub.socket, "POST", "/agents/amy/task?wait_seconds=60", body={"prompt": "hi"})
        assert (task.status, task.json["state"]) == (200, "completed")
        stop(hub, "amy")


def record_old_state(pen: Pen, agent: Agent) -> None:
    evidence = {"source": "hub", "says": "waits for tasks", "at": 2.0}
    view = {"run": agent.run, "state": {"state": "idle"}, "since": 2.0, "decided_by": "hub"}
    told = {"told": {"state": "idle"}, "told_at": 2.0, "evidence": [evidence]}
    store = Store.open(pen.root / "state.db")
    try:
        draft = Draft(2.0, "agent.state", "amy", {**view, **told})
        asyncio.run(store.append(draft))
    finally:
        store.close()


def test_c3_the_error_of_a_task_agent_ends_with_a_new_start() -> None:
    async def story(parts: Parts) -> None:
        parts.role("amy", "/bin/cat", agent_type="claude", command=None)
        asked = launch("amy").model_copy(
            update={"env": {"BULLPEN_CLAUDE_BIN": NOWHERE, "ANTHROPIC_API_KEY": "k"}}
        )
        amy = await parts.hub.launcher.launch(asked)
        await until(lambda: isinstance(amy.view.state, Errored))
        parts.role("amy", "/bin/cat")
        again = await parts.hub.launcher.restart("amy", 0)
        await until(lambda: again.view.state == Idle())
        assert again.view.is_ready
        assert not amy.view.is_ready

    in_parts(story)
