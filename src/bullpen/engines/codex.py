"""Codex: its command line, configuration, hooks and lines. The only place that knows them.

Hooks, rules and trust are read from CODEX_HOME alone, so every agent has one of its own in its
session directory. The person's `config.toml` is taken over into it, without hooks and decisions
of trust; `auth.json` is a link to the person's, so that a login just works (in a sandbox there is
none, and the rest is copied).
Codex runs a hook only if the hash of what it would run is written down as trusted: we write it.

A repository's own `.codex` holds commands that run by themselves. Codex would ask at the start
whether to trust it; so an agent is not started there until the person has said that it may be.
"""

import datetime
import hashlib
import json
import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines.base import (
    Begun,
    Engine,
    Fault,
    Line,
    NoConversation,
    Outcome,
    Prepared,
    Retrying,
    Said,
    Start,
    Used,
    clearing,
    detail_of,
    find_program,
    host_of,
    install_roots,
    plain,
    run_file,
    sound,
)
from bullpen.engines.own_home import (
    copy,
    fed,
    find_origin,
    link,
    merged,
    note_origin,
    own_directory,
    own_name,
    remove,
    write_own,
)
from bullpen.engines.transcripts import find_told
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.message import ids_in
from bullpen.model.role import EngineHooks, Role, ShortHook
from bullpen.model.state import Idle, State, Told, Working

PROGRAM = "BULLPEN_CODEX_BIN"
PACKAGE = "@openai/codex"
VARIABLE = "CODEX_HOME"
# In the session directory: what is written for Codex, and what it reads it as.
CONFIG, RULES, SYSTEM = "codex.toml", "codex.rules", "codex-system.md"
OWN = "codex"
PROMPT = "prompt.txt"  # in the directory of a run
TRANSCRIPTS = "sessions"  # in that
TAKEN_OVER = ("auth.json", "AGENTS.md", "prompts")
SECRET = ("auth.json",)
# What an agent in a sandbox could leave for its next run.
PLANTED = ("hooks.json", "rules")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TOLD_SECONDS = 5
# For as long as a person may take to answer.
ASKED_SECONDS = 24 * 3600
# What 0.166.0 gives these at most, whatever is asked for: the hash is of what it gives.
SHORT_SECONDS = 3
TOLD = {
    "SessionStart": TOLD_SECONDS,
    "SessionEnd": SHORT_SECONDS,
    "UserPromptSubmit": TOLD_SECONDS,
    "PreToolUse": TOLD_SECONDS,
    "PostToolUse": TOLD_SECONDS,
    "Stop": TOLD_SECONDS,
    "Interrupt": SHORT_SECONDS,
    "PreCompact": TOLD_SECONDS,
    "PostCompact": TOLD_SECONDS,
    "SubagentStart": TOLD_SECONDS,
    "SubagentStop": TOLD_SECONDS,
}
# Its end waits for what it still has to send, also when the hub is away.
EXPORT_MILLISECONDS = "1000"
DEFAULT_SECONDS = 600  # of a hook that names none
WITHOUT_MATCHER = ("UserPromptSubmit", "Stop", "Interrupt", "SessionEnd")
# Without these it asks github.com and chatgpt.com for plugins and updates at every start. (In a
# terminal it asks githubusercontent.com for an announcement all the same.)
QUIET: dict[str, Any] = {
    "check_for_update_on_startup": False,
    "analytics": {"enabled": False},
    "features": {"plugins": False},
}
# In a terminal it takes a key from the environment only for a provider that names the variable.
KEY, PROVIDER, OPENAI_URL = "CODEX_API_KEY", "bullpen", "https://api.openai.com/v1"
RECONNECTING = re.compile(r"Reconnecting(?:\D*(\d+)/\d+)?")
STATUS = re.compile(r"\bstatus:? (\d{3})\b")
# What 0.166.0 says of errors that pass by themselves, where it names no status.
PASSING = re.compile(
    r"high demand|stream disconnected|error sending request|network error|timed? ?out"
    r"|connection (?:failed|reset|closed)|overloaded",
    re.IGNORECASE,
)
TAKEN = "UserPromptSubmit"
BETWEEN_TOOLS = ("PreToolUse", "PostToolUse")


