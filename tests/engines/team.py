"""A home whose agents are one engine's program in terminals.

    with made_team(tmp_path, "codex") as team:
        team.role("worker", permissions={"allow": ["Read"]})
        amy = team.run("worker", name="amy")
        amy.wait("idle"); amy.submit("[[say hi]]")

An agent is as a person sees it: its keys, its screen, the words that `list` shows.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bullpen.engines import get_engine
from tests.commands import Ran
from tests.engines.cli import GEMINI_MODEL
from tests.engines.programs import Program, install, made_program
from tests.hub.pen import Pen, made_pen
from tests.waiting import quiet_for, wait_until

SECONDS = 240.0  # the real programs need seconds of a processor to start, and share it


class Agent:
    """One agent of the team."""

    def __init__(self, team: "Team", name: str) -> None:
        self.team = team
        self.name = name

    @property
    def engine(self) -> str:
        return self.team.engine

    @property
    def words(self) -> str:
        return self.team.pen.state(self.name)

    @property
    def shown(self) -> dict[str, Any]:
        return self.team.pen.client().get("agents", self.name)

    @property
    def conversation(self) -> str:
        return str(self.shown["engine_session"])

    def wait(self, *words: str, seconds: float = SECONDS) -> None:
        """Until `list` shows it so."""
        self._wait(lambda: self.words in words, seconds, f"{words}")

    def wait_screen(self, text: str, seconds: float = SECONDS) -> None:
        self._wait(lambda: text in self.screen(), seconds, text)

    def wait_said(self, text: str) -> None:
        """Until the model has said it, and the turn is over."""
        self.wait_screen(f"{self.team.habits.said} {text}")
        self.wait("idle")

    def screen(self) -> str:
        lines = self.team.pen.client().get("agents", self.name, "screen")["lines"]
        return "\n".join(lines).replace("\xa0", " ")

    def type(self, keys: str) -> None:
        self.team.pen.client().post("agents", self.name, "input", body={"text": keys})

    def submit(self, text: str) -> None:
        """A prompt, once it is ready for one."""
        self.wait_ready()
        self.team.habits.submit(self, text)

    def wait_ready(self) -> None:
        self.wait_screen(self.team.habits.ready)

    def enter(self, text: str, is_taken: Callable[[], bool], hint: str = "") -> None:
        """Gemini loses what is typed in the moment after its start, and ignores an Enter that
        comes with the text: so it is pasted until it shows, and Enter pressed until it is taken.
        It knows its own commands only after a while, and says so with a hint."""
        for seconds in (6, 12, 24, 48):
            self.type(f"\x1b[200~{text}\x1b[201~")
            with contextlib.suppress(AssertionError):
                wait_until(lambda: text in self.screen(), seconds)
                break
        self.wait_screen(hint)
        for _ in range(60):
            self.type("\r")
            with contextlib.suppress(AssertionError):
                return wait_until(is_taken, 2)
        raise AssertionError(f"not taken\n{self.screen()}")

    def wait_listed(self) -> None:
        """Until its question can be answered from the inbox: that a program waits is known before
        its hook has asked."""
        self._wait(self._is_listed, SECONDS, "listed")

    def _is_listed(self) -> bool:
        approvals = self.team.pen.client().get("approvals")["approvals"]
        return any(one["agent"] == self.name and one["state"]["reachable"] for one in approvals)

    def answer(self, key: str) -> None:
        """Answer the dialog."""
        self.wait_screen("Do you want to proceed")
        self.press(key, lambda: "Do you want to proceed" not in self.screen())

    def press(self, key: str, is_taken: Callable[[], bool]) -> None:
        """A key in a dialog: for a moment after it is drawn it ignores keys."""
        for _ in range(40):
            self.type(key)
            with contextlib.suppress(AssertionError):
                return wait_until(is_taken, 3)
        raise AssertionError(f"{key!r} was not taken\n{self.screen()}")

    def explained(self) -> dict[str, Any]:
        return self.team.pen.client().get("agents", self.name, "explain")

    def hooks(self) -> list[str]:
        """The names of the events that came."""
        return [event["event"] for event in self.team.pen.events(self.name, "hook.received")]

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        try:
            wait_until(condition, seconds)
        except AssertionError as error:
            found = json.dumps(self.explained(), indent=1)
            raise AssertionError(f"not {what}\n{found}\n{self.screen()}") from error


def paste(agent: Agent, text: str) -> None:
    """And Enter with it."""
    agent.type(f"\x1b[200~{text}\x1b[201~\r")


def type_to_codex(agent: Agent, text: str) -> None:
    codex = get_engine("codex")
    quiet_for(2 * codex.typing_seconds)  # it ends a turn a while after it has said so
    agent.type(b"".join(codex.typed(text)).decode())


def type_to_gemini(agent: Agent, text: str) -> None:
    before = agent.hooks().count("BeforeAgent")
    agent.enter(text, lambda: agent.hooks().count("BeforeAgent") > before)


@dataclass(frozen=True)
class Habits:
    """What differs between engines for somebody at the terminal."""

    engine: str
    said: str  # stands before what the model says
    ready: str  # is on the screen when it waits for a prompt
    submit: Callable[[Agent, str], None]
    role: dict[str, Any] = field(default_factory=dict)  # what its roles need


CLAUDE = Habits("claude", "●", "\n❯", paste)
CODEX = Habits("codex", "•", "Ask Codex", type_to_codex, {"agent_type": "codex"})
GEMINI = Habits(
    "gemini",
    "✦",
    "Type your message",
    type_to_gemini,
    {"agent_type": "gemini", "model": GEMINI_MODEL},
)
HABITS = {"standin": CLAUDE, "real": CLAUDE, "codex": CODEX, "gemini": GEMINI}


class Team:
    """A home, a working directory, and the program that its agents are, in `claude` whatever it
    is."""

    def __init__(self, pen: Pen, program: Program, habits: Habits = CLAUDE) -> None:
        self.pen = pen
        self.claude = program
        self.habits = habits
        self.engine = habits.engine
        install(pen, habits.engine, program)
        self.role("worker")

    def role(self, name: str, **fields: Any) -> None:
        self.pen.role(name, **{**self.habits.role, **fields})

    def boss(self, **fields: Any) -> str:
        """A role with a persona; its name."""
        directory = self.pen.root / "roles" / "boss"
        directory.mkdir()
        role = {"name": "boss", "instructions": "Write little.", **self.habits.role, **fields}
        (directory / "role.yaml").write_text(json.dumps(role))
        (directory / "CLAUDE.md").write_text("# You lead the herons.\n")
        return "boss"

    def run(self, role: str = "worker", name: str = "amy", **fields: Any) -> Agent:
        self.pen.run(role=role, name=name, words=[], cwd=str(self.claude.work), **fields)
        return Agent(self, name)

    def cli(self, *words: str, **env: str) -> Ran:
        return self.pen.cli(*words, cwd=self.claude.work, **env)


@contextlib.contextmanager
def made_team(tmp_path: Path, kind: str) -> Iterator[Team]:
    """Of "standin", "real" (Claude Code), "codex" or "gemini"."""
    with made_program(tmp_path, kind) as program, made_pen() as pen:
        yield Team(pen, program, HABITS[kind])
