"""Asks a model whether a tool call may run. It never decides by default: no answer, a late one or
an odd one means that the person is asked.

The program runs without tools, settings, hooks, memory files or servers, and not in a directory
that an agent could write to. What it is asked and what its answer means is `model/review.py`.
"""

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bullpen import proc
from bullpen.engines.claude import PACKAGE, PROGRAM
from bullpen.engines.programs import find_program
from bullpen.errors import BullpenError
from bullpen.files import write_atomically
from bullpen.hub import sessions
from bullpen.hub.threads import in_loose_thread
from bullpen.model.agent import Agent
from bullpen.model.approval import Request
from bullpen.model.review import (
    SCHEMA,
    Question,
    Verdict,
    make_question,
    not_said,
    read_verdict,
    system_prompt,
)
from bullpen.model.role import Reviewer as Instructed
from bullpen.paths import Home

SECONDS = 45.0
REUSED_SECONDS = 60.0
AT_ONCE = 4
FILE = "permission-reviewer.md"
NOWHERE = Path("/")
# Of the agent's environment: who it is to us, and where it reports its usage.
NOT_ITS_OWN = ("BULLPEN_", "_BULLPEN_", "OTEL_", "CLAUDE_CODE_ENABLE_TELEMETRY")


@dataclass(frozen=True)
class Reviewed:
    """A verdict, how long it took, and whether it is one of before."""

    verdict: Verdict
    seconds: float
    is_reused: bool = False


class Reviewer:
    """All reviews of one hub: a few at once, the same within a minute only once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._several = asyncio.Semaphore(AT_ONCE)
        self._under_way: dict[str, asyncio.Task[Verdict]] = {}
        self._said: dict[str, tuple[float, Verdict]] = {}

    async def review(self, agent: Agent, request: Request, told: Instructed) -> Reviewed:
        """The verdict on one request of that agent."""
        began = time.monotonic()
        key = _key(agent, request, told)
        self._forget(began)
        if key in self._said:
            return Reviewed(self._said[key][1], 0.0, is_reused=True)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(agent, request, told), name="review")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._keep(key, done))
        # Whoever asked may leave; who comes back finds the same question.
        verdict = await asyncio.shield(task)
        return Reviewed(verdict, time.monotonic() - began)

    def _keep(self, key: str, done: "asyncio.Task[Verdict]") -> None:
        del self._under_way[key]
        if not done.cancelled() and done.exception() is None:
            verdict = done.result()
            if verdict.is_said and verdict.word != "ASK_USER":
                self._said[key] = (time.monotonic(), verdict)

    def _forget(self, now: float) -> None:
        old = [key for key, (at, _) in self._said.items() if now - at > REUSED_SECONDS]
        for key in old:
            del self._said[key]

    async def _ask(self, agent: Agent, request: Request, told: Instructed) -> Verdict:
        deadline = time.monotonic() + SECONDS
        question = make_question(request, agent.cwd, _new_fence)
        try:
            async with asyncio.timeout(SECONDS):
                await self._several.acquire()
        except TimeoutError:
            return not_said("too many at once")
        try:
            left = deadline - time.monotonic()
            return await in_loose_thread(lambda: self._run(agent, question, told, left))
        finally:
            self._several.release()

    def _run(self, agent: Agent, question: Question, told: Instructed, seconds: float) -> Verdict:
        try:
            system = system_prompt(told.instructions or "")
            write_atomically(self._home.session(agent.name) / FILE, system, mode=0o600)
            agents = sessions.load_settled(self._home, agent.name).whole
            program = find_program(agents, PROGRAM, "claude", PACKAGE)
            done = proc.run(
                command(program, told.model, system),
                cwd=NOWHERE,
                env=environment(agents),
                stdin=question.text.encode(),
                timeout=max(seconds, 0.1),
            )
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            return not_said(why[:200])
        if done.code != 0:
            return not_said(f"it ended with {done.code}")
        return read_verdict(done.out, question.is_whole)


def command(program: str, model: str, system: str) -> list[str]:
    """How it is asked; the question comes by standard input."""
    return [
        *(program, "-p", "--model", model, "--system-prompt", system),
        *("--output-format", "json", "--json-schema", json.dumps(SCHEMA)),
        *("--tools", "", "--setting-sources", "", "--strict-mcp-config"),
        "--no-session-persistence",
    ]


def environment(agents: Mapping[str, str]) -> dict[str, str]:
    """The agent's, for its login and its PATH, without what makes a program that agent."""
    return {name: value for name, value in agents.items() if not name.startswith(NOT_ITS_OWN)}


def _key(agent: Agent, request: Request, told: Instructed) -> str:
    same = [agent.name, agent.run, agent.cwd, request.tool, request.input, told.model]
    text = json.dumps([*same, told.instructions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_fence() -> str:
    return f"=== {secrets.token_hex(16)} ==="
