"""Agents as the hub keeps them, made without a hub."""

from bullpen.hub.agents.registry import LiveAgent
from bullpen.model.agent import Agent
from bullpen.model.state import Evidence, State, View

NOW = 1_800_000_000.0


def live(
    name: str,
    state: State,
    pod: str = "",
    role: str = "",
    branch: str = "",
    model: str = "",
    ago: float = 0.0,
) -> LiveAgent:
    agent = Agent(
        name=name,
        run="0" * 32,
        role=role,
        pod=pod,
        engine="command",
        model=model,
        birth_branch=branch,
        cwd="/",
        command=("x",),
        created="2026-01-01T00:00:00Z",
    )
    note = Evidence(source="process", says="", at=NOW)
    view = View(run=agent.run, state=state, since=NOW - ago, decided_by="process", evidence=(note,))
    return LiveAgent(agent, view)
