"""N3-N5: many land in one branch while a person commits to it and the hub is killed."""

import contextlib
import os
import subprocess
import threading
from pathlib import Path

import pytest

from bullpen.hot import wire
from tests.hub.landing.yard import Yard, made_yard
from tests.processes import alive
from tests.waiting import wait_until
from tests.worktrees.landing.works import status
from tests.worktrees.repos import TESS, commit, git

RESTING = ("landed", "came_back", "refused", "cancelled")


class Person(threading.Thread):
    """Commits to main in their checkout, again and again, and has work in progress there."""

    def __init__(self, repo: Path, most: int) -> None:
        super().__init__(daemon=True)
        self.repo, self.most = repo, most
        self.commits: list[str] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        for number in range(self.most):
            if self.is_over.is_set():
                return
            name = f"person{number}.txt"
            (self.repo / name).write_text(f"{number}\n")
            # Another git may hold the index for a moment: a person tries again.
            while not self.is_over.is_set() and not (self.git("add", name) and self.commit(number)):
                self.is_over.wait(0.05)
            self.is_over.wait(0.5)

    def commit(self, number: int) -> bool:
        if not self.git("commit", "-qm", f"Person {number}"):
            return False
        self.commits.append(f"Person {number}")
        return True

    def git(self, *words: str) -> bool:
        env = {**os.environ, **TESS}
        done = subprocess.run(
            ["git", "-C", self.repo, *words], env=env, capture_output=True, check=False
        )
        return done.returncode == 0


def storm(yard: Yard, count: int, kills: int) -> None:
    pen, repo = yard.pen, yard.repo
    names = [f"a{number}" for number in range(count)]
    for number, name in enumerate(names):
        # Every fifth conflicts with the one before it.
        file = "file0.txt" if number % 5 in (3, 4) else f"{name}.txt"
        commit(yard.agent(name), file, f"{name}\n", f"Work of {name}")
    programs = [pen.program(name) for name in names]
    (repo / "file1.txt").write_text("in progress\n")
    person = Person(repo, 30)
    person.start()
    try:
        for name in names:
            ask(yard, name)
        for _ in range(kills):
            pen.kill_hub()
            pen.start()
        for name in names:
            ask(yard, name)  # who was not told that it waits asks again
        wait_until(lambda: all(each in RESTING for each in states(yard).values()), 600)
    finally:
        person.is_over.set()
        person.join(60)
    found = states(yard)
    subjects = git(repo, "log", "--format=%s", "main").splitlines()
    for name in names:
        if found[name] == "landed":
            assert subjects.count(f"Work of {name}") == 1
            assert subjects.count(f"Merge branch '{name}'") == 1, "landed once"
        else:
            assert found[name] == "came_back", name
            assert f"Work of {name}" not in subjects
            assert any("file0.txt" in text for text in yard.messages(name)), "its author is told"
    assert [name for name in names if found[name] == "landed"]
    assert all(map(alive, programs))
    assert all(subjects.count(subject) == 1 for subject in person.commits)
    assert (repo / "file1.txt").read_text() == "in progress\n"
    changed = {line[3:] for line in status(repo).splitlines()}
    assert changed - {"file1.txt"} <= {f"person{len(person.commits)}.txt"}
    assert git(repo, "fsck", "--no-dangling", "--no-progress") == ""
    assert not list((pen.root / "worktrees").glob(".landing/*/*"))


def ask(yard: Yard, name: str) -> None:
    with contextlib.suppress(wire.HubError, FileNotFoundError, ConnectionError):
        yard.pen.ask("POST", "/landings", {"names": [name]})


def states(yard: Yard) -> dict[str, str]:
    """Of the latest entry of each that did not find its work there already."""
    found: dict[str, str] = {}
    for each in yard.pen.client().get("landings", all=1)["landings"]:
        if found.get(each["name"]) != "landed":
            found[each["name"]] = each["status"]["state"]
    return found


@pytest.mark.slow
def test_n3_a_few_land_while_a_person_commits_and_the_hub_is_killed() -> None:
    with made_yard() as yard:
        yard.pen.start()
        storm(yard, 5, 1)


@pytest.mark.storm
def test_n3_twenty_land_while_a_person_commits_and_the_hub_is_killed() -> None:
    with made_yard() as yard:
        yard.pen.start()
        storm(yard, 20, 5)
