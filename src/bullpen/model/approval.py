"""An approval: a decision that waits for a person; and the request that it is about. Pure.

It is asked once and ends once: answered (allow or deny), or closed because it was decided
elsewhere, in the agent's own terminal or by its end. The first end wins.
"""

import json
import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field

from bullpen.model.state import Blocked, Idle, Value, View, Working

Decision = Literal["allow", "deny"]

TOOL_CHARACTERS = 80
TEXT_CHARACTERS = 10_000
RULE_CHARACTERS = 400
OWNER, TIME_OUT = "owner", "ask_timeout"
REFUSED = "The person in charge of this agent said no."

# What says most of a tool's input; of the others all of it is shown.
TELLING = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "WebFetch": "url",
}
# Claude Code (2.1.325) looks at `Edit` rules for everything that writes; at `Write(...)` for none.
FILE_RULES = {
    "Read": "Read",
    "Write": "Edit",
    "Edit": "Edit",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
}
# `*` matches anything in a rule and cannot be escaped; with the others, or with line breaks, a
# rule for exactly the same command does not match it (2.1.325).
NO_COMMAND_RULE = re.compile(r"[*\\$`<>]|[^ -~]")
NO_PATH_RULE = re.compile(r"[^A-Za-z0-9_./@+=:,~ -]")
MCP_TOOL = re.compile(r"mcp__[A-Za-z0-9_.-]+__[A-Za-z0-9_.-]+")
PLAIN_TOOL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
HOST = re.compile(r"https?://([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::[0-9]+)?(?:[/?#].*)?")


class Request(Value):
    """What an engine asks for."""

    tool: str
    input: dict[str, Any]


def parse_request(body: bytes) -> Request | None:
    """The request in what an engine hands to its hook; None if there is none."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    tool, given = fields.get("tool_name"), fields.get("tool_input", {})
    if fields.get("hook_event_name", "PermissionRequest") != "PermissionRequest":
        return None
    if not isinstance(tool, str) or not tool or not isinstance(given, dict):
        return None
    return Request(tool=sound(tool)[:TOOL_CHARACTERS], input=given)


def sound(text: str) -> str:
    """Without half surrogates, which JSON can hold and nobody can send on."""
    return text.encode("utf-8", "replace").decode()


def describe(request: Request) -> str:
    """What it wants to do, for people; of files their names, never their contents."""
    telling = TELLING.get(request.tool)
    value = request.input.get(telling) if telling else None
    if not isinstance(value, str):
        return sound(json.dumps(request.input, ensure_ascii=False))
    flags = [f" [{key}]" for key, is_set in request.input.items() if is_set is True]
    if isinstance(content := request.input.get("content"), str):
        flags.append(f" ({len(content)} characters)")
    return sound(value) + "".join(map(sound, flags))


# ── rules ────────────────────────────────────────────────────────────────────


class Rule(Value):
    """What would allow the same again, and nothing else; or why no rule can say that."""

    rule: str = ""
    why_not: str = ""


def rule_for(request: Request) -> Rule:
    """Not the engine's own suggestions: they are broader (`git push *` for `git push`, a whole
    directory for a file), and come from the agent's side."""
    tool, given = request.tool, request.input
    if tool == "Bash":
        found = _command_rule(given.get("command"))
    elif tool in FILE_RULES:
        found = _file_rule(FILE_RULES[tool], given.get(TELLING[tool]))
    elif tool == "WebFetch":
        host = HOST.fullmatch(str(given.get("url")))
        found = (
            Rule(rule=f"WebFetch(domain:{host[1]})") if host else Rule(why_not="no plain address")
        )
    elif (MCP_TOOL if tool.startswith("mcp__") else PLAIN_TOOL).fullmatch(tool):
        found = Rule(rule=tool)
    else:
        found = Rule(why_not="the tool's name is no name for a rule")
    if len(found.rule) > RULE_CHARACTERS:
        return Rule(why_not=f"it would be longer than {RULE_CHARACTERS} characters")
    return found


def _command_rule(command: object) -> Rule:
    if not isinstance(command, str) or not command.strip():
        return Rule(why_not="there is no command")
    if found := NO_COMMAND_RULE.search(command):
        return Rule(why_not=f"no rule can mean exactly this command: it holds {found[0]!a}")
    if command != command.strip() or command.endswith(":*"):
        return Rule(why_not="no rule can mean exactly this command")
    return Rule(rule=f"Bash({command})")


