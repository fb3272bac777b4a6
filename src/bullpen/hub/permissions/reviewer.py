"""Asks a model whether a tool call may run. Called by `flow`.

The model and the instructions are the role's at the launch (`hub/agents/launched_reviewer.py`). The
question and what its answer means come from `model/review.py`. No answer, a late one or an odd one
means that the person is asked. The program runs without tools, hooks, memory files or servers, and
not in a directory that an agent could write to. Of settings it gets those by which the agent itself
reaches the model: a gateway, a helper that gives the key.
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
from bullpen.engines.claude.login_settings import read_login
from bullpen.engines.programs import find_program
from bullpen.engines.versions import PROGRAMS
from bullpen.errors import BullpenError
from bullpen.files import write_atomically
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.launched_reviewer import PROMPT
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.background import in_daemon_thread
from bullpen.model.agent import Agent
from bullpen.model.approval import ToolRequest
from bullpen.model.review import (
    SCHEMA,
    ReviewPrompt,
    Verdict,
    make_question,
    no_verdict,
    read_verdict,
    system_prompt,
)
from bullpen.model.role import ReviewerSettings

SECONDS = 45.0
REUSED_SECONDS = 60.0
AT_ONCE = 4
LOGIN_FILE = "permission-reviewer.json"
CONFIG = "CLAUDE_CONFIG_DIR"
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
        self._verdicts: dict[str, tuple[float, Verdict]] = {}

    async def review(
        self, agent: Agent, request: ToolRequest, settings: ReviewerSettings
    ) -> Reviewed:
        """The verdict on one request of that agent."""
        began = time.monotonic()
        key = _key(agent, request, settings)
        self._forget(began)
        if key in self._verdicts:
            return Reviewed(self._verdicts[key][1], 0.0, is_reused=True)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(agent, request, settings), name="review")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._keep(key, done))
        # The caller may leave. One that comes back gets the verdict of the same question.
        verdict = await asyncio.shield(task)
        return Reviewed(verdict, time.monotonic() - began)

    def _keep(self, key: str, done: "asyncio.Task[Verdict]") -> None:
        del self._under_way[key]
        if not done.cancelled() and done.exception() is None:
            verdict = done.result()
            if verdict.is_said and verdict.word != "ASK_USER":
                self._verdicts[key] = (time.monotonic(), verdict)

    def _forget(self, now: float) -> None:
        old = [key for key, (at, _) in self._verdicts.items() if now - at > REUSED_SECONDS]
        for key in old:
            del self._verdicts[key]

    async def _ask(self, agent: Agent, request: ToolRequest, settings: ReviewerSettings) -> Verdict:
        deadline = time.monotonic() + SECONDS
        question = make_question(request, agent.cwd, _new_fence)
        try:
            async with asyncio.timeout(SECONDS):
                await self._several.acquire()
        except TimeoutError:
            return no_verdict("too many at once")
        try:
            left = deadline - time.monotonic()
            return await in_daemon_thread(lambda: self._run(agent, question, settings, left))
        finally:
            self._several.release()

    def _run(
        self, agent: Agent, question: ReviewPrompt, settings: ReviewerSettings, seconds: float
    ) -> Verdict:
        try:
            # Anew: what was launched is what it is told, whatever became of the file.
            system = self._home.session(agent.name) / PROMPT
            write_atomically(system, system_prompt(settings.instructions or ""), mode=0o600)
            launch_env = sessions.load_launch_env(self._home, agent.name)
            program = find_program(launch_env.whole, PROGRAMS["claude"])
            env = environment(agent, launch_env)
            login = self._write_login(agent, env)
            done = proc.run(
                command(program, settings.model, system, login),
                cwd=NOWHERE,
                env=env,
                stdin=question.text.encode(),
                timeout=max(seconds, 0.1),
            )
        except (BullpenError, OSError) as error:
            why = error.message if isinstance(error, BullpenError) else str(error)
            return no_verdict(why[:200])
        if done.code != 0:
            return no_verdict(f"it ended with {done.code}")
        return read_verdict(done.out, question.is_whole)

    def _write_login(self, agent: Agent, env: Mapping[str, str]) -> Path:
        session = self._home.session(agent.name)
        own = Path(env.get(CONFIG) or Path(env.get("HOME") or "/") / ".claude")
        file = session / LOGIN_FILE
        write_atomically(file, json.dumps(read_login((own, session))), mode=0o600)
        return file


def command(program: str, model: str, system: Path, login: Path) -> list[str]:
    """How it is asked; the question comes by standard input, the instructions by file: a command
    line can be read by every user of the machine."""
    return [
        *(program, "-p", "--model", model, "--system-prompt-file", str(system)),
        *("--output-format", "json", "--json-schema", json.dumps(SCHEMA)),
        *("--tools", "", "--setting-sources", "", "--settings", str(login)),
        "--strict-mcp-config",
        "--no-session-persistence",
    ]


def environment(agent: Agent, launch_env: LaunchEnv) -> dict[str, str]:
    """The agent's, for its login and its PATH, without what makes a program that agent.

    A sandboxed agent writes its own configuration directory, and Claude Code (2.1.325) runs hooks
    of a `remote-settings.json` there, whatever it is told of settings. The reviewer runs outside of
    the sandbox: it uses the person's, from which that was made."""
    env = launch_env.whole
    if agent.is_sandboxed:
        persons = launch_env.env.get(CONFIG)
        env = {name: value for name, value in env.items() if name != CONFIG}
        env |= {CONFIG: persons} if persons else {}
    return {name: value for name, value in env.items() if not name.startswith(NOT_ITS_OWN)}


def _key(agent: Agent, request: ToolRequest, settings: ReviewerSettings) -> str:
    same = [agent.name, agent.run, agent.cwd, request.tool, request.input, settings.model]
    text = json.dumps([*same, settings.instructions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_fence() -> str:
    return f"=== {secrets.token_hex(16)} ==="
