"""An approval: a decision that waits for a person, and the request that it is about. Pure.

It begins once and ends once: answered (allow or deny), or closed because it was decided
elsewhere, in the agent's own terminal or by its end. The first end wins.
"""

import hashlib
import json
import posixpath
import re
from typing import Annotated, Any, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from bullpen.model.question import TOOL as QUESTION
from bullpen.model.question import Choice, Question, questions_text, read_questions
from bullpen.model.state import Blocked, Idle, State, View, Working
from bullpen.model.value import Value
from bullpen.text import literal, literal_value

Decision = Literal["allow", "deny"]

TOOL_CHARACTERS = 200
NAME_CHARACTERS = 40
TEXT_CHARACTERS = 2_000  # in lists and events
RULE_CHARACTERS = 400
OWNER, TIME_OUT, REVIEWER = "owner", "ask_timeout", "reviewer"
GONE = "whoever asked is gone"
WHO = {OWNER: " by you", REVIEWER: " by the reviewer"}

ESCALATE = "Escalate"  # of a director: what it cannot mend
DIRECTOR_RUN = "director:"  # so begins the run of what a director asks; no agent's has a colon
LAND = "Land"  # of the hub itself: whether the work of a pod lands
LAND_ASK = "land:"  # so begins the name under which it asks that; no agent's has a colon
# What says most of a tool's input, and is shown first.
TELLING = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "WebFetch": "url",
    QUESTION: "questions",
    LAND: "what",
    ESCALATE: "what",
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
FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOST = re.compile(r"https?://([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::[0-9]+)?(?:[/?#].*)?")


class ToolRequest(Value):
    """What an engine asks for."""

    tool: str
    input: dict[str, Any]

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it asks the person, with options; nothing if it asks for a permission."""
        return read_questions(self.tool, self.input)


def parse_request(body: bytes) -> ToolRequest | None:
    """The request in what an engine hands to its hook; None if there is none."""
    try:
        fields = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(fields)  # what is nested too deep for that cannot be kept
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    tool, tool_input = fields.get("tool_name"), fields.get("tool_input", {})
    if fields.get("hook_event_name", "PermissionRequest") != "PermissionRequest":
        return None
    if not isinstance(tool, str) or not isinstance(tool_input, dict):
        return None
    # Not cut: the beginning of a name may be another tool's name.
    tool = literal(tool)
    if not 0 < len(tool) <= TOOL_CHARACTERS:
        return None
    return ToolRequest(tool=tool, input=tool_input)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def digest(request: ToolRequest) -> str:
    """The same for the same request, and for no other."""
    text = json.dumps([request.tool, request.input], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def describe(request: ToolRequest) -> str:
    """All that it wants to do, for people. What a tool is mostly about comes first, then each
    other field as `⟨name⟩ value`: no value can hold such a mark (see `text.literal`)."""
    if not request.input or not all(map(FIELD.fullmatch, request.input)):
        return literal_value(request.input)
    telling = TELLING.get(request.tool)
    others = [
        f"⟨{name}⟩ {literal_value(value)}"
        for name, value in request.input.items()
        if name != telling
    ]
    if request.questions:
        first = [questions_text(request.input)]
    else:
        first = [literal_value(request.input[telling])] if telling in request.input else []
    return "\n".join([*first, *others])


# ── rules ────────────────────────────────────────────────────────────────────


class Rule(Value):
    """What would allow the same again; or why no rule can say that. `wider`: what it would allow
    beside that, in words; a person reads it before the rule is made."""

    rule: str = ""
    wider: str = ""
    why_not: str = ""


def rule_for(request: ToolRequest) -> Rule:
    """Not the engine's own suggestions: they are broader (`git push *` for `git push`, a whole
    directory for a file), and come from the agent's side."""
    tool, tool_input = request.tool, request.input
    if request.questions:
        return Rule(why_not="it is a question, which has an answer each time")
    if tool == LAND:
        return Rule(why_not="each landing is allowed by itself")
    if tool == ESCALATE:
        return Rule(why_not="each is decided by itself")
    if tool == "Bash":
        proposal = _command_rule(tool_input.get("command"))
    elif tool in FILE_RULES:
        proposal = _file_rule(FILE_RULES[tool], tool_input.get(TELLING[tool]))
    elif tool == "WebFetch":
        proposal = _host_rule(tool_input.get("url"))
    elif (MCP_TOOL if tool.startswith("mcp__") else PLAIN_TOOL).fullmatch(tool):
        proposal = Rule(rule=tool, wider=f"every use of {tool}, whatever it is given")
    else:
        proposal = Rule(why_not="the tool's name is no name for a rule")
    if len(proposal.rule) > RULE_CHARACTERS:
        return Rule(why_not=f"it would be longer than {RULE_CHARACTERS} characters")
    return proposal


def _command_rule(command: object) -> Rule:
    if not isinstance(command, str) or not command.strip():
        return Rule(why_not="there is no command")
    if character := NO_COMMAND_RULE.search(command):
        return Rule(why_not=f"no rule can mean exactly this command: it holds {character[0]!a}")
    if command != command.strip() or command.endswith(":*"):
        return Rule(why_not="no rule can mean exactly this command")
    return Rule(rule=f"Bash({command})")


def _host_rule(url: object) -> Rule:
    host = HOST.fullmatch(url) if isinstance(url, str) else None
    if host is None:
        return Rule(why_not="no plain address")
    return Rule(rule=f"WebFetch(domain:{host[1]})", wider=f"every address of {host[1]}")


