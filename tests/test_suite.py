"""Order among the tests themselves."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests import tiers

TESTS = Path(__file__).parent
PACKAGE = TESTS.name
STORM = "@pytest.mark.storm"


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """The modules that a file imports, as far as they may be ours; `from a import b` gives
    both `a` and `a.b`, since `b` may be a module."""
    package = (PACKAGE, *path.relative_to(TESTS).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == PACKAGE}


def is_run_by_pytest(module: str) -> bool:
    """Is it a module that pytest loads by itself?"""
    path = TESTS.parent / f"{module.replace('.', '/')}.py"
    return path.is_file() and (path.name == "conftest.py" or path.name.startswith("test_"))


@pytest.mark.storm
def test_shared_helpers_are_in_modules_of_their_own() -> None:
    """A conftest that is imported may be there twice, and a test module that is imported takes
    its fixtures and tests along: what is shared lives in a support module beside them."""
    wrong = {
        str(path.relative_to(TESTS)): refused
        for path in sorted(TESTS.rglob("*.py"))
        if (refused := sorted(filter(is_run_by_pytest, imported(path))))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    [
        "from tests.hub.conftest import pen",
        "from tests.hub import conftest",
        "from .conftest import pen",
        "from . import conftest",
        "from ..conftest import home",
        "import tests.hub.conftest",
        "from tests.test_suite import imported",
        "def inner():\n    from tests.test_suite import imported",
    ],
)
def test_every_way_to_import_one_is_seen(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("conftest.py", "test_suite.py", "hub/conftest.py", "hub/user.py"):
        path = tmp_path / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line)
    monkeypatch.setattr("tests.test_suite.TESTS", tmp_path / PACKAGE)
    assert any(map(is_run_by_pytest, imported(tmp_path / PACKAGE / "hub" / "user.py")))


# ── when they run ──

# Of every requirement that is built: letter, last number.
BUILT = {
    "a": 4,
    "b": 11,
    "c": 5,
    "d": 8,
    "e": 7,
    "f": 4,
    "g": 5,
    "h": 10,
    "i": 5,
    "k": 6,
    "l": 6,
    "m": 8,
    "n": 6,
    "o": 3,
    "p": 7,
    "q": 5,
    "r": 9,
    "s": 3,
    "t": 13,
    "v": 11,
    "w": 17,
    "x": 8,
}


MODULE_STORM = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.storm\b", re.MULTILINE)


def named_tests(text: str) -> list[tuple[str, set[str]]]:
    """The names of a module's tests, each with its decorators of one line. By lines, as the
    formatter leaves them: to parse all tests takes seconds."""
    found: list[tuple[str, set[str]]] = []
    decorators: set[str] = set()
    of_module = {STORM} if MODULE_STORM.search(text) else set()
    for line in text.splitlines():
        if line.startswith("@"):
            decorators.add(line)
        elif line.startswith("def "):
            name = line.removeprefix("def ").partition("(")[0]
            if name.startswith("test_"):
                found.append((name, decorators | of_module))
            decorators = set()
        elif line and line[0] not in " )]}#":
            decorators = set()
    return found


@pytest.mark.storm
def test_tests_and_their_decorators_are_seen_as_python_sees_them() -> None:
    for path in TESTS.rglob("test_*.py"):
        body = parsed(path).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        marks = [ast.unparse(node) for node in body if isinstance(node, ast.Assign)]
        is_storm = any(each.startswith("pytestmark") and "mark.storm" in each for each in marks)
        seen = {
            (node.name, is_storm or STORM in {f"@{ast.unparse(e)}" for e in node.decorator_list})
            for node in functions
            if node.name.startswith("test_")
        }
        assert {(name, STORM in marks) for name, marks in named_tests(path.read_text())} == seen, (
            path
        )


def numbers(storm: bool) -> set[str]:
    """Of the requirements whose tests run in `make storm` alone, or also elsewhere."""
    return {
        number
        for path in TESTS.rglob("test_*.py")
        for name, decorators in named_tests(path.read_text())
        if (STORM in decorators) == storm
        for number in re.findall(r"(?<=_)[a-z][0-9]+(?=_)", name)
    }


def test_every_requirement_has_a_test_outside_of_the_storm() -> None:
    wanted = {f"{letter}{n + 1}" for letter, last in BUILT.items() for n in range(last)}
    assert wanted - numbers(storm=False) == set()


def test_nothing_is_proved_by_the_storm_alone() -> None:
    assert numbers(storm=True) - numbers(storm=False) == set()


@pytest.mark.parametrize(
    ("cases", "number", "kept"),
    [(10, 1, {0}), (10, 2, {0, 9}), (9, 3, {0, 4, 8}), (2, 5, {0, 1}), (1, 1, {0})],
)
def test_few_cases_are_spread_evenly(cases: int, number: int, kept: set[int]) -> None:
    assert tiers.spread(cases, number) == kept
