"""How Claude Code is started: its command line, settings and variables."""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Prepared, Start, directories_of, fed, role_of, run_file
from bullpen.engines.claude import headless
from bullpen.engines.claude.config import (
    Config,
    check_login,
    choose_config,
    has_conversation,
    is_accepted,
    keep_ready,
    make_ready,
    sandboxed_config,
)
from bullpen.engines.claude.settings import check, make_servers, make_settings
from bullpen.engines.first_prompt import make_first_prompt
from bullpen.engines.parts import ModelPrepare
from bullpen.errors import BullpenError, Kind
from bullpen.files import read_plain, write_atomically
from bullpen.model.role import Role

SETTINGS = "settings.json"
TOOLS = "mcp.json"
SYSTEM, INSTRUCTIONS = "system-prompt.md", "instructions.md"
TEXT_FLAGS = {SYSTEM: "--system-prompt-file", INSTRUCTIONS: "--append-system-prompt-file"}
API = "https://api.anthropic.com"
# Settings of a repository that nobody trusts are left out, and with them its texts. Of a directory
# that is added, Claude Code (2.1.325) reads CLAUDE.md and .claude/rules, and no settings.
READ_TEXTS = {"CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1"}
SERVERS = ".mcp.json"  # in a repository
FILE_BYTES = 1 << 20
# Else a call that lasts two minutes goes on in the background, and the turn ends without it.
WAITS = {"CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0"}
# The hub loads its tools for the first agent: longer than the five seconds that it would wait.
CONNECTS = {"MCP_CONNECT_TIMEOUT_MS": "60000"}
MANUAL = "manual"  # without a mode it would run in auto mode in a terminal
# Often enough for a budget to be kept; the program also sends what is left when it ends.
EXPORT_MILLISECONDS = {"OTEL_METRIC_EXPORT_INTERVAL": "5000", "OTEL_LOGS_EXPORT_INTERVAL": "1000"}


class ClaudePrepare(ModelPrepare):
    """`Prepare` of Claude Code."""

    variables: tuple[str, ...] = ("CLAUDE_", "ANTHROPIC_", "DISABLE_")
    code: tuple[str, ...] = (
        *(".claude/settings.json", ".claude/settings.local.json", SERVERS),
        *(".claude/agents", ".claude/commands", ".claude/skills"),
    )

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:  # started as it is; it is only looked at
            return Prepared(start.words)
        if not start.is_sandboxed:
            _refuse_open_root(start.role, start.env)
        prepared = self._prepared(start, start.role, start.role.permission_mode or MANUAL)
        first = make_first_prompt(start)
        prompt = ("--", *first.word) if first.word else ()
        listen = ("--messaging-socket-path", str(start.socket))
        return replace(
            prepared,
            argv=(*first.before, *prepared.argv, *listen, *start.words, *prompt),
            env={**prepared.env, **WAITS},
            files={**prepared.files, **first.files},
            message_socket=str(start.socket),
        )

    def prepare_run(self, start: Start) -> Prepared:
        role = role_of(start)
        # In a sandbox nobody is asked; deny rules hold all the same.
        mode = "bypassPermissions" if start.is_sandboxed else role.permission_mode or MANUAL
        prepared = self._prepared(start, role, mode)
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
        self.check_login(start)
        conversation = start.conversation or str(uuid.uuid4())
        which = "--resume" if start.conversation else "--session-id"
        argv = [
            self.program(start),
            *(which, conversation),
            *(() if start.is_trusted else _texts_alone(start)),
            *("--settings", str(start.session / SETTINGS)),
            *("--mcp-config", str(start.session / TOOLS), "--strict-mcp-config"),
            *("--permission-mode", mode),
        ]
        if role.model:
            argv += ["--model", role.model]
        # By file: a command line can be read by every user of the machine.
        texts = {SYSTEM: role.system_prompt, INSTRUCTIONS: role.instructions}
        files = {name: text for name, text in texts.items() if text}
        for name in files:
            argv += [TEXT_FLAGS[name], str(start.session / name)]
        url = f"{start.url}/agents/{start.agent}/hooks"
        made = make_settings(role, url, start.hook, start.ask, start.rules)
        settings = json.dumps(made, indent=1)
        env = {**telemetry(start), **CONNECTS, **({} if start.is_trusted else READ_TEXTS)}
        if config.directory is not None:
            env["CLAUDE_CONFIG_DIR"] = str(config.directory)
        if start.is_sandboxed:
            env["IS_SANDBOX"] = "1"  # without it, root may not do without its questions
        return Prepared(
            tuple(argv),
            env,
            {
                SETTINGS: check(settings),
                TOOLS: json.dumps(make_servers(start.servers, start.relay)),
                **files,
            },
            conversation=conversation,
        )

    def require_login(self, start: Start) -> None:
        check_login(_config(start), start.env, start.person, _settings_of(start))

    def has_conversation(self, start: Start) -> bool:
        return has_conversation(_config(start), start.conversation)

    def state_files(self, start: Start) -> str:
        return str(_config(start).sessions)

    def make_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is not None:
            make_ready(_config(start), start.cwd, _key(start, prepared))
            if start.is_trusted:
                _add_servers(start, prepared)

    def keep_ready(self, start: Start, prepared: Prepared) -> None:
        if start.role is not None and not start.is_sandboxed:
            keep_ready(_config(start), start.cwd, _key(start, prepared))

    def trusts(self, start: Start) -> bool:
        return is_accepted(start.env, start.person, directories_of(start))

    def writable(self, start: Start) -> tuple[Path, ...]:
        return (_config(start).root,) if start.role is not None and start.is_sandboxed else ()

    def api(self, start: Start) -> str:
        return start.env.get("ANTHROPIC_BASE_URL") or API


def _key(start: Start, prepared: Prepared) -> str:
    return prepared.env.get("ANTHROPIC_API_KEY") or start.env.get("ANTHROPIC_API_KEY", "")


def _texts_alone(start: Start) -> tuple[str, ...]:
    """Of the repository its texts, and nothing that would run."""
    return ("--setting-sources", "user", "--add-dir", *map(str, directories_of(start)))


def _add_servers(start: Start, prepared: Prepared) -> None:
    """The servers of tools that a trusted repository brings, beside ours. Claude Code is told to
    use those of one file alone: it would ask about any others."""
    try:
        text = read_plain(Path(start.top or start.cwd) / SERVERS, FILE_BYTES)
    except OSError:  # there is none
        return
    servers = parse.fields(parse.read_fields(text).get("mcpServers"))
    ours = json.loads(prepared.files[TOOLS])["mcpServers"]
    both = json.dumps({"mcpServers": {**servers, **ours}})
    write_atomically(start.session / TOOLS, both, mode=0o600)


def _settings_of(start: Start) -> Iterator[Mapping[str, Any]]:
    """The role's, and those of a trusted repository."""
    yield role_of(start).settings
    for name in (".claude/settings.json", ".claude/settings.local.json"):
        if start.is_trusted:
            with contextlib.suppress(OSError):
                yield parse.read_fields(read_plain(Path(start.cwd, name), FILE_BYTES))


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
