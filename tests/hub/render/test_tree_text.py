"""What `bullpen tree` prints, made without a hub."""

from typing import Any

import pytest

from bullpen.hub.render.tree import tree_text
from bullpen.model.state import Blocked, Idle, State, Working, words
from bullpen.model.tree_shown import Tree, TreeNode
from bullpen.text import width

NOW = 4720.0


def node(name: str, role: str, state: State, *children: TreeNode, **fields: Any) -> TreeNode:
    return TreeNode(
        name=name,
        kind="subtree",
        role=role,
        state=state,
        words=words(state),
        since=1000.0,
        running=True,
        children=children,
        **fields,
    )


EXPORT = node(
    "main.export",
    "coder",
    Blocked(on="permission", tool="Bash"),
    node("main.export.w.docs", "gemini", Idle(), reported="success"),
    node("main.export.w.tests", "coder", Working(tool="Bash")),
    usd=0.4,
)
LEAD = node(
    "lead",
    "manager",
    Working(doing="waiting for children"),
    EXPORT,
    node("main.cli", "coder", Idle(), reported="success", landing="conflict with lead: cli.py"),
    usd=1.9,
    budget_usd=10.0,
)
TREE = Tree(agents=(LEAD, node("amy", "coder", Idle())))


def test_i3_each_stands_under_who_started_it_with_what_matters_most() -> None:
    assert tree_text(TREE, now=NOW).splitlines() == [
        "you",
        "├─ lead            manager  working (waiting for children)           1h  $1.90 of $10.00",
        "│  ├─ main.export  coder    blocked (permission: Bash)  ← needs you  1h  $0.40",
        "│  │  ├─ w.docs    gemini   idle · reported success                  1h",
        "│  │  └─ w.tests   coder    working (Bash)                           1h",
        "│  └─ main.cli     coder    idle · conflict with lead: cli.py        1h",
        "└─ amy             coder    idle                                     1h",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_i3_it_fits_the_terminal_and_names_and_states_stay(columns: int) -> None:
    lines = tree_text(TREE, now=NOW, columns=columns).splitlines()
    assert max(map(width, lines)) <= columns
    assert [line.split()[-1] for line in lines[-1:]] == ["1h" if columns >= 80 else "idle"]
    assert "│  ├─ main.export" in lines[2] and "blocked" in lines[2]
    assert "idle · conflict with" in lines[5]


def test_i3_an_empty_tree_says_how_to_begin() -> None:
    assert tree_text(Tree(agents=()), now=NOW) == "you\nno agents · bullpen run --role ROLE\n"
