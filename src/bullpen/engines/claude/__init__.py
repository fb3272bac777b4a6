"""Claude Code: its command line, files, hooks and state file. The only place that knows them."""

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines import loose
from bullpen.engines.base import Engine, Limited, Prepared, Start, StateFile, host_of, run_file
from bullpen.engines.claude import headless, limits, observe
from bullpen.engines.claude.config import (
    Config,
    check_login,
    choose_config,
    has_conversation,
    make_ready,
    sandboxed_config,
)
from bullpen.engines.claude.settings import check, make_servers, make_settings
from bullpen.engines.claude.transcript import find_shown
from bullpen.engines.hooks import addition, refusal
from bullpen.engines.lines import Line, Outcome, outcome_of_exit
from bullpen.engines.own_home import fed
from bullpen.engines.paste import pasted
from bullpen.engines.programs import find_program, install_roots
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.role import Role
from bullpen.model.state import Told

SETTINGS = "settings.json"
TOOLS = "mcp.json"
PROGRAM = "BULLPEN_CLAUDE_BIN"
PACKAGE = "@anthropic-ai/claude-code"
API = "https://api.anthropic.com"
MANUAL = "manual"  # without a mode it would run in auto mode in a terminal
TAKEN = "UserPromptSubmit"
BETWEEN_TOOLS = ("PreToolUse", "PostToolUse")
# Often enough for a budget to be kept; the program also sends what is left when it ends.
EXPORT_MILLISECONDS = {"OTEL_METRIC_EXPORT_INTERVAL": "5000", "OTEL_LOGS_EXPORT_INTERVAL": "1000"}


