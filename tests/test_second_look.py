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
NO_TIME = """
import itertools
import types
from tests import second_look

clock = itertools.count(0.0, 1000.0)
second_look.time = types.SimpleNamespace(monotonic=lambda: next(clock))
"""
ONE = 'def test_one():\n    assert run() not in {fails!r}, "the first words"\n'


def ran(place: Path, tests: str, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "test_sample.py").write_text(SUITE.format(place=str(place), tests=tests))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(CLONE), "PYTEST_ADDOPTS": "-p tests.second_look"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_what_fails_once_does_not_fail_the_run_and_is_told(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    found = ran(tmp_path, ONE.format(fails=[0]), "--second-look", "4", *processes)
    assert found.returncode == 0, found.stdout
    assert "second look: test_sample.py::test_one passed 4 of 4 times" in found.stdout
    assert "FAILED ONCE: test_sample.py::test_one" in found.stdout
    assert "the first words" in found.stdout
    assert "1 failed once" in found.stdout.splitlines()[-1]
    assert (tmp_path / "runs").read_text() == "x" * 5


@pytest.mark.slow
@pytest.mark.parametrize("fails", [range(9), [0, 3]], ids=["always", "now and then"])
def test_what_fails_again_fails_the_run(tmp_path: Path, fails: object) -> None:
    found = ran(tmp_path, ONE.format(fails=fails), "--second-look", "4")
    assert found.returncode == 1
    assert "failed again" in found.stdout
    assert "1 failed" in found.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "code"), [([0], 0), ([0, 3], 1)])
def test_when_the_time_is_over_a_few_times_are_enough(
    tmp_path: Path, fails: list[int], code: int
) -> None:
    (tmp_path / "conftest.py").write_text(NO_TIME)
    found = ran(tmp_path, ONE.format(fails=fails), "--second-look", "20")
    assert found.returncode == code, found.stdout
    assert len((tmp_path / "runs").read_text()) == 4


@pytest.mark.slow
def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    tests = "".join(f"def test_{number}():\n    assert run() > 3\n" for number in range(4))
    found = ran(tmp_path, tests, "--second-look", "1")
    assert found.returncode == 1
    assert "second look" not in found.stdout
    assert "4 failed" in found.stdout.splitlines()[-1]


@pytest.mark.slow
def test_without_the_option_nothing_is_looked_at_twice(tmp_path: Path) -> None:
    assert ran(tmp_path, ONE.format(fails=[0])).returncode == 1
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.slow
def test_a_run_that_was_broken_off_is_not_looked_at(tmp_path: Path) -> None:
    """A module that does not load is no test that failed."""
    assert ran(tmp_path, "import nothing_there", "--second-look", "4").returncode == 2
