"""`bullpen tree`: every agent under the one that started it. Pure."""

from collections.abc import Iterator

from bullpen.hub.render.words import age
from bullpen.model.state import Blocked
from bullpen.model.tree import WORKER
from bullpen.model.tree_shown import Tree, TreeNode
from bullpen.model.usage import short_usd
from bullpen.table import lay_out
from bullpen.text import printable

NAMES = ("agent", "role", "state", "age", "cost")
COLOURS = {"blocked": "33", "working": "32", "exited": "2", "lost": "31", "error": "31"}


def tree_text(tree: Tree, *, now: float, colour: bool = False, columns: int = 0) -> str:
    """One line each; 0 columns is no limit."""
    nodes = list(_lines(tree.agents, ""))
    rows = [("you", "", "", "", "")]
    rows += [
        (f"{branch}{_called(node, parent)}", *_cells(node, now)) for branch, node, parent in nodes
    ]
    lines = lay_out(NAMES, rows, columns, drop=("age", "cost", "role"), cut=("agent", "state"))
    if colour:
        painted = [COLOURS.get(node.state.state, "") for _, node, _ in nodes]
        lines[1:] = [
            f"\x1b[{code}m{line}\x1b[0m" if code else line
            for code, line in zip(painted, lines[1:], strict=True)
        ]
    if not nodes:
        lines.append("no agents · bullpen run --role ROLE")
    return "\n".join(lines) + "\n"


def _lines(
    nodes: tuple[TreeNode, ...], before: str, parent: str = ""
) -> Iterator[tuple[str, TreeNode, str]]:
    for node in nodes:
        is_last = node is nodes[-1]
        yield f"{before}{'└─ ' if is_last else '├─ '}", node, parent
        yield from _lines(node.children, f"{before}{'   ' if is_last else '│  '}", node.name)


def _called(node: TreeNode, parent: str) -> str:
    """A worker stands under the agent whose name its own begins with."""
    own = node.name.removeprefix(parent) if node.name.startswith(f"{parent}{WORKER}") else node.name
    return printable(own.removeprefix("."))


def _cells(node: TreeNode, now: float) -> tuple[str, str, str, str]:
    words = printable(node.words)
    if node.landing:  # says more than that it reported
        words += f" · {printable(node.landing)}"
    elif node.reported:
        words += f" · reported {node.reported}"
    if isinstance(node.state, Blocked):
        words += "  ← needs you"
    spent = short_usd(node.usd) if node.usd else ""
    if node.budget_usd is not None:
        spent = f"{short_usd(node.usd)} of {short_usd(node.budget_usd)}"
    return printable(node.role or node.engine), words, age(now - node.since), spent