def _file_rule(tool: str, path: object) -> Rule:
    # Two slashes at the beginning are left by `normpath`, and the root is everything.
    if not isinstance(path, str) or posixpath.normpath(path) != path or path[1:2] in ("", "/"):
        return Rule(why_not="its path is not a plain one")
    if not path.startswith("/"):
        return Rule(why_not="its path is not from the root")
    if character := NO_PATH_RULE.search(path):
        return Rule(why_not=f"no rule can mean exactly this path: it holds {character[0]!a}")
    if path.endswith(" "):
        return Rule(why_not="no rule can mean exactly this path")
    wider = f"every change of {path}" if tool == "Edit" else ""
    return Rule(rule=f"{tool}(/{path})", wider=wider)  # two slashes: from the root


# ── the approval ─────────────────────────────────────────────────────────────


class Waiting(Value):
    """Nobody has decided. `reachable`: the engine waits for our answer, too; else only its own
    dialog can be answered. `reviewing`: the reviewer may decide before the person does."""

    status: Literal["waiting"] = "waiting"
    reachable: bool = False
    reviewing: bool = False


class Answered(Value):
    """Decided by a person or the reviewer, by the API."""

    status: Literal["answered"] = "answered"
    decision: Decision
    by: str
    name: str = ""  # what the person called themselves
    reason: str = ""
    always: str = ""  # the rule that was added
    answers: tuple[Choice, ...] = ()  # to its questions
    at: float


class Closed(Value):
    """Decided, but not by the API."""

    status: Literal["closed"] = "closed"
    why: str
    at: float


Status = Annotated[Waiting | Answered | Closed, Field(discriminator="status")]


class Approval(Value):
    """One decision. `id` is a small number for people; `ask` is what the engine's hook calls it."""

    id: int
    ask: str
    agent: str
    run: str
    tool: str
    text: str = ""  # the beginning of what it wants to do, as `describe` says it
    more: int = 0  # characters of that which are not here
    digest: str = ""  # of the whole request
    rule: Rule = Rule()
    questions: tuple[Question, ...] = ()  # of the agent; `text` has them, too
    review: str = ""  # what the reviewer said of it
    asked: float
    state: Status = Waiting()

    @property
    def is_open(self) -> bool:
        return isinstance(self.state, Waiting)


class WholeApproval(Approval):
    """One with all that it is about: `text` is whole, `input` is what the engine gave."""

    input: dict[str, Any] | None = None  # None: it has ended, and only its beginning was kept


class ApprovalList(Value):
    """The approvals that wait, the oldest first; with `all` also those that ended last."""

    approvals: tuple[Approval, ...]


class ApprovalAnswer(BaseModel):
    """An answer. `answer` names it, so that sending it twice is the same as once."""

    model_config = ConfigDict(extra="forbid")

    decision: Decision
    reason: str = Field(default="", max_length=2000)
    always: bool = False
    role: bool = False
    answer: str = Field(default="", max_length=64)
    name: str = Field(default="", max_length=NAME_CHARACTERS, description="of who answers")


def director_run(director: str) -> str:
    """What stands for a run where a director asks."""
    return f"{DIRECTOR_RUN}{director}"


def words(approval: Approval) -> str:
    """How it ended, or that it waits."""
    match approval.state:
        case Answered(answers=answers, by=by, name=name) if answers:
            return f"answered{_who(by, name)}"
        case Answered(decision=decision, by=by, name=name, reason=reason):
            done = "allowed" if decision == "allow" else "denied"
            who = _who(by, name)
            return f"{done}{who}" if by == OWNER else f"{done}{who}: {reason}"
        case Closed(why=why):
            return why
        case Waiting(reviewing=True):
            return "is being reviewed"
        case Waiting(reachable=reachable):
            return "waits for you" if reachable else "answer in the terminal"
        case _:
            assert_never(approval.state)


def _who(by: str, name: str) -> str:
    return f" by {literal(name)}" if by == OWNER and name else WHO.get(by, "")


def decided_elsewhere(asked_at: float, view: View, is_waited_for: bool) -> str:
    """Why no answer is needed any more; empty if one is. Only reports after the question count.
    The state file shows the dialog. In a headless run it shows none; there the hook that waits
    proves that an answer is needed, since other tools may go on meanwhile."""
    if view.is_over:
        return "the agent ended"
    if view.stage is not None:  # a task agent: it has no terminal to be answered in
        if is_waited_for:
            return ""
        if view.told is None:  # it has no task since this hub began
            return _what_happened(Idle())
    if view.filed is not None:
        if view.filed_at > asked_at:
            return _what_happened(view.filed)
        if is_waited_for:
            return ""
    return _what_happened(view.told) if view.told_at > asked_at else ""


def is_abandoned(view: View, has_dialogs: bool) -> bool:
    """Whether one that no hook waits for can be answered nowhere: its program has no dialog of its
    own, no terminal, or waits for nothing but a prompt."""
    return not has_dialogs or view.stage is not None or isinstance(view.filed, Idle)


def state_after(approval: Approval, view: View) -> State:
    """What an agent does once that one is decided, if nothing else of it waits."""
    match approval.state:
        case Answered(decision="allow", answers=()):
            return Working(tool=approval.tool)
        case Answered():
            return Working(doing="thinking")
        case Closed(why=why) if why == GONE and view.filed is None:
            return Working()  # as when it asked
        case _:
            return _present(view, approval.asked)


def _present(view: View, asked_at: float) -> State:
    """What is known of it now, without the question."""
    if view.filed is not None and view.filed_at > asked_at:
        return view.filed
    return view.told or view.state


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
