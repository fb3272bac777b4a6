"""Gemini CLI: its command line, settings, hooks and lines. The only place that knows them."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines import loose
from bullpen.engines.base import Engine, NoConversation, Prepared, Start, host_of, run_file
from bullpen.engines.gemini import headless, observe
from bullpen.engines.gemini.home import (
    DIRECTORY,
    MEMORY,
    RULES,
    SETTINGS,
    SYSTEM,
    VARIABLE,
    make_ready,
    origin_of,
    own_of,
    read_settings,
)
from bullpen.engines.gemini.login import api, login
from bullpen.engines.gemini.rules import make_rules
from bullpen.engines.gemini.settings import make_settings
from bullpen.engines.gemini.transcript import TRANSCRIPTS, find_shown, has_conversation
from bullpen.engines.hooks import addition
from bullpen.engines.lines import Line
from bullpen.engines.own_home import fed
from bullpen.engines.paste import clearing, plain
from bullpen.engines.programs import find_program, install_roots
from bullpen.engines.telemetry import telemetry
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import Told

PROGRAM = "BULLPEN_GEMINI_BIN"
PACKAGE = "@google/gemini-cli"
# Without a model it asks a model which one to take, for every prompt.
MODEL = "gemini-2.5-pro"
TAKEN = "BeforeAgent"
READ_BYTES = 32 << 10  # of a paste, in `typing_seconds`


class Gemini(NoConversation):
    """See the module. It writes no state file."""

    name = "gemini"
    variables: tuple[str, ...] = ("GEMINI_", "GOOGLE_")
    missing = "Gemini CLI has said nothing yet"
    lacks: tuple[str, ...] = (
        "permissions answered from the inbox: only its own dialog can",
        "a refusal in its dialog: it shows as blocked until the next prompt",
        "rules with a pattern for tools other than the shell",
        "the cost of what it uses, and so budgets in USD: tokens and requests are counted, those"
        " from its cache also as input",
        "a refusal of its tools when a budget is used up: its turn is interrupted",
        "a limit of turns or USD for a task, and its tokens before its end",
        "messages as they are: an @ arrives as \\@ (it would read that file), control characters"
        " as pictures of them (\u241b), line ends as line feeds, the last one without blanks at its"
        " end; it drops characters without width; between tools < and > arrive as &lt; and &gt;",
    )
    taken = TAKEN
    interrupt = b"\x1b"
    # It takes an Enter that it reads within 40 ms of a paste as part of it, and reads slowly at
    # the end of a turn; right after its start it loses what is typed.
    typing_seconds = 0.7

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:  # started as it is
            return Prepared(start.words)
        prepared = self._prepared(start, start.role, start.role.permission_mode or "default")
        # In one word with its flag: the prompt may begin with a dash.
        prompt = (f"--prompt-interactive={start.prompt}",) if start.prompt else ()
        return replace(prepared, argv=(*prepared.argv, *start.words, *prompt))

    def prepare_run(self, start: Start) -> Prepared:
        if start.role is None:
            raise BullpenError("a run needs a role", kind=Kind.INVALID)
        mode = "yolo" if start.is_sandboxed else start.role.permission_mode or "default"
        prepared = self._prepared(start, start.role, mode)
        argv = (*prepared.argv, "-o", "stream-json", *start.words)
        return replace(
            prepared,
            argv=fed(run_file(start, headless.PROMPT), argv),
            run_files={headless.PROMPT: loose.sound(start.prompt)},
        )

    def _prepared(self, start: Start, role: Role, mode: str) -> Prepared:
        """What both ways of running it share: everything but the prompt."""
        if VARIABLE in role.env:
            raise BullpenError(
                f"role {role.name} sets {VARIABLE}, which every Gemini agent has of its own",
                hint=f"leave it out; the login is that of {VARIABLE} in your shell",
                kind=Kind.UNSUPPORTED,
            )
        own, origin = own_of(start), origin_of(start)
        if start.conversation and has_conversation(own, start.conversation):
            conversation, which = start.conversation, "--resume"
        else:
            conversation, which = str(uuid.uuid4()), "--session-id"
        argv = (
            find_program(start.env, PROGRAM, "gemini", PACKAGE),
            *("-m", role.model or MODEL),
            *("--approval-mode", mode),
            *(which, conversation),
        )
        person = read_settings(origin / DIRECTORY / "settings.json")
        files = {
            SETTINGS: json.dumps(
                make_settings(start, role, person, login(start, origin)), indent=1
            ),
            RULES: make_rules(role),
            MEMORY: role.instructions or "",
        }
        env = {VARIABLE: str(own), **telemetry(start)}
        if role.system_prompt:
            files[SYSTEM] = role.system_prompt
            env["GEMINI_SYSTEM_MD"] = str(start.session / SYSTEM)
        # It holds no state files, but `find_shown` has to know where to look.
        transcripts = str(own / DIRECTORY / TRANSCRIPTS)
        return Prepared(argv, env, files, conversation=conversation, state_files=transcripts)

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is not None:
            make_ready(start, prepared)

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        return observe.observe(hook, at)

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named when one begins: also by `/clear`, which begins another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return loose.conversation_id(hook.get("session_id"))

    def typed(self, text: str) -> tuple[bytes, ...]:
        # A backslash before Enter, or `@x`, would keep it from being sent: a line break does not.
        paste = f"\x1b[200~{_plain(text)}\n\x1b[201~".encode("utf-8", "replace")
        pauses = (b"",) * (len(paste) // READ_BYTES)
        return clearing(text), paste, *pauses, b"\r"

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return loose.text(hook.get("prompt")) if hook.get("hook_event_name") == TAKEN else ""

    def add(self, event: str, text: str) -> str:
        if event != "AfterTool":  # it passes over what is added before one
            return ""
        return addition(event, text)

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        if not agent.state_files:  # started as it is
            return set()
        return find_shown(Path(agent.state_files), ids, since)

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return headless.read_line(line)

    def writable(self, start: Start) -> tuple[Path, ...]:
        return (own_of(start),) if start.role is not None and start.is_sandboxed else ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        host = host_of(api(start.env))
        return (host,) if host else ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(find_program(start.env, PROGRAM, "gemini", PACKAGE), start.env)


def _plain(text: str) -> str:
    """As a paste can hold it; what follows an @ would be read as a file, or asked for in a
    dialog."""
    return plain(text).replace("@", "\\@")


GEMINI: Engine = Gemini()