class Codex(NoConversation):
    """See the module. It writes no state file."""

    name = "codex"
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
            argv=fed(run_file(start, PROMPT), (*argv, "-")),
            run_files={PROMPT: sound(start.prompt)},
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
        own = _own(start)
        is_known = bool(start.conversation) and _has_conversation(own, start.conversation)
        origin = _origin(start)
        config = make_config(start, role, _read_config(origin))
        config = merged(config, _login(start, origin, config))
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
        if start.role is None:
            return
        own, origin = _own(start), _origin(start)
        _refuse_untrusted(start, origin)
        rules = [f"rules/{file.name}" for file in sorted(origin.glob("rules/*.rules"))]
        note_origin(own, origin)
        if start.is_sandboxed:
            for name in PLANTED:
                remove(own / name)
            copy(own, origin, [name for name in (*TAKEN_OVER, *rules) if name not in SECRET])
        else:
            link(own, origin, [*TAKEN_OVER, *rules])
        write_own(own_directory(own / "rules") / "bullpen.rules", prepared.files[RULES])
        write_own(own / "config.toml", prepared.files[CONFIG])

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        event = str(hook.get("hook_event_name") or "")
        tool = str(hook.get("tool_name") or "")[:80]
        state = _state_of_hook(event, tool, hook)
        if state is None:
            return None
        says = tool or str(hook.get("source") or hook.get("trigger") or "received")[:80]
        return Told(at=at, source=f"hook {event}", says=says, state=state)

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named with the first prompt; also after `/new`, which begins another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return _conversation_id(hook.get("session_id"))

    def typed(self, text: str) -> tuple[bytes, ...]:
        # After `@x` or `$x` Enter would choose from a list: so a line break comes between.
        keys = f"\x1b[200~{plain(text)}\n\x1b[201~\r"
        return clearing(text), keys.encode("utf-8", "replace")

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return _text(hook.get("prompt")) if hook.get("hook_event_name") == TAKEN else ""

    def add(self, event: str, text: str) -> str:
        if event not in BETWEEN_TOOLS:
            return ""
        added = {"hookEventName": event, "additionalContext": text}
        return json.dumps({"hookSpecificOutput": added})

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        if not agent.state_files:  # started as it is
            return set()
        return find_told(Path(agent.state_files).glob("*/*/*/rollout-*.jsonl"), ids, since, _told)

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return ()
        return tuple(_read(fields)) if isinstance(fields, dict) else ()

    def writable(self, start: Start) -> tuple[Path, ...]:
        return (_own(start),) if start.role is not None and start.is_sandboxed else ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        settings = start.role.settings if start.role else {}
        host = host_of(_api(merged(_read_config(_origin(start)), settings)))
        return (host,) if host else ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(find_program(start.env, PROGRAM, "codex", PACKAGE), start.env)


def _state_of_hook(event: str, tool: str, hook: Mapping[str, Any]) -> State | None:
    """A request for a permission is not among them: who waits for the answer says so."""
    match event:
        case "SessionStart" if hook.get("source") != "compact":
            return Idle()
        case "Stop" | "Interrupt":  # the latter also for a refusal in its dialog
            return Idle()
        case "PostCompact" if hook.get("trigger") == "manual":  # nothing follows it
            return Idle()
        case "UserPromptSubmit" | "PostToolUse" | "PostCompact":
            return Working(doing="thinking")
        case "PreToolUse" | "PreCompact":
            return Working(tool=tool) if tool else Working(doing="compacting")
        case _:
            return None


