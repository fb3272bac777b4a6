"""A home in which one agent of Claude Code starts a tree of agents of all three engines.

    with made_story(tmp_path) as story:
        amy = story.run("amy", [call("spawn_subtree", task=script(...), branch_name="one")])
        story.kill_hub(); story.wait_events("amy", [("amy.one", "child_finished")])

What each of them does is a script for its model, given to it as its task by who starts it.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.engines.cli import GEMINI_MODEL, Codex
from tests.engines.programs import install, made_program
from tests.engines.script import nested
from tests.engines.team import Agent, Team
from tests.hub.pen import made_pen
from tests.waiting import wait_until
from tests.worktrees.repos import git

SECONDS = 300.0
ALLOWED = ["mcp__bullpen", "Bash"]
CALLED = {
    "claude": "mcp__bullpen__{}",
    "gemini": "mcp_bullpen_{}",
    "codex": "mcp__bullpen/{}",
}

Shape = dict[str, tuple[str, str]]  # name -> kind, parent
Heard = list[tuple[str, str]]  # from, kind


def script(*steps: str) -> str:
    return f"[[{' ; '.join(steps)}]]"


def call(tool: str, engine: str = "claude", **arguments: Any) -> str:
    """One of our tools. Scripts for others may be in its arguments."""
    return f"tool {CALLED[engine].format(tool)} {json.dumps(nested(arguments))}"


def bash(command: str) -> str:
    return f"tool Bash {json.dumps({'command': command})}"


def report(message: str, status: str = "success", engine: str = "claude") -> str:
    return call("notify_parent", engine, status=status, message=message)


def wait(first: bool = False) -> str:
    """For the next event; the one before it is acknowledged."""
    return call("wait_for_event", **({} if first else {"after": "$id"}))


def waits(count: int) -> list[str]:
    return [wait(first=number == 0) for number in range(count)]


def worker(name: str, *steps: str, role: str = "worker") -> dict[str, str]:
    return {"name": name, "task": script(*steps), "role": role}


class Story:
    """One home, one repository, three models."""

    def __init__(self, team: Team, models: Sequence[Any]) -> None:
        self.team = team
        self.pen = team.pen
        self.repo: Path = team.claude.work
        self.models = models
        self.kills = 0
        for model in models:
            model.held_seconds = 1200.0
        git(self.repo, "init", "-q", "-b", "main")
        for key, value in (("name", "Pat"), ("email", "pat@example.com")):
            git(self.repo, "config", f"user.{key}", value)
        (self.repo / "shared.txt").write_text("first\n")
        git(self.repo, "add", "shared.txt")
        git(self.repo, "commit", "-q", "-m", "first")
        allowed = {"permissions": {"allow": ALLOWED}}
        team.role("worker", **allowed)
        team.role("lead", **allowed, worktree={"enabled": True, "branch_from": "main"})
        asking = {"permissions": {"allow": ["mcp__bullpen"]}}
        team.role("asking", **asking)
        self.pen.role("gemini", **asking, agent_type="gemini", model=GEMINI_MODEL)
        self.pen.role("codex", **asking, agent_type="codex")

    def run(self, name: str, *steps: str) -> Agent:
        return self.team.run("lead", name, prompt=script(*steps))

    def agent(self, name: str) -> Agent:
        return Agent(self.team, name)

    # ── the models ──

    def wait_held(self, *names: str) -> None:
        def are_held() -> bool:
            return all(any(model.holds(name) for model in self.models) for name in names)

        try:
            wait_until(are_held, SECONDS)
        except AssertionError as error:
            raise AssertionError(f"not all of {names} are held\n{self.screens()}") from error

    def release(self, name: str) -> None:
        for model in self.models:
            model.release(name)

    def results(self, agent: str) -> list[str]:
        """What tools said to its model, in that order. Claude Code only."""
        session = self.agent(agent).conversation
        turns = [turn for turn in self.models[0].turns if turn.session == session]
        entries = self.models[0].read(turns[-1].body) if turns else []
        return [entry.text for entry in entries if entry.who == "result"]

    def heard(self, agent: str) -> Heard:
        """What its model was told by `wait_for_event`."""
        found = []
        for text in self.results(agent):
            with contextlib.suppress(ValueError):
                said = json.loads(text)
                if isinstance(said, dict) and {"from", "kind"} <= said.keys():
                    found.append((said["from"], said["kind"]))
        return found

    # ── the hub ──

    def kill_hub(self) -> None:
        """With -9; the next one shows the same tree."""
        before = self.shape()
        self.pen.kill_hub()
        self.pen.start()
        assert self.shape() == before
        self.kills += 1

    def shape(self) -> Shape:
        found: Shape = {}

        def add(nodes: list[dict[str, Any]], parent: str) -> None:
            for node in nodes:
                found[node["name"]] = (node["kind"], parent)
                add(node["children"], node["name"])

        add(self.pen.client().get("tree")["agents"], "root")
        return found

    def events(self, name: str) -> Heard:
        """All that ever reached its queue."""
        found = self.pen.client().get("agents", name, "queue")["events"]
        return [(event["from"], event["kind"]) for event in found]

    def wait_events(self, name: str, expected: Heard) -> None:
        try:
            wait_until(lambda: len(self.events(name)) >= len(expected), SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{name} heard {self.events(name)}\n{self.screens()}") from error
        heard = self.events(name)
        assert heard == expected, f"{name} heard {heard}\n{self.screens()}"

    def landings(self) -> list[tuple[str, str]]:
        found = self.pen.client().get("landings", all=1)["landings"]
        return [(each["name"], each["status"]["state"]) for each in found]

    def screens(self) -> str:
        """For who reads why it failed."""
        found = []
        for name, agent in self.pen.agents().items():
            screen = self.agent(name).screen() if agent["running"] else ""
            found.append(f"── {name}: {agent['words']} {self.results(name)}\n{screen}")
        return "\n".join(found)


@contextlib.contextmanager
def made_story(tmp_path: Path) -> Iterator[Story]:
    with contextlib.ExitStack() as stack:
        programs = {}
        for engine, kind in (("gemini", "gemini"), ("codex", "codex"), ("claude", "real")):
            root = tmp_path / engine
            root.mkdir()
            programs[engine] = stack.enter_context(made_program(root, kind))
        _quiet_codex(programs["codex"])
        pen = stack.enter_context(made_pen())
        for engine in ("gemini", "codex"):
            install(pen, engine, programs[engine])
        team = Team(pen, programs["claude"])  # and installs Claude Code
        yield Story(team, [programs[name].model for name in ("claude", "gemini", "codex")])


def _quiet_codex(codex: Codex) -> None:
    """The proxy that keeps it from the Internet is not for the others."""
    wrapper = codex.root / "codex"
    proxy = codex.env.pop("HTTPS_PROXY")
    wrapper.write_text(f'#!/bin/sh\nHTTPS_PROXY={proxy} exec {codex.program} "$@"\n')
    wrapper.chmod(0o755)
    codex.program = wrapper
