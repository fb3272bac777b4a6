"""Gemini CLI: its command line, settings, hooks and lines. The only place that knows them.

It reads settings for everybody only from files that root alone may write, so every agent has a
home of its own for it in its session directory (GEMINI_CLI_HOME). The person's settings are taken
over into it; what the person logged in with, and commands, extensions and policies, are links, so
that an existing login just works (in a sandbox there is no login, and the rest is copied).

In a directory that it does not trust, Gemini CLI runs no hooks and connects to no servers, and in
one that it trusts, it does what the repository's own `.gemini` says. So an agent is not started
in a directory that has one until the person has said that it may be used.
"""

import json
import re
import shlex
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines.base import (
    Begun,
    Denied,
    Engine,
    Fault,
    Line,
    NoConversation,
    Outcome,
    Prepared,
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
    real_directory,
    remove,
    write_own,
)
from bullpen.engines.transcripts import find_told, read_lines
from bullpen.errors import BullpenError, Kind
from bullpen.model.agent import Agent
from bullpen.model.message import ids_in
from bullpen.model.role import EngineHooks, Role, ShortHook
from bullpen.model.state import Blocked, Idle, State, Told, Working

PROGRAM = "BULLPEN_GEMINI_BIN"
PACKAGE = "@google/gemini-cli"
VARIABLE = "GEMINI_CLI_HOME"
# Without a model it asks a model which one to take, for every prompt.
MODEL = "gemini-2.5-pro"
# In the session directory: what is written for Gemini CLI.
SETTINGS, RULES, MEMORY = "gemini.json", "gemini-policy.toml", "gemini-instructions.md"
SYSTEM = "gemini-system.md"
PROMPT = "prompt.txt"  # in the directory of a run
OWN = "gemini"  # and in that what Gemini CLI makes in every home:
DIRECTORY = ".gemini"
TRANSCRIPTS = "tmp"  # in that
SECRET = (
    "oauth_creds.json",
    "google_accounts.json",
    "gemini-credentials.json",
    "mcp-oauth-tokens.json",
    ".env",
)
TAKEN_OVER = (*SECRET, "installation_id", "commands", "extensions", "skills", "agents")
KEY = "GEMINI_API_KEY"
API = "https://generativelanguage.googleapis.com"
# Of a repository's `.gemini`: what is more than text.
OF_A_REPOSITORY = ("settings.json", ".env", "agents", "commands", "extensions", "skills")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TOLD = (
    "SessionStart",
    "SessionEnd",
    "BeforeAgent",
    "AfterAgent",
    "BeforeTool",
    "AfterTool",
    "Notification",
)
TOLD_MILLISECONDS = 5_000
# Its end waits for what it still has to send, also when the hub is away.
EXPORT_MILLISECONDS = "1000"
ATTEMPTS = 3  # by itself it would ask an API that refuses ten times
QUIET: dict[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "maxAttempts": ATTEMPTS,
    },
    "privacy": {"usageStatisticsEnabled": False},
    "ide": {"hasSeenNudge": True},
}
# Of its own names for the tools that rules know.
TOOLS = {
    "Bash": "run_shell_command",
    "Read": "read_file",
    "Edit": "replace",
    "Write": "write_file",
    "Grep": "grep_search",
    "Glob": "glob",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
}
SHELL = TOOLS["Bash"]
ALLOW, DENY = 500, 999  # priorities; what the person allows in a dialog has 950
QUESTIONS = ("ask_user", "exit_plan_mode")
READ_BYTES = 32 << 10  # of a paste, in `typing_seconds`