def _told(line: bytes) -> set[str]:
    """The ids in what a line of a transcript shows the model to have been told: a prompt, or what
    a hook added. What it said itself, or read with a tool, proves nothing."""
    try:
        fields = json.loads(line)
        payload = fields["payload"]
        kind = fields["type"], payload["type"], payload["role"]
        texts = [_text(part["text"]) for part in payload["content"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    if kind not in (("response_item", "message", who) for who in ("user", "developer")):
        return set()
    return set().union(*map(ids_in, texts))


# ── configuration ────────────────────────────────────────────────────────────


def make_config(start: Start, role: Role, person: Mapping[str, Any]) -> dict[str, Any]:
    """The whole of it. Pure. The role's `settings` win over the person's; hooks and trust are
    ours."""
    kept = {key: value for key, value in person.items() if key not in ("hooks", "projects")}
    asked: dict[str, Any] = {"approval_policy": _approval_policy(role)}
    if role.model:
        asked["model"] = role.model
    if role.instructions:
        asked["developer_instructions"] = role.instructions
    if role.system_prompt:
        asked["model_instructions_file"] = str(start.session / SYSTEM)
    if start.is_sandboxed:  # walls inside walls cannot be built, and nobody is there to ask
        asked |= {"approval_policy": "never", "sandbox_mode": "danger-full-access"}
    logs = {"endpoint": f"{start.url}/v1/logs", "protocol": "json", "headers": {}}
    told = {"otel": {"exporter": {"otlp-http": logs}, "log_user_prompt": False}}
    config = merged(kept, QUIET, told, {"mcp_servers": {}}, asked, role.settings)
    config["projects"] = {start.cwd: {"trust_level": "trusted"}}
    config["hooks"] = make_hooks(role, start)
    return config


def make_hooks(role: Role, start: Start) -> dict[str, Any]:
    """The role's hooks and ours, in that order, and the marks that they are trusted. Pure."""
    hooks: dict[str, list[dict[str, Any]]] = {
        event: [_engine_form(role, entry) for entry in entries]
        for event, entries in role.hooks.items()
    }
    for event, seconds in TOLD.items():
        hooks.setdefault(event, []).append(_group(shlex.join(start.hook), seconds))
    asking = _group(shlex.join(start.ask), ASKED_SECONDS)
    hooks.setdefault("PermissionRequest", []).append(asking)
    # Codex resolves the links of its home before it names a file in it.
    file = _own(start).resolve() / "config.toml"
    state = {
        f"{file}:{_label(event)}:{number}:{place}": {
            "trusted_hash": trusted_hash(event, group.get("matcher"), action)
        }
        for event, groups in hooks.items()
        for number, group in enumerate(groups)
        for place, action in enumerate(group["hooks"])
    }
    return {**hooks, "state": state}


def trusted_hash(event: str, matcher: str | None, action: Mapping[str, Any]) -> str:
    """What Codex 0.166.0 makes of a hook to know it again."""
    known: dict[str, Any] = {
        "async": bool(action.get("async", False)),
        "command": action["command"],
        "timeout": action.get("timeout", DEFAULT_SECONDS),
        "type": "command",
    }
    if action.get("statusMessage"):
        known["statusMessage"] = action["statusMessage"]
    identity: dict[str, Any] = {"event_name": _label(event), "hooks": [known]}
    if matcher is not None and event not in WITHOUT_MATCHER:
        identity["matcher"] = matcher
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _engine_form(role: Role, entry: ShortHook | EngineHooks) -> dict[str, Any]:
    if isinstance(entry, ShortHook):
        actions: list[dict[str, Any]] = [{"command": entry.command, "timeout": entry.timeout}]
    else:
        dumped = [action.model_dump(mode="json", exclude_none=True) for action in entry.hooks]
        if any(action["type"] != "command" or "command" not in action for action in dumped):
            raise BullpenError(
                f"role {role.name}: Codex runs only hooks of type command", kind=Kind.UNSUPPORTED
            )
        actions = dumped
    for action in actions:
        action["type"] = "command"
        # It knows whole seconds only.
        action["timeout"] = math.ceil(action.get("timeout") or DEFAULT_SECONDS)
    return {**({"matcher": entry.matcher} if entry.matcher else {}), "hooks": actions}


def _group(command: str, seconds: int) -> dict[str, Any]:
    return {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}


def _label(event: str) -> str:
    """PreToolUse -> pre_tool_use."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", event).lower()


def make_rules(role: Role) -> str:
    """The role's rules as Codex's own, which know commands by how they begin. Pure. It holds
    them also against the parts of `a && b`, and of several the strictest decides."""
    allow = [_rule(role, rule, "allow") for rule in role.permissions.allow]
    deny = [_rule(role, rule, "forbidden") for rule in role.permissions.deny]
    return "".join(f"{line}\n" for line in (*allow, *deny))


def _rule(role: Role, rule: str, decision: str) -> str:
    tool, _, rest = rule.partition("(")
    pattern = rest.removesuffix(")")
    begins = pattern.removesuffix(":*").removesuffix(" *")
    try:
        words = shlex.split(begins)
    except ValueError:
        words = []
    is_prefix = begins != pattern or decision == "forbidden"  # more is refused than was asked
    if tool != "Bash" or not words or "*" in begins or not is_prefix:
        raise BullpenError(
            f"role {role.name}: Codex has no such rule: {rule}",
            hint="it knows commands by how they begin: Bash(git push:*)",
            kind=Kind.UNSUPPORTED,
        )
    return f"prefix_rule(pattern={json.dumps(words)}, decision={json.dumps(decision)})"


def _approval_policy(role: Role) -> str:
    return role.permission_mode or "on-request"


def telemetry(start: Start) -> dict[str, str]:
    """The token for what it sends to the hub; in the environment, not in a file. Its metrics are
    left out: half a megabyte each time, and its log has the tokens of every request."""
    token = start.env.get("BULLPEN_TOKEN", "")
    return {
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {token}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": EXPORT_MILLISECONDS,
        "OTEL_RESOURCE_ATTRIBUTES": f"agent.name={start.agent}",
    }


def to_toml(config: Mapping[str, Any]) -> str:
    """The text of it. Pure."""
    plain = {k: v for k, v in config.items() if v is not None and not isinstance(v, Mapping)}
    lines = [f"{_quoted(key)} = {_value(value)}" for key, value in plain.items()]
    for key, table in config.items():
        if isinstance(table, Mapping):
            lines.append(f"[{_quoted(key)}]")
            lines += [f"{_quoted(k)} = {_value(v)}" for k, v in table.items() if v is not None]
    return "".join(f"{line}\n" for line in lines)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            pairs = [f"{_quoted(k)} = {_value(v)}" for k, v in value.items() if v is not None]
            return "{" + ", ".join(pairs) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    # JSON leaves one control character as it is that TOML does not take.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# ── what is on disk ──────────────────────────────────────────────────────────


def _own(start: Start) -> Path:
    return start.session / own_name(OWN, start.is_sandboxed)


def _origin(start: Start) -> Path:
    return find_origin(start.env.get(VARIABLE, ""), start.person / ".codex")


def _login(start: Start, origin: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be set for it to sign in without asking. A key in the environment goes before
    a login; a provider that somebody set up has its own way."""
    if config.get("model_provider", "openai") != "openai":
        return {}
    if start.env.get(KEY):
        provider = {
            "name": "OpenAI",
            "base_url": config.get("openai_base_url") or OPENAI_URL,
            "env_key": KEY,
            "wire_api": "responses",
        }
        return {"model_provider": PROVIDER, "model_providers": {PROVIDER: provider}}
    if not start.is_sandboxed and (origin / "auth.json").exists():
        return {}
    if start.is_sandboxed:
        raise BullpenError(
            "Codex in a sandbox cannot use your own login, and no key is set",
            hint="bullpen auth set openai-api-key < FILE",
            kind=Kind.UNAVAILABLE,
        )
    raise BullpenError(
        f"nobody is logged in to Codex ({origin / 'auth.json'})",
        hint="codex login · or: bullpen auth set openai-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def _api(config: Mapping[str, Any]) -> str:
    """Where the model is asked. Pure."""
    name, providers = config.get("model_provider", "openai"), config.get("model_providers")
    of_name = providers.get(name) if isinstance(providers, Mapping) else None
    url = of_name.get("base_url") if isinstance(of_name, Mapping) else None
    return _text(url or config.get("openai_base_url")) or OPENAI_URL


def _read_config(origin: Path) -> dict[str, Any]:
    file = origin / "config.toml"
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BullpenError(
            f"{file} is not TOML: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error


def _has_conversation(own: Path, id: str) -> bool:
    return any(own.glob(f"sessions/*/*/*/rollout-*-{_conversation_id(id)}.jsonl"))


def _refuse_untrusted(start: Start, origin: Path) -> None:
    if start.is_trusted:
        return
    for directory in _up_to_the_repository(Path(start.cwd)):
        found = directory / ".codex"
        if found.exists() and found.resolve() != origin.resolve():
            raise BullpenError(
                f"{found} is not trusted: Codex would run what it says",
                hint=f"read it, then: bullpen trust {shlex.quote(str(directory))}",
                kind=Kind.DENIED,
            )


def _up_to_the_repository(cwd: Path) -> Sequence[Path]:
    """Where Codex looks for settings of a project."""
    places = (cwd, *cwd.parents)
    for number, place in enumerate(places):
        if (place / ".git").exists():
            return places[: number + 1]
    return places[:1]


# ── headless ─────────────────────────────────────────────────────────────────


def _read(fields: dict[str, Any]) -> Iterator[Line]:
    """The answer is what was said last: the end of a turn does not repeat it."""
    kind, item = fields.get("type"), fields.get("item")
    if isinstance(item, dict):
        yield from _read_item(kind, item)
    elif kind == "thread.started":
        yield Begun(_conversation_id(fields.get("thread_id")))
    elif kind == "error":
        if found := RECONNECTING.search(_text(fields.get("message"))):
            attempt = int(found[1][:9]) if found[1] else 0
            yield Retrying(attempt, 0.0, _text(fields.get("message"))[:200])
    elif kind == "turn.failed":
        error = fields.get("error")
        why = _text(error.get("message")) if isinstance(error, dict) else ""
        status = _status(why)
        fault: Fault = "rate_limit" if status == 429 else "claude_error"
        passes = status >= 500 if status else PASSING.search(why) is not None
        yield Outcome(fault, "", "", why=why or "the turn failed", is_retryable=passes)
    elif kind == "turn.completed":
        usage = fields.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        yield Outcome(
            "",
            "",
            "",
            input_tokens=_count(counts.get("input_tokens")),
            output_tokens=_count(counts.get("output_tokens")),
        )


def _read_item(kind: object, item: dict[str, Any]) -> Iterator[Line]:
    match kind, item.get("type"):
        case "item.completed", "agent_message":
            yield Said(_text(item.get("text")))
        case "item.started", "command_execution":
            yield Used("Bash", detail_of(item, ("command",)))  # as its hooks call it
        case "item.started", "mcp_tool_call":
            yield Used(f"mcp__{_text(item.get('server'))}__{_text(item.get('tool'))}")
        case "item.completed", "file_change":
            changes = item.get("changes")
            paths = [_text(each.get("path")) for each in _dicts(changes)]
            yield Used("apply_patch", detail_of({"paths": paths}, ("paths",)))
        case "item.started", "web_search":
            yield Used("web_search", detail_of(item, ("query",)))
        case _:
            return


def _conversation_id(value: object) -> str:
    """The id, or nothing if it is none: it becomes part of a command line and of a path."""
    return value if isinstance(value, str) and ID.fullmatch(value) else ""


def _status(why: str) -> int:
    """The HTTP status that it names; 0 if it names none."""
    found = STATUS.search(why)
    return int(found[1]) if found else 0


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return sound(value) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


CODEX: Engine = Codex()
