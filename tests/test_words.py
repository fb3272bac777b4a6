"""Names say what they hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
# Every function had one of these, and none said what it was: a row, an answer, a role?
VAGUE = frozenset({"found", "asked", "told", "said"})
# One word with up to eleven meanings each.
METAPHORS = frozenset(
    [
        "place",
        "held",
        "beside",
        "seats",
        "seating",
        "takers",
        "taker",
        "settled",
        "settle",
        "ground",
        "doors",
        "walls",
        "loose",
        "essence",
        "sweep",
        "parking",
    ]
)


def variables(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Classes, functions, arguments, and what is assigned in functions, also to `self`; fields of
    stored records stay as they are."""
    for function in ast.walk(tree):
        if isinstance(function, ast.ClassDef):
            yield function.lineno, function.name
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield function.lineno, function.name
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                yield node.lineno, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.attr


def vague_names(source: str) -> list[tuple[int, str]]:
    names = set(variables(ast.parse(source)))
    vague = VAGUE | METAPHORS
    return sorted((line, name) for line, name in names if name.lstrip("_").lower() in vague)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def get():\n    found = 1\n    return found", ["found"]),
        ("def get(asked): ...", ["asked"]),
        ("async def get():\n    for told, (said, row) in []: ...", ["said", "told"]),
        ("def sweep(): ...", ["sweep"]),
        ("def _told(): ...", ["_told"]),
        ("class Held: ...", ["Held"]),
        ("def set(self):\n    self._held = 1", ["_held"]),
        ("class Row:\n    asked: float\n\ndef get(row):\n    return row.asked", []),
    ],
)
def test_every_way_to_use_a_vague_name_is_seen(source: str, names: list[str]) -> None:
    assert sorted(name for _, name in vague_names(source)) == names


def test_names_say_what_they_hold() -> None:
    seen = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "node_modules" not in path.parts
        for line, name in vague_names(path.read_text())
    ]
    assert seen == []
