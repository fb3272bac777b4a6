"""A home whose agents are Claude Code: the real one against the fake model, or the stand-in.

    team.role("worker", permissions={"allow": ["Read"]})
    amy = team.run("worker", name="amy")
    amy.wait("idle"); amy.submit("[[say hi]]")

`Amy` is an agent as a person sees it: its keys, its screen, the words that `list` shows.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.commands import Ran
from tests.engines.cli import Claude, StandIn
from tests.engines.fake_anthropic import FakeAnthropic
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until

SECONDS = 90.0


class Agent:
    """One agent of the team."""

    def __init__(self, team: "Team", name: str) -> None:
        self.team = team
        self.name = name

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
        self.wait_screen(f"● {text}")
        self.wait("idle")

    def screen(self) -> str:
        lines = self.team.pen.client().get("agents", self.name, "screen")["lines"]
        return "\n".join(lines).replace("\xa0", " ")

    def type(self, keys: str) -> None:
        self.team.pen.client().post("agents", self.name, "input", body={"text": keys})

    def submit(self, text: str) -> None:
        """A prompt as a paste, and Enter, once it is ready for one."""
        self.wait_ready()
        self.type(f"\x1b[200~{text}\x1b[201~\r")

    def wait_ready(self) -> None:
        self.wait_screen("\n❯")

    def answer(self, key: str) -> None:
        """Answer the dialog; for a moment after it is drawn it ignores keys."""
        self.wait_screen("Do you want to proceed")
        for _ in range(20):
            self.type(key)
            with contextlib.suppress(AssertionError):
                return wait_until(lambda: "Do you want to proceed" not in self.screen(), 1)
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


class Team:
    """A home, a repository, and the program that its agents are."""

    def __init__(self, pen: Pen, claude: Claude) -> None:
        self.pen = pen
        self.claude = claude
        pen.env |= claude.env | {
            "HOME": pen.env["HOME"],
            "BULLPEN_CLAUDE_BIN": str(claude.program),
            "PATH": os.environ["PATH"],
        }
        self.role("worker")

    def role(self, name: str, **fields: Any) -> None:
        """A role file. (YAML is a superset of JSON.)"""
        path = self.pen.root / "roles" / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, **fields}))

    def run(self, role: str = "worker", name: str = "amy", **fields: Any) -> Agent:
        self.pen.run(role=role, name=name, words=[], cwd=str(self.claude.work), **fields)
        return Agent(self, name)

    def cli(self, *words: str, **env: str) -> Ran:
        return self.pen.cli(*words, cwd=self.claude.work, **env)


@contextlib.contextmanager
def made_team(tmp_path: Path, kind: str) -> Iterator[Team]:
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(FakeAnthropic()) if kind == "real" else None
        claude = Claude(tmp_path, model) if model else StandIn(tmp_path)
        # What makes a start free of dialogs is Bullpen's to write.
        (claude.config / ".claude.json").unlink()
        (claude.config / "settings.json").unlink()
        yield Team(stack.enter_context(made_pen()), claude)
