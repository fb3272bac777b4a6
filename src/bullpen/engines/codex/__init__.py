"""Codex: its command line, configuration, hooks and lines. The only place that knows them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines import loose
from bullpen.engines.base import Engine, NoConversation, Prepared, Start, host_of, run_file
from bullpen.engines.codex import headless, observe
from bullpen.engines.codex.config import make_config
from bullpen.engines.codex.home import (
    CONFIG,
    RULES,
    SYSTEM,
    VARIABLE,
    make_ready,
    origin_of,
    own_of,
    read_config,
)
from bullpen.engines.codex.login import api, login
from bullpen.engines.codex.rules import make_rules
from bullpen.engines.codex.toml import to_toml
from bullpen.engines.codex.transcript import TRANSCRIPTS, find_shown, has_conversation
from bullpen.engines.hooks import addition
from bullpen.engines.lines import Line
from bullpen.engines.own_home import fed, merged
from bullpen.engines.paste import clearing, plain
from bullpen.engines.programs import find_program, install_roots
from bullpen.engines.telemetry import telemetry
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import Told

PROGRAM = "BULLPEN_CODEX_BIN"
PACKAGE = "@openai/codex"
TAKEN = "UserPromptSubmit"
BETWEEN_TOOLS = ("PreToolUse", "PostToolUse")


class Codex(NoConversation):
    """See the module. It writes no state file."""

    name = "codex"
    variables: tuple[str, ...] = ("CODEX_", "OPENAI_")
    missing = "Codex says nothing before its first prompt"
    lacks: tuple[str, ...] = (
        "its state before the first prompt: until then messages wait, also after a restart",
        "the end of a turn that failed: it shows as working until the next prompt",
        "its own dialog while an approval waits in the inbox",
        "rules for tools other than shell commands",
        "tokens of a continued run apart from those before it, and any before its end",
        "a limit of turns or USD for a task",
        "the end of a task whose API cannot be reached: it waits for the network until its time is"
        " over",
        "the cost of what it uses, and so budgets in USD: tokens and requests are counted",
        "a refusal of its tools when a budget is used up: its turn is interrupted",
        "messages as they are: control characters arrive as pictures of them (\u241b), line ends"
        " as line feeds, the last one without blanks at its end",
        "the hub from inside its own sandbox (`bullpen` in a command)",
    )
    taken = TAKEN
    interrupt = b"\x1b"
    # A turn goes on for a moment after its Stop. A prompt that comes then is taken into that turn,
    # and never answered.
    typing_seconds = 0.5

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:  # started as it is
            return Prepared(start.words)
        prepared = self._prepared(start, start.role)
        found = prepared.conversation
        # The shared server that it would start else outlives the agent.
        flags = ("--no-daemon", *start.words)
        tail = [word for word in (found, start.prompt) if word]
        argv = [*prepared.argv, *(("resume",) if found else ()), *flags]
        return replace(prepared, argv=(*argv, *(("--", *tail) if tail else ())))

    def prepare_run(self, start: Start) -> Prepared:
        if start.role is None:
            raise BullpenError("a run needs a role", kind=Kind.INVALID)
        prepared = self._prepared(start, start.role)
        argv = [*prepared.argv, "exec", "--json", "--skip-git-repo-check", *start.words]
        if prepared.conversation:
            argv += ["resume", prepared.conversation]
        return replace(
            prepared,
            argv=fed(run_file(start, headless.PROMPT), (*argv, "-")),
            run_files={headless.PROMPT: loose.sound(start.prompt)},
        )

    def _prepared(self, start: Start, role: Role) -> Prepared:
        """What both ways of running it share. A conversation is Codex's to begin: its first hook
        names it."""
        if VARIABLE in role.env:
            raise BullpenError(
                f"role {role.name} sets {VARIABLE}, which every Codex agent has of its own",
                hint=f"leave it out; the login is that of {VARIABLE} in your shell",
                kind=Kind.UNSUPPORTED,
            )
        own = own_of(start)
        is_known = bool(start.conversation) and has_conversation(own, start.conversation)
        origin = origin_of(start)
        config = make_config(start, role, read_config(origin))
        config = merged(config, login(start, origin, config))
        files = {CONFIG: to_toml(config), RULES: make_rules(role)}
        if role.system_prompt:
            files[SYSTEM] = role.system_prompt
        return Prepared(
            (find_program(start.env, PROGRAM, "codex", PACKAGE),),
            {VARIABLE: str(own), **telemetry(start)},
            files,
            conversation=start.conversation if is_known else "",
            # It holds no state files, but `find_shown` has to know where to look.
            state_files=str(own / TRANSCRIPTS),
        )

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is not None:
            make_ready(start, prepared)

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        return observe.observe(hook, at)

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named with the first prompt; also after `/new`, which begins another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return loose.conversation_id(hook.get("session_id"))

    def typed(self, text: str) -> tuple[bytes, ...]:
        # After `@x` or `$x` Enter would choose from a list: so a line break comes between.
        keys = f"\x1b[200~{plain(text)}\n\x1b[201~\r"
        return clearing(text), keys.encode("utf-8", "replace")

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return loose.text(hook.get("prompt")) if hook.get("hook_event_name") == TAKEN else ""

    def add(self, event: str, text: str) -> str:
        if event not in BETWEEN_TOOLS:
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
        settings = start.role.settings if start.role else {}
        host = host_of(api(merged(read_config(origin_of(start)), settings)))
        return (host,) if host else ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(find_program(start.env, PROGRAM, "codex", PACKAGE), start.env)


CODEX: Engine = Codex()
