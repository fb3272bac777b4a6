"""The list of approvals: nothing is cut, and no line is longer than the terminal."""

import pytest

from bullpen.model.approval import Approval, Rule, Waiting
from bullpen.model.approval_text import list_lines
from bullpen.text import width

NOW = 1000.0
TEXT = "rm -rf build && make all " + "x" * 120


def approval(id: int, text: str, tool: str = "Bash") -> Approval:
    return Approval(
        id=id,
        ask="a" * 8,
        agent="amy",
        run="r",
        tool=tool,
        text=text,
        rule=Rule(rule="Read(//x)", wider="every change of /x"),
        asked=NOW - 12,
        state=Waiting(reachable=True),
    )


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_q4_the_list_fits_the_terminal_and_leaves_nothing_out(columns: int) -> None:
    lines = list_lines([approval(7, TEXT), approval(8, "ls", "mcp__fleet__whoami")], columns, NOW)
    assert all(width(line) <= max(columns, 25) for line in lines)
    shown = "".join(line.strip() for line in lines)
    assert TEXT.replace(" ", "") in shown.replace(" ", "")
    assert "--always would allow more" in " ".join(line.strip() for line in lines) or columns < 40


def test_q4_a_pipe_gets_a_line_each() -> None:
    lines = list_lines([approval(7, TEXT)], 0, NOW)
    assert lines[0] == f" #7  amy  Bash  12s   {TEXT}"
