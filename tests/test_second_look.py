"""A test that failed once is looked at again; one that is broken fails the run all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[1]

# Fails in the runs that it is told to, counted from 0.
SUITE = """
import pathlib
import pytest

def run():
    path = pathlib.Path({place!r}) / "runs"
    with path.open("a") as file:
        file.write("x")
    return len(path.read_text()) - 1

{tests}
"""
ONE = 'def test_one():\n    assert run() not in {fails!r}, "the first words"\n'
# The plugins that the project leaves out take seconds to load.
OPTIONS = "-p tests.second_look -p no:schemathesis -p no:hypothesispytest"
OTHER = "def test_other():\n    pass\n"


def ran(place: Path, tests: str, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "test_sample.py").write_text(SUITE.format(place=str(place), tests=tests))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(CLONE), "PYTEST_ADDOPTS": OPTIONS},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("-n", "2")])
@pytest.mark.few(1)
def test_what_fails_once_does_not_fail_the_run_and_is_told(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    found = ran(tmp_path, ONE.format(fails=[0]) + OTHER, "--second-look", *processes)
    assert found.returncode == 0, found.stdout
    assert "flaky: test_sample.py::test_one" in found.stdout.splitlines()
    assert "1 passed, 1 flaky" in found.stdout.splitlines()[-1]
    assert (tmp_path / "runs").read_text() == "xx"
    log = (tmp_path / ".flaky.log").read_text()
    assert log.startswith("==== test_sample.py::test_one (run ")
    assert "the first words" in log


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("-n", "2")])
@pytest.mark.few(1)
def test_what_fails_again_fails_the_run(tmp_path: Path, processes: tuple[str, ...]) -> None:
    found = ran(tmp_path, ONE.format(fails=[0, 1]) + OTHER, "--second-look", *processes)
    assert found.returncode == 1
    assert "test_one failed again" in found.stdout
    assert "1 failed, 1 passed" in found.stdout.splitlines()[-1]
    assert not (tmp_path / ".flaky.log").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(5, 0), (6, 1)])
@pytest.mark.few(1)
def test_more_than_five_failures_are_no_accident(tmp_path: Path, number: int, code: int) -> None:
    each = f"@pytest.mark.parametrize('number', range({number}))\ndef test_one(number):\n"
    found = ran(tmp_path, f"{each}    assert run() >= {number}\n", "--second-look")
    assert found.returncode == code, found.stdout
    assert len((tmp_path / "runs").read_text()) == (number if code else 2 * number)


@pytest.mark.slow
@pytest.mark.parametrize(("same_run", "code"), [(True, 1), (False, 0)])
@pytest.mark.few(1)
def test_failures_are_counted_over_both_tiers_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_run: bool, code: int
) -> None:
    three = "@pytest.mark.parametrize('number', range(3))\ndef test_one(number):\n"
    fails_first = f"{three}    assert run() >= 3\n"
    monkeypatch.setenv("FLAKY_RUN", "1")
    assert ran(tmp_path, fails_first, "--second-look").returncode == 0
    (tmp_path / "runs").unlink()
    monkeypatch.setenv("FLAKY_RUN", "1" if same_run else "2")
    fails_first = fails_first.replace("test_one", "test_two")
    assert ran(tmp_path, fails_first, "--second-look").returncode == code


@pytest.mark.slow
def test_without_the_option_nothing_is_looked_at_twice(tmp_path: Path) -> None:
    assert ran(tmp_path, ONE.format(fails=[0])).returncode == 1
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.slow
@pytest.mark.storm
def test_a_run_that_was_broken_off_is_not_looked_at(tmp_path: Path) -> None:
    """A module that does not load is no test that failed."""
    assert ran(tmp_path, "import nothing_there", "--second-look").returncode == 2


def test_make_names_each_run_and_all_its_tiers_alike() -> None:
    def names() -> list[str]:
        rule = "show: ; @echo $$FLAKY_RUN; sleep 0.01; echo $$FLAKY_RUN"
        words = ["make", "--silent", f"--eval={rule}", "show"]
        return subprocess.check_output(words, cwd=CLONE, text=True, timeout=60).split()

    first, second = names(), names()
    assert len(first) == 2
    assert first[0] == first[1] != second[0]
