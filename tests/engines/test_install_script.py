"""`scripts/engines` takes the programs from a checkout beside this one that has the very same."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PINS = ("tests/engines/package.json", "tests/engines/integrity.txt", "scripts/engines")


def checkout(place: Path) -> Path:
    for name in PINS:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, place / name)
    return place


def with_programs(place: Path) -> Path:
    """A checkout that has them, installed by a stand-in."""
    pins = b"".join((place / name).read_bytes() for name in PINS)
    summed = subprocess.run(["cksum"], input=pins, capture_output=True, check=True)
    name = f"v{summed.stdout.split()[0].decode()}"
    (place / ".engines" / name / "bin").mkdir(parents=True)
    (place / ".engines" / name / "bin/claude").write_text("a program")
    (place / ".engines/current").symlink_to(name)
    return place


def install(place: Path, tools: Path) -> str:
    """What it says on a machine without npm."""
    tools.mkdir()
    for program in ("sh", "cat", "cksum", "cut", "cp", "mv", "rm", "readlink", "dirname", "git"):
        found = shutil.which(program)
        assert found
        (tools / program).symlink_to(found)
    done = subprocess.run(
        [place / "scripts/engines"],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_programs_of_a_checkout_beside_it_are_taken(tmp_path: Path) -> None:
    other = with_programs(checkout(tmp_path / "side/by/one"))
    place = checkout(tmp_path / "side/by/two")
    assert install(place, tmp_path / "tools") == ""
    program = place / ".engines/current/bin/claude"
    assert program.samefile(other / ".engines/current/bin/claude")


def test_programs_of_the_checkout_that_it_was_cloned_from_are_taken(tmp_path: Path) -> None:
    other = with_programs(checkout(tmp_path / "one"))
    place = checkout(tmp_path / "far/two")
    subprocess.run(["git", "init", "-q", place], check=True)
    subprocess.run(["git", "-C", place, "config", "remote.origin.url", other], check=True)
    assert install(place, tmp_path / "tools") == ""
    assert (place / ".engines/current/bin/claude").read_text() == "a program"


@pytest.mark.parametrize("name", PINS)
def test_programs_of_other_pins_are_not(tmp_path: Path, name: str) -> None:
    other = with_programs(checkout(tmp_path / "side/one"))
    place = checkout(tmp_path / "side/two")
    with (other / name).open("a") as file:
        file.write("\n# changed\n")
    shutil.rmtree(other / ".engines")
    with_programs(other)
    assert "npm are needed" in install(place, tmp_path / "tools")
    assert not (place / ".engines").exists()