class Claude:
    """See the module."""

    name = "claude"
    missing = ""
    lacks: tuple[str, ...] = ()
    questions = observe.QUESTIONS
    is_model = True
    variables: tuple[str, ...] = ("CLAUDE_", "ANTHROPIC_", "DISABLE_")
    interrupt = b"\x1b"

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:  # started as it is; it is only looked at
            return Prepared(start.words, state_files=str(_config(start).sessions))
        if not start.is_sandboxed:
            _refuse_open_root(start.role, start.env)
        prepared = self._prepared(start, start.role, start.role.permission_mode or MANUAL)
        prompt = ("--", start.prompt) if start.prompt else ()
        listen = ("--messaging-socket-path", str(start.socket))
        return replace(
            prepared,
            argv=(*prepared.argv, *listen, *start.words, *prompt),
            message_socket=str(start.socket),
        )

    def prepare_run(self, start: Start) -> Prepared:
        if start.role is None:
            raise BullpenError("a run needs a role", kind=Kind.INVALID)
        # Inside walls nobody is asked; deny rules hold all the same.
        mode = "bypassPermissions" if start.is_sandboxed else start.role.permission_mode or MANUAL
        prepared = self._prepared(start, start.role, mode)
        program, *flags = prepared.argv
        argv = (program, *headless.FORM, *flags, *headless.limits(start), *start.words)
        return replace(
            prepared,
            argv=fed(run_file(start, headless.PROMPT), argv),
            env={**headless.RETRIES, **prepared.env},
            run_files={headless.PROMPT: headless.user_line(start.prompt).decode()},
        )

    def _prepared(self, start: Start, role: Role, mode: str) -> Prepared:
        """What both ways of running it share: everything but the prompt."""
        config = _config(start)
        if start.is_sandboxed:
            check_login(config, start.env, "apiKeyHelper" in role.settings, start.person)
        if start.conversation and has_conversation(config, start.conversation):
            conversation, which = start.conversation, "--resume"
        else:
            # Also for one that was killed in its first turn: it left nothing, and its id is used.
            conversation, which = str(uuid.uuid4()), "--session-id"
        argv = [
            find_program(start.env, PROGRAM, "claude", PACKAGE),
            *(which, conversation),
            *("--settings", str(start.session / SETTINGS)),
            *("--mcp-config", str(start.session / TOOLS), "--strict-mcp-config"),
            *("--permission-mode", mode),
        ]
        if not start.is_trusted:
            argv += ["--setting-sources", "user"]
        if role.model:
            argv += ["--model", role.model]
        if role.system_prompt:
            argv += ["--system-prompt", role.system_prompt]
        if role.instructions:
            argv += ["--append-system-prompt", role.instructions]
        url = f"{start.url}/agents/{start.agent}/hooks"
        made = make_settings(role, url, start.hook, start.ask, start.rules)
        settings = json.dumps(made, indent=1)
        env = telemetry(start)
        if config.directory is not None:
            env["CLAUDE_CONFIG_DIR"] = str(config.directory)
        if start.is_sandboxed:
            env["IS_SANDBOX"] = "1"  # without it, root may not do without its questions
        return Prepared(
            tuple(argv),
            env,
            {SETTINGS: check(settings), TOOLS: json.dumps(make_servers(start.servers))},
            conversation=conversation,
            state_files=str(config.sessions),
        )

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is not None:
            key = prepared.env.get("ANTHROPIC_API_KEY") or start.env.get("ANTHROPIC_API_KEY", "")
            make_ready(_config(start), start.cwd, key)

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        return observe.observe(hook, at)

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named when one begins: also by `/clear`, which begins another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return loose.conversation_id(hook.get("session_id"))

    def read_state_file(self, text: bytes) -> StateFile | None:
        return observe.read_state_file(text)

    taken = TAKEN
    typing_seconds = 0.0

    def typed(self, text: str) -> tuple[bytes, ...]:
        # What an interrupt put back into the input line would come before it.
        return (b"\x15" + pasted(text),)

    def message_line(self, text: str) -> bytes:
        return headless.user_line(text)

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return str(hook.get("prompt") or "") if hook.get("hook_event_name") == TAKEN else ""

    def add(self, event: str, text: str) -> str:
        if event not in BETWEEN_TOOLS:
            return ""
        return addition(event, text)

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        return find_shown(Path(agent.state_files).parent, ids, since)

    def refuse(self, event: str, reason: str) -> str:
        return refusal(event, reason)

    def limited(self, hook: Mapping[str, Any], now: float) -> Limited | None:
        return limits.limited(hook, now)

    def find_reset(self, words: str, now: float) -> float | None:
        return limits.find_reset(words, now)

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> Outcome:
        return outcome_of_exit(code, signal, stderr_tail)

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return headless.read_line(line)

    def writable(self, start: Start) -> tuple[Path, ...]:
        return (_config(start).root,) if start.role is not None and start.is_sandboxed else ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        host = host_of(start.env.get("ANTHROPIC_BASE_URL") or API)
        return (host,) if host else ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(find_program(start.env, PROGRAM, "claude", PACKAGE), start.env)


def _config(start: Start) -> Config:
    if start.is_sandboxed:
        return sandboxed_config(start.session)
    wanted = start.role.claude_config_dir if start.role else None
    return choose_config(wanted, start.session, start.home, start.env, start.person)


def telemetry(start: Start) -> dict[str, str]:
    """The variables that make it report its usage to the hub, as totals: one that is lost on the
    way is made good by the next."""
    return {
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
        "OTEL_EXPORTER_OTLP_ENDPOINT": start.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {start.env.get('BULLPEN_TOKEN', '')}",
        "OTEL_RESOURCE_ATTRIBUTES": f"agent.name={start.agent}",
        **EXPORT_MILLISECONDS,
    }


def _refuse_open_root(role: Role, env: Mapping[str, str]) -> None:
    """Claude Code itself refuses it, but only on its screen."""
    if (
        role.permission_mode == "bypassPermissions"
        and os.geteuid() == 0
        and "IS_SANDBOX" not in env
    ):
        raise BullpenError(
            f"role {role.name}: Claude Code does not run with bypassPermissions as root",
            hint="another permission_mode, or another user",
            kind=Kind.UNSUPPORTED,
        )


CLAUDE: Engine = Claude()
