"""How an approval is shown: in a line of the list, and whole.

Called by `hub/render` for the list, by `approvals` and `approve` for one, and where one of several
is chosen. The text was escaped when it was asked (`text.literal`); here it is never changed, and
what a line leaves out is counted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bullpen.text import LEAST_COLUMNS, align, broken, in_one_line, printable, width

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown
    from bullpen.model.approval import Approval

SHOWN_CHARACTERS = 160
BELOW = "     "  # before what stands below the line of an approval


def list_lines(
    approvals: "Sequence[Approval]", columns: int, now: float, host: str = ""
) -> list[str]:
    """Those of the list, no longer than so many columns (0: no limit). A text that does not fit
    beside the rest stands below it, in as many lines as it needs: nothing is cut. `host` is their
    machine, if it is another one."""
    lines: list[str] = []
    rows = [
        [
            f" {label(one, host)}",
            _at(host, one.agent),
            printable(one.tool),
            age(now - one.asked),
            "",
        ]
        for one in approvals
    ]
    for head, one in zip(align(rows), approvals, strict=True):
        texts = _texts(one, host)
        line = f"{head}   {texts[0]}"
        is_one = len(texts) == 1 and (not columns or width(line) <= columns)
        parts = [line] if is_one else [head, *(BELOW + text for text in texts)]
        for part in (*parts, *(BELOW + note for note in notes(one, host))):
            lines += _broken(part, columns)
    return lines


def label(approval: "Approval", host: str = "") -> str:
    """What names it in a list and in commands: `#7`, or `desk/7` of another machine."""
    return _at(host, approval.id) if host else f"#{approval.id}"


def _at(host: str, what: object) -> str:
    return f"{host}/{what}" if host else f"{what}"


def terminal_lines(
    agents: "Sequence[AgentShown]",
    approvals: "Sequence[Approval]",
    columns: int,
    now: float,
    host: str = "",
) -> list[str]:
    """Agents that wait for a person, and not by an approval."""
    runs = {approval.run for approval in approvals}
    blocked = [one for one in agents if one.state.state == "blocked" and one.run not in runs]
    rows = [
        ["  –", _at(host, one.name), printable(one.words), age(now - one.since)] for one in blocked
    ]
    lines: list[str] = []
    for head, one in zip(align(rows), blocked, strict=True):
        lines += _broken(head, columns)
        name = _at(host, one.name)
        where = f"bullpen attach {name} · bullpen peek {name} shows it"
        lines += _broken(f"{BELOW}answer it in its terminal · {where}", columns)
    return lines


def _texts(approval: "Approval", host: str) -> list[str]:
    """What it is about: a question as it is, with a line for each option; else one line."""
    if not approval.questions:
        return [excerpt(approval, host)]
    rest = f"… ({approval.more} more characters · bullpen approvals {_at(host, approval.id)})"
    return [*approval.text.split("\n"), *([rest] if approval.more else [])]


def _broken(line: str, columns: int) -> list[str]:
    """A line in parts of so many columns, each as far to the right as it."""
    if not columns:
        return [line]
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    room = max(columns - len(indent), LEAST_COLUMNS)
    return [f"{indent}{part}" for part in broken(text, room)]


def excerpt(approval: "Approval", host: str = "") -> str:
    """One line; what is not shown is counted, so that nobody takes a part for the whole."""
    if is_seen_in_list(approval):
        return in_one_line(approval.text)
    total = len(approval.text) + approval.more
    shown = in_one_line(approval.text[:SHOWN_CHARACTERS])
    number = _at(host, approval.id)
    return f"{shown}… ({len(shown)} of {total} characters · bullpen approvals {number})"


def is_seen_in_list(approval: "Approval") -> bool:
    """Whether its line in the list shows all of it."""
    return len(approval.text) <= SHOWN_CHARACTERS and not approval.more


def notes(approval: "Approval", host: str = "") -> list[str]:
    """What else is to be known before it is answered."""
    rule, lines = approval.rule, []
    if getattr(approval.state, "reviewing", False):
        lines.append("being reviewed · you may answer it before the reviewer does")
    if approval.review:
        lines.append(f"reviewer said: {printable(approval.review)}")
    if rule.wider:
        lines.append(f"--always would allow more: {printable(rule.wider)} ({rule.rule})")
    if not getattr(approval.state, "reachable", False):
        lines.append(f"answer in the terminal · bullpen attach {_at(host, approval.agent)}")
    elif approval.questions:
        each = " ".join(["ANSWER"] * len(approval.questions))
        answer = f"bullpen answer {_at(host, approval.id)} {each}"
        lines.append(f"a number, words or a text of your own · {answer}")
    return lines


def whole(approval: "Approval", now: float, host: str = "") -> str:
    """All of it."""
    total = len(approval.text) + approval.more
    head = f"{label(approval, host)}  {_at(host, approval.agent)}  {printable(approval.tool)}"
    head += f"  {age(now - approval.asked)}  {total} characters"
    end = [f"({approval.more} more characters were not kept)"] if approval.more else []
    return "\n".join([head, *notes(approval, host), "", approval.text, *end])


def age(seconds: float) -> str:
    """How long ago, in one unit."""
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