class Gemini(NoConversation):
    """See the module. It writes no state file."""

    name = "gemini"
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
    taken = "BeforeAgent"
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
            argv=fed(run_file(start, PROMPT), argv),
            run_files={PROMPT: sound(start.prompt)},
        )

    def _prepared(self, start: Start, role: Role, mode: str) -> Prepared:
        """What both ways of running it share: everything but the prompt."""
        if VARIABLE in role.env:
            raise BullpenError(
                f"role {role.name} sets {VARIABLE}, which every Gemini agent has of its own",
                hint=f"leave it out; the login is that of {VARIABLE} in your shell",
                kind=Kind.UNSUPPORTED,
            )
        own, origin = _own(start), _origin(start)
        if start.conversation and _has_conversation(own, start.conversation):
            conversation, which = start.conversation, "--resume"
        else:
            conversation, which = str(uuid.uuid4()), "--session-id"
        argv = (
            find_program(start.env, PROGRAM, "gemini", PACKAGE),
            *("-m", role.model or MODEL),
            *("--approval-mode", mode),
            *(which, conversation),
        )
        person = _read_settings(origin / DIRECTORY / "settings.json")
        files = {
            SETTINGS: json.dumps(
                make_settings(start, role, person, _login(start, origin)), indent=1
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
        if start.role is None:
            return
        own, origin = _own(start), _origin(start)
        _refuse_untrusted(start, origin)
        policies = [f"policies/{f.name}" for f in sorted(origin.glob(".gemini/policies/*.toml"))]
        names = [*TAKEN_OVER, *policies]
        note_origin(own, origin)
        if start.is_sandboxed:
            real_directory(own / DIRECTORY)
            remove(own / DIRECTORY / "policies")  # what the agent left for its next run
            open_names = [name for name in names if name not in SECRET]
            copy(own / DIRECTORY, origin / DIRECTORY, open_names)
        else:
            link(own / DIRECTORY, origin / DIRECTORY, names)
        own_directory(own / DIRECTORY / "policies")
        trusted = {start.cwd: "TRUST_FOLDER", str(Path(start.cwd).resolve()): "TRUST_FOLDER"}
        memory = _read_text(origin / DIRECTORY / "GEMINI.md")
        texts = {
            "settings.json": prepared.files[SETTINGS],
            "policies/bullpen.toml": prepared.files[RULES],
            "trustedFolders.json": json.dumps(trusted),
            "GEMINI.md": "\n\n".join(filter(None, (memory.strip(), prepared.files[MEMORY]))),
        }
        for name, text in texts.items():
            write_own(own / DIRECTORY / name, text)

    def observe(self, hook: Mapping[str, Any], at: float) -> Told | None:
        event = str(hook.get("hook_event_name") or "")
        tool = str(hook.get("tool_name") or "")[:80]
        state = _state_of_hook(event, tool, hook)
        if state is None:
            return None
        says = tool or str(hook.get("source") or hook.get("message") or "received")[:80]
        return Told(at=at, source=f"hook {event}", says=says, state=state)

    def conversation(self, hook: Mapping[str, Any]) -> str:
        """Named when one begins: also by `/clear`, which begins another."""
        if hook.get("hook_event_name") != "SessionStart":
            return ""
        return _conversation_id(hook.get("session_id"))

    def typed(self, text: str) -> tuple[bytes, ...]:
        # A backslash before Enter, or `@x`, would keep it from being sent: a line break does not.
        paste = f"\x1b[200~{_plain(text)}\n\x1b[201~".encode("utf-8", "replace")
        pauses = (b"",) * (len(paste) // READ_BYTES)
        return clearing(text), paste, *pauses, b"\r"

    def prompt_of(self, hook: Mapping[str, Any]) -> str:
        return _text(hook.get("prompt")) if hook.get("hook_event_name") == "BeforeAgent" else ""

    def add(self, event: str, text: str) -> str:
        if event != "AfterTool":  # it passes over what is added before one
            return ""
        added = {"hookEventName": event, "additionalContext": text}
        return json.dumps({"hookSpecificOutput": added})

    def find_shown(self, agent: Agent, ids: set[str], since: float) -> set[str]:
        if not agent.state_files:  # started as it is
            return set()
        return find_told(Path(agent.state_files).glob("*/chats/session-*.jsonl"), ids, since, _told)

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return ()
        return tuple(_read(fields)) if isinstance(fields, dict) else ()

    def writable(self, start: Start) -> tuple[Path, ...]:
        return (_own(start),) if start.role is not None and start.is_sandboxed else ()

    def hosts(self, start: Start) -> tuple[str, ...]:
        host = host_of(_api(start.env))
        return (host,) if host else ()

    def programs(self, start: Start) -> tuple[Path, ...]:
        return install_roots(find_program(start.env, PROGRAM, "gemini", PACKAGE), start.env)


def _state_of_hook(event: str, tool: str, hook: Mapping[str, Any]) -> State | None:
    """PreCompress is not among them: it fires before every turn, whether anything is to be
    compressed or not."""
    match event:
        case "SessionStart" | "AfterAgent":  # the latter also for an error and an interrupt
            return Idle()
        case "BeforeAgent" | "AfterTool":
            return Working(doing="thinking")
        case "BeforeTool":
            return Working(tool=tool)
        case "Notification" if hook.get("notification_type") == "ToolPermission":
            return _blocked(hook.get("details"))
        case _:
            return None


def _blocked(details: object) -> Blocked:
    fields = details if isinstance(details, dict) else {}
    kind = str(fields.get("type") or "")
    if kind in QUESTIONS:
        return Blocked(on="question")
    tool = {"exec": SHELL, "edit": TOOLS["Edit"], "info": TOOLS["WebFetch"]}.get(kind)
    return Blocked(on="permission", tool=tool or str(fields.get("toolName") or kind)[:80])


def _told(line: bytes) -> set[str]:
    """The ids in what a line of a transcript shows the model to have been told: a prompt, or what
    a hook added. What it said itself, or read with a tool, proves nothing."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return set()
    if not isinstance(fields, dict) or fields.get("type") != "user":
        return set()
    texts = []
    content = fields.get("content")
    for part in content if isinstance(content, list) else []:
        of_tool = _fields(_fields(_fields(part).get("functionResponse")).get("response"))
        added = _text(of_tool.get("output")).rpartition("<hook_context>")
        texts += [_text(_fields(part).get("text")), added[2] if added[1] else ""]
    return set().union(*map(ids_in, texts))


def _plain(text: str) -> str:
    """As a paste can hold it; what follows an @ would be read as a file, or asked for in a
    dialog."""
    return plain(text).replace("@", "\\@")


# ── settings ─────────────────────────────────────────────────────────────────


def make_settings(
    start: Start, role: Role, person: Mapping[str, Any], login: str
) -> dict[str, Any]:
    """The whole file. Pure. The role's `settings` win over the person's, which win over what we
    would rather have; hooks of all three are kept, in that order."""
    told = {
        "name": "bullpen",
        "type": "command",
        "command": shlex.join(start.hook),
        "timeout": TOLD_MILLISECONDS,
    }
    hooks: dict[str, list[Any]] = {}
    of_person = person.get("hooks")
    for event, entries in (of_person if isinstance(of_person, dict) else {}).items():
        hooks[event] = list(entries) if isinstance(entries, list) else []
    for event, entries in role.hooks.items():
        hooks.setdefault(event, []).extend(_engine_form(role, entry) for entry in entries)
    for event in TOLD:
        hooks.setdefault(event, []).append({"hooks": [told]})
    ours: dict[str, Any] = {
        "hooks": hooks,
        "hooksConfig": {"enabled": True},
        "security": {"auth": {"selectedType": login}, "folderTrust": {"enabled": True}},
        "telemetry": {
            "enabled": True,
            "target": "local",
            "otlpEndpoint": start.url,
            "otlpProtocol": "http",
            "logPrompts": False,
        },
        "context": {"fileName": _context_files(person, role)},
    }
    servers: dict[str, Any] = {"mcpServers": {}}
    return merged(QUIET, person, servers, role.settings, ours)


def _context_files(person: Mapping[str, Any], role: Role) -> list[str]:
    """Ours is called as it is by default; the person may have set other names."""
    for settings in (role.settings, person):
        context = settings.get("context")
        named = context.get("fileName") if isinstance(context, dict) else None
        if named:
            names = [named] if isinstance(named, str) else [str(name) for name in named]
            return names if "GEMINI.md" in names else [*names, "GEMINI.md"]
    return ["GEMINI.md"]


def _engine_form(role: Role, entry: ShortHook | EngineHooks) -> dict[str, Any]:
    """A role says seconds; Gemini CLI takes milliseconds."""
    if isinstance(entry, ShortHook):
        actions: list[dict[str, Any]] = [{"type": "command", "command": entry.command}]
        if entry.timeout is not None:
            actions[0]["timeout"] = round(entry.timeout * 1000)
    else:
        actions = [action.model_dump(mode="json", exclude_none=True) for action in entry.hooks]
        if any(action["type"] != "command" for action in actions):
            raise BullpenError(
                f"role {role.name}: Gemini CLI runs only hooks of type command",
                kind=Kind.UNSUPPORTED,
            )
    return {**({"matcher": entry.matcher} if entry.matcher else {}), "hooks": actions}


def telemetry(start: Start) -> dict[str, str]:
    """The token for what it sends to the hub; in the environment, not in a file."""
    token = start.env.get("BULLPEN_TOKEN", "")
    return {
        "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer {token}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": EXPORT_MILLISECONDS,
        "OTEL_RESOURCE_ATTRIBUTES": f"agent.name={start.agent}",
    }


def make_rules(role: Role) -> str:
    """The role's rules as a policy of Gemini CLI. Pure. It passes over a whole file of which it
    cannot read one rule, so what it has no words for is refused here."""
    rules = [_rule(role, rule, "allow", ALLOW) for rule in role.permissions.allow]
    rules += [_rule(role, rule, "deny", DENY) for rule in role.permissions.deny]
    return "".join(rules)


def _rule(role: Role, rule: str, decision: str, priority: int) -> str:
    tool, _, rest = rule.partition("(")
    pattern = rest.removesuffix(")")
    name = TOOLS.get(tool, tool)
    fields: dict[str, str] = {"toolName": name}
    if rule.startswith("mcp__"):
        server, _, of_server = rule.removeprefix("mcp__").partition("__")
        fields = {"toolName": of_server or "*", "mcpName": server}
    elif pattern:
        begins = pattern.removesuffix(":*").removesuffix(" *")
        if name != SHELL or not begins or "*" in begins:
            raise BullpenError(
                f"role {role.name}: Gemini CLI has no such rule: {rule}",
                hint="it knows tools, and commands by how they begin: Bash(git push:*)",
                kind=Kind.UNSUPPORTED,
            )
        if begins != pattern:
            fields["commandPrefix"] = begins
        else:
            # Held against the arguments as JSON, so the closing quote ends the command.
            fields["commandRegex"] = re.escape(json.dumps(pattern)[1:-1]) + '"'
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    lines += [f"decision = {json.dumps(decision)}", f"priority = {priority}"]
    return "[[rule]]\n" + "".join(f"{line}\n" for line in lines) + "\n"


# ── what is on disk ──────────────────────────────────────────────────────────


def _own(start: Start) -> Path:
    return start.session / own_name(OWN, start.is_sandboxed)


def _api(env: Mapping[str, str]) -> str:
    """Where the model is asked. Pure. A key goes before all else, as in `_login`."""
    if env.get(KEY) or env.get("GOOGLE_GENAI_USE_VERTEXAI") != "true":
        return env.get("GOOGLE_GEMINI_BASE_URL") or API
    place = env.get("GOOGLE_CLOUD_LOCATION") or "global"
    named = env.get("GOOGLE_VERTEX_BASE_URL")
    prefix = "" if place == "global" or env.get("GOOGLE_API_KEY") else f"{place}-"
    return named or f"https://{prefix}aiplatform.googleapis.com"


def _origin(start: Start) -> Path:
    """The person's home, as far as Gemini CLI is concerned."""
    return find_origin(start.env.get(VARIABLE, ""), start.person)


def _login(start: Start, origin: Path) -> str:
    """How it signs in; unset it would ask. A key in the environment goes before all else."""
    if start.env.get(KEY):
        return "gemini-api-key"
    if start.is_sandboxed:
        return _login_of_environment(start.env)
    settings: Any = _read_settings(origin / DIRECTORY / "settings.json")
    for key in ("security", "auth", "selectedType"):
        settings = settings.get(key) if isinstance(settings, dict) else None
    if isinstance(settings, str) and settings:
        return settings
    if start.env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai"
    if (origin / DIRECTORY / "oauth_creds.json").exists():
        return "oauth-personal"
    raise BullpenError(
        "nobody is logged in to Gemini CLI",
        hint="gemini (once, to log in) · or: bullpen auth set gemini-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def _login_of_environment(env: Mapping[str, str]) -> str:
    """In a sandbox no file of a login can be read."""
    if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true" and env.get("GOOGLE_API_KEY"):
        return "vertex-ai"
    raise BullpenError(
        "Gemini CLI in a sandbox cannot use your own login, and no key is set",
        hint="bullpen auth set gemini-api-key < FILE",
        kind=Kind.UNAVAILABLE,
    )


def _read_settings(file: Path) -> dict[str, Any]:
    text = _read_text(file)
    try:
        found = json.loads(without_comments(text) or "{}")
    except ValueError as error:
        raise BullpenError(
            f"{file} is not JSON: {error}", hint="mend it first", kind=Kind.CONFLICT
        ) from error
    return found if isinstance(found, dict) else {}


def without_comments(text: str) -> str:
    """JSON as people write it for Gemini CLI, as JSON. Pure."""
    strings_or_comments = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return strings_or_comments.sub(lambda found: found[1] or " ", text).strip()


def _read_text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _has_conversation(own: Path, id: str) -> bool:
    """Whether there is anything to resume: one that was killed in its first turn left a file
    without an answer in it."""
    for file in own.glob(f".gemini/tmp/*/chats/session-*-{_conversation_id(id)[:8]}.jsonl"):
        if any(b'"type":"gemini"' in line for line in read_lines(file)):
            return True
    return False


def _refuse_untrusted(start: Start, origin: Path) -> None:
    directory = Path(start.cwd) / DIRECTORY
    if start.is_trusted or directory.resolve() == (origin / DIRECTORY).resolve():
        return
    for name in OF_A_REPOSITORY:
        if (directory / name).exists():
            raise BullpenError(
                f"{directory / name} is not trusted: Gemini CLI would do what it says",
                hint=f"read it, then: bullpen trust {shlex.quote(start.cwd)}",
                kind=Kind.DENIED,
            )


# ── headless ─────────────────────────────────────────────────────────────────


def _read(fields: dict[str, Any]) -> Iterator[Line]:
    """What is said comes in pieces; the end of a run does not repeat it."""
    match fields.get("type"):
        case "init":
            yield Begun(_conversation_id(fields.get("session_id")))
        case "message" if fields.get("role") == "assistant":
            yield Said(_text(fields.get("content")))
        case "tool_use":
            yield Used(_text(fields.get("tool_name")), detail_of(fields.get("parameters"), ON))
        case "tool_result" if fields.get("status") == "error":
            why = _text(_fields(fields.get("error")).get("message"))
            if "denied by policy" in why or "requires user confirmation" in why:
                yield Denied(_text(fields.get("tool_id")).partition("__")[0])
        case "result":
            yield _outcome(fields)
        case _:
            return


def _outcome(fields: dict[str, Any]) -> Outcome:
    """Whatever does not say that it went well did not."""
    stats = _fields(fields.get("stats"))
    tokens = _count(stats.get("input_tokens")), _count(stats.get("output_tokens"))
    if fields.get("status") == "success":
        return Outcome("", "", "", input_tokens=tokens[0], output_tokens=tokens[1])
    why = _text(_fields(fields.get("error")).get("message"))
    code = CODE.search(why)
    status = int(code[1]) if code else 0
    is_limit = status == 429 or LIMIT.search(why) is not None
    fault: Fault = "rate_limit" if is_limit else "claude_error"
    # It names no status for an API that is overloaded or out of reach, and no error at all for
    # an answer that broke off.
    passes = status >= 500 if status else not why or why.startswith("[API Error:")
    is_retryable = passes and not is_limit
    return Outcome(fault, "", "", why or "the run failed", *tokens, is_retryable=is_retryable)


CODE = re.compile(r'"code": ?(\d{3})\b')
LIMIT = re.compile(r"RESOURCE_EXHAUSTED|Please wait and try again later|\bquota\b")
# The arguments that say on what a tool is used.
ON = ("command", "file_path", "absolute_path", "dir_path", "path", "pattern", "query", "prompt")


def _conversation_id(value: object) -> str:
    """The id, or nothing if it is none: it becomes part of a command line and of a path."""
    return value if isinstance(value, str) and ID.fullmatch(value) else ""


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return sound(value) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


GEMINI: Engine = Gemini()
