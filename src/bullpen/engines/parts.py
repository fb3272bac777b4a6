"""The parts that engines are made of: what several programs have in common.

`Plain…`: a program that Bullpen does not understand. `Model…`: an agent program with hooks,
transcripts and lines of JSON. An engine inherits one of each and says what is its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Prepared, RateLimited, Start, StateFile, host_of
from bullpen.engines.hooks import addition, blocked_turn
from bullpen.engines.lines import Line, RunOutcome, outcome_of_exit
from bullpen.engines.programs import find_program, install_roots
from bullpen.engines.transcripts import find_told
from bullpen.engines.versions import PROGRAMS
from bullpen.errors import BullpenError
from bullpen.model.agent import Agent
from bullpen.model.transcript import Entry


class PlainPrepare:
    """Nothing to go on with, to write or to reach."""

    is_model = False
    code: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def trusts(self, start: Start) -> bool:
        return False

    def check_login(self, start: Start) -> None:
        """It needs none that we know of."""

    def has_conversation(self, start: Start) -> bool:
        return False

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        """Nothing to write."""

    def keep_ready(self, start: Start, prepared: Prepared) -> None:
        """Nobody else writes there."""

    def state_files(self, start: Start) -> str:
        return ""

    def writable(self, start: Start) -> tuple[Path, ...]:
        return ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        return ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        words = (start.role.command if start.role else ()) or start.words
        return install_roots(words[0], start.env) if words else ()


class ModelPrepare(PlainPrepare):
    """A program of `versions.PROGRAMS` that asks a model's API."""

    name: str
    is_model = True

    def program(self, start: Start) -> str:
        return find_program(start.env, PROGRAMS[self.name])

    def check_login(self, start: Start) -> None:
        try:
            self.require_login(start)
        except BullpenError:
            self.program(start)  # one that is not installed: nobody can log in to it yet
            raise

    def require_login(self, start: Start) -> None:
        """Refuses a start for which nobody is logged in."""
        raise NotImplementedError

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(self.program(start), start.env)

    def hosts(self, start: Start) -> tuple[str, ...]:
        host = host_of(self.api(start))
        return (host,) if host else ()

    def api(self, start: Start) -> str:
        """The address of the model's API."""
        raise NotImplementedError


class PlainObserve:
    """Says nothing but its exit code."""

    missing = ""
    questions: frozenset[str] = frozenset()
    dialogs: Mapping[str, str] = MappingProxyType({})

    def find_dialog(self, lines: Sequence[str]) -> str:
        # A narrow screen breaks its lines anywhere between two words, and frames have sides.
        screen = " ".join(" ".join(lines).replace("│", " ").split())
        return next((about for words, about in self.dialogs.items() if words in screen), "")

    def conversation(self, hook: Mapping[str, Any]) -> str:
        return ""

    def read_state_file(self, text: bytes) -> StateFile | None:
        return None

    def limited(self, hook: Mapping[str, Any], now: float) -> RateLimited | None:
        return None

    def find_reset(self, words: str, now: float) -> float | None:
        return None

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return ()

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> RunOutcome:
        return outcome_of_exit(code, signal, stderr_tail)


class ModelObserve(PlainObserve):
    """Hooks that name the conversation, and a headless run that writes lines of JSON."""

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named when one begins: also by `/clear` or `/new`, which begin another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return parse.conversation_id(hook.get("session_id"))

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return tuple(self.read_fields(parse.read_fields(line)))

    def read_fields(self, fields: dict[str, Any]) -> Iterator[Line]:
        """What a line says; nothing for kinds that nobody needs, and for what is none of its
        lines."""
        raise NotImplementedError


class PlainConverse:
    """Takes no prompts."""

    taken = ""
    interrupt = b"\x03"
    typing_seconds = 0.0
    tools_seconds = 0.0

    def typed(self, text: str) -> tuple[bytes, ...]:
        return ()

    def message_line(self, text: str) -> bytes:
        return b""

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return ""

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        return set()

    def conversation_files(self, agent: Agent, conversation: str) -> Iterable[Path]:
        return ()

    def read_entries(self, line: bytes) -> tuple[Entry, ...]:
        return ()

    def add(self, event: str, text: str) -> str:
        return ""

    def add_to_prompt(self, event: str, text: str) -> str:
        return ""

    def hold(self, hook: Mapping[str, Any], reason: str) -> str:
        return ""

    def refuse(self, event: str, reason: str) -> str:
        return ""


class ModelConverse(PlainConverse):
    """A hook that shows the prompt, and transcripts that show what the model was told."""

    interrupt = b"\x1b"
    # The hooks whose answers are shown to the model.
    adds: tuple[str, ...] = ()
    # The hook at the end of a turn, if its answer can make the model go on.
    at_end = ""

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return parse.text(hook.get("prompt")) if hook.get("hook_event_name") == self.taken else ""

    def add(self, event: str, text: str) -> str:
        return addition(event, text) if event in self.adds else ""

    def add_to_prompt(self, event: str, text: str) -> str:
        return addition(event, text) if event == self.taken else ""

    def hold(self, hook: Mapping[str, Any], reason: str) -> str:
        event = hook.get("hook_event_name")
        return blocked_turn(reason) if self.at_end and event == self.at_end else ""

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        if not agent.state_files:  # started as it is
            return set()
        return find_told(self.transcripts(Path(agent.state_files)), ids, since, self.message_ids)

    def conversation_files(self, agent: Agent, conversation: str) -> Iterable[Path]:
        if not agent.state_files or not parse.conversation_id(conversation):
            return ()
        files = self.transcripts(Path(agent.state_files))
        return (file for file in files if file.stem.endswith(self.name_in_file(conversation)))

    def name_in_file(self, conversation: str) -> str:
        """How the name of a conversation's transcript ends."""
        return conversation

    def read_entries(self, line: bytes) -> tuple[Entry, ...]:
        return tuple(self.entries_of(parse.read_fields(line)))

    def entries_of(self, fields: dict[str, Any]) -> Iterator[Entry]:
        """What a line of a transcript says."""
        raise NotImplementedError

    def transcripts(self, state_files: Path) -> Iterable[Path]:
        """The transcripts of an agent whose `state_files` are there."""
        raise NotImplementedError

    def message_ids(self, line: bytes) -> set[str]:
        """The ids of messages in what a line of a transcript shows the model to have been told: a
        prompt, or what a hook added. What it said itself, or read with a tool, proves nothing."""
        raise NotImplementedError
