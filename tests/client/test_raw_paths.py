"""Commands, the view and directors send calls, which are made in `client` and `directors/calls`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import bullpen

ROOT = Path(bullpen.__file__).parent
ROOMS = ("cli", "web", "directors", "terminal")
MAKES_CALLS = {"directors/calls.py"}
OF_A_REQUEST = {"Call", "Stream", "EventStream", "Request"}
SENDS = {"do", "fetch", "stream", "follow"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def raw_paths(tree: ast.Module) -> Iterator[str]:
    """What makes a request by hand: a call that is made here, or a path that is sent."""
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bullpen.client")
        for alias in node.names
        if alias.name in OF_A_REQUEST
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "bullpen.hot":
            if any(alias.name == "wire" for alias in node.names):
                yield f"{node.lineno}: hot/wire"
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            is_path = any(isinstance(text, str) and text.startswith("/") for text in texts)
            if name in ours or (name in SENDS and is_path):
                yield f"{node.lineno}: {name}"


def test_no_path_is_written_outside_the_client() -> None:
    found = {name: list(raw_paths(tree)) for name, tree in modules() if name not in MAKES_CALLS}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_view_knows_nothing_of_directors_but_their_calls() -> None:
    known = {
        f"{node.module}.{alias.name}"
        for name, tree in modules()
        if name.startswith("web/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bullpen.directors")
        for alias in node.names
    }
    assert known == {"bullpen.directors.calls"}


def test_a_raw_path_is_found() -> None:
    for text in (
        'from bullpen.client.call import Call\nCall("GET", "/status", read=bytes)',
        'ask.do(socket, "/status")',
        "from bullpen.hot import wire",
    ):
        assert list(raw_paths(ast.parse(text))), text