def _file_rule(tool: str, path: object) -> Rule:
    # Two slashes at the beginning are left by `normpath`, and the root is everything.
    if not isinstance(path, str) or posixpath.normpath(path) != path or path[1:2] in ("", "/"):
        return Rule(why_not="its path is not a plain one")
    if not path.startswith("/"):
        return Rule(why_not="its path is not from the root")
    if found := NO_PATH_RULE.search(path):
        return Rule(why_not=f"no rule can mean exactly this path: it holds {found[0]!a}")
    if path.endswith(" "):
        return Rule(why_not="no rule can mean exactly this path")
    return Rule(rule=f"{tool}(/{path})")  # two slashes: from the root


# ── the approval ─────────────────────────────────────────────────────────────


class Waiting(Value):
    """Nobody has decided. `reachable`: the engine waits for our answer, too; else only its own
    dialog can be answered."""

    status: Literal["waiting"] = "waiting"
    reachable: bool = False


class Answered(Value):
    """Decided by somebody, through us."""

    status: Literal["answered"] = "answered"
    decision: Decision
    by: str
    reason: str = ""
    always: str = ""  # the rule that was added
    at: float


class Closed(Value):
    """Decided, but not through us."""

    status: Literal["closed"] = "closed"
    why: str
    at: float


Status = Annotated[Waiting | Answered | Closed, Field(discriminator="status")]


class Approval(Value):
    """One question. `id` is a small number for people; `ask` is what the engine's hook calls it."""

    id: int
    ask: str
    agent: str
    run: str
    tool: str
    text: str  # what it wants to do
    more: int = 0  # characters of it that are not kept
    rule: Rule = Rule()
    review: str = ""  # what the reviewer said of it
    asked: float
    state: Status = Waiting()

    @property
    def is_open(self) -> bool:
        return isinstance(self.state, Waiting)


def words(approval: Approval) -> str:
    """How it ended, or that it waits."""
    match approval.state:
        case Answered(decision=decision, by=by, reason=reason):
            done = "allowed" if decision == "allow" else "denied"
            return f"{done} by you" if by == OWNER else f"{done}: {reason}"
        case Closed(why=why):
            return why
        case Waiting(reachable=reachable):
            return "waits for you" if reachable else "answer in the terminal"
        case _:
            assert_never(approval.state)


def settled_elsewhere(asked: float, view: View, is_waited_for: bool) -> str:
    """Why nobody has to answer any more; empty if somebody has to. Only what was said after the
    question counts. The state file knows the dialog; in a headless run, where it says nothing of
    one, the hook that waits is the proof: other tools may well go on meanwhile."""
    if view.is_over:
        return "the agent ended"
    if view.filed is not None:
        if view.filed_at > asked:
            return _what_happened(view.filed)
        if is_waited_for:
            return ""
    return _what_happened(view.told) if view.told_at > asked else ""


def _what_happened(state: object) -> str:
    match state:
        case Idle():
            return "the turn ended"
        case Working(doing="review"):
            return ""
        case Working():
            return "answered in the terminal"
        case Blocked() | _:
            return ""


def hook_output(state: Status) -> str:
    """What Claude Code's PermissionRequest hook prints; nothing: its own dialog decides."""
    match state:
        case Answered(decision="allow", always=always):
            return decision_json(allow=True, rule=always)
        case Answered(decision="deny", reason=reason):
            return decision_json(allow=False, message=reason)
        case _:
            return ""


def decision_json(*, allow: bool, message: str = "", rule: str = "") -> str:
    """The decision in the engine's form. A rule is for the running session: Claude Code does not
    read a file given with --settings again."""
    decision: dict[str, Any] = {"behavior": "allow" if allow else "deny"}
    if not allow:
        decision["message"] = message or REFUSED
    if allow and rule:
        decision["updatedPermissions"] = [_session_rule(rule)]
    output = {"hookEventName": "PermissionRequest", "decision": decision}
    return json.dumps({"hookSpecificOutput": output})


def _session_rule(rule: str) -> Mapping[str, Any]:
    tool, bracket, content = rule.partition("(")
    added = {"toolName": tool, "ruleContent": content[:-1]} if bracket else {"toolName": tool}
    return {
        "type": "addRules",
        "rules": [added],
        "behavior": "allow",
        "destination": "session",
    }
