"""Order among the tests themselves."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.name


def imported(path: Path) -> set[str]:
    """The modules that a file imports, as far as they may be ours; `from a import b` gives
    both `a` and `a.b`, since `b` may be a module."""
    package = (PACKAGE, *path.relative_to(TESTS).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
