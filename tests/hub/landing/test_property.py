"""N3-N5 against a model: several land at once, a person commits meanwhile, the hub is killed.

In which order things happen is the hub's affair. So the history of the target is played back on
the model, commit by commit, and must be what the model says at each of them.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bullpen.hot import wire
from tests.hub.landing.yard import Yard, made_yard
from tests.waiting import wait_until
from tests.worktrees.landing.model import FILES, NAMES, Model
from tests.worktrees.landing.works import status
from tests.worktrees.repos import TESS, commit, git, make_repo

pytestmark = pytest.mark.storm

RESTING = ("landed", "came_back", "refused", "cancelled")


@dataclass(frozen=True)
class Turn:
    """What happens between two looks at everything."""

    works: list[tuple[str, str]]  # an agent commits a file
    asks: list[tuple[str, str]]  # land it, in this way
    person: list[str]  # files that a person commits meanwhile
    edits: list[str]  # files that a person has changed and not committed
    is_tidied: bool  # before all of that
    kills: int


TURNS = st.lists(
    st.builds(
        Turn,
        works=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(FILES)), max_size=3),
        asks=st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(("merge", "squash"))),
            unique_by=lambda ask: ask[0],
            max_size=2,
        ),
        person=st.lists(st.sampled_from(FILES), max_size=2),
        edits=st.lists(st.sampled_from(FILES), max_size=1),
        is_tidied=st.booleans(),
        kills=st.integers(0, 2),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class World:
    """One repository and two agents' branches, and what the model says of them."""

    yard: Yard
    repo: Path
    names: dict[str, str]  # in the model -> worktree
    model: Model
    head: str
    texts: Iterator[str] = field(
        default_factory=lambda: (f"text {number}\n" for number in itertools.count())
    )
    committed: dict[str, tuple[str, str]] = field(default_factory=dict)  # subject -> file, text

    def play(self, turn: Turn) -> None:
        if turn.is_tidied:
            git(self.repo, "reset", "-q", "--hard")
            git(self.repo, "clean", "-qfd")
            self.model.edits.clear()
        for name, file in turn.works:
            branch, text = self.model.branches[name], next(self.texts)
            commit(self.yard.tree(self.names[name]), file, text)
            branch.commits.append((file, branch.files.get(file), text))
            branch.files[file] = text
        for file in turn.edits:
            self.model.edits[file] = next(self.texts)
            (self.repo / file).write_text(self.model.edits[file])
        for ask in turn.asks:
            self.ask(*ask)
        for _ in range(turn.kills):
            self.yard.pen.kill_hub()
            self.yard.pen.start()
        for file in turn.person:
            if file not in self.model.edits:  # else it would be committed
                self.commit(file)
        for ask in turn.asks if turn.kills else ():
            self.ask(*ask)  # who was not told that it waits asks again
        wait_until(lambda: all(each["status"]["state"] in RESTING for each in self.entries()), 300)
        self.look(turn)

    def ask(self, name: str, strategy: str) -> None:
        body = {"names": [self.names[name]], "strategy": strategy, "into": "main"}
        with contextlib.suppress(wire.HubError, FileNotFoundError, ConnectionError):
            self.yard.pen.ask("POST", "/landings", body)

    def commit(self, file: str) -> None:
        """As a person does, who tries again when another git has the index."""
        text = next(self.texts)
        subject = text.strip()
        self.committed[subject] = file, text

        def is_done() -> bool:
            (self.repo / file).write_text(text)
            return self.git("add", file) and self.git("commit", "-qm", subject, "--", file)

        wait_until(is_done)

    def git(self, *words: str) -> bool:
        argv = ["git", "-C", self.repo, *words]
        env = {**os.environ, **TESS}
        return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0

    def entries(self) -> list[dict[str, Any]]:
        found = self.yard.pen.client().get("landings", all=1)["landings"]
        return [each for each in found if each["name"] in self.names.values()]

    # ── looking ──

    def look(self, turn: Turn) -> None:
        entries = self.entries()
        names = {own: name for name, own in self.names.items()}
        landed = {
            each["status"]["commit"]: (names[each["name"]], each["strategy"])
            for each in entries
            if each["status"]["state"] == "landed" and not each["status"]["is_there"]
        }
        span = f"{self.head}..main"
        for oid in git(self.repo, "rev-list", "--first-parent", "--reverse", span).split():
            subject = git(self.repo, "log", "-1", "--format=%s", oid)
            if oid in landed:
                name, strategy = landed[oid]
                result = self.model.merged(name, strategy)
                assert result is not None, "what conflicts has not landed"
                self.model.landed(name, result)
            else:
                file, text = self.committed.pop(subject)  # once
                self.model.target[file] = text
            assert self.files_of(oid) == self.model.target
        self.head = git(self.repo, "rev-parse", "main")
        assert not self.committed, "nothing of the person's is lost"
        for name, _ in turn.asks:
            self.look_at(name, [each for each in entries if each["name"] == self.names[name]][-1])
        on_disk = {f: (self.repo / f).read_text() for f in FILES if (self.repo / f).exists()}
        assert on_disk == {**self.model.target, **self.model.edits}
        assert {line[3:] for line in status(self.repo).splitlines()} == set(self.model.edits)

    def look_at(self, name: str, entry: dict[str, Any]) -> None:
        """It has landed whole, or its entry says why not; then it is taken out."""
        branch, state = self.model.branches[name], entry["status"]
        match state["state"]:
            case "landed":
                assert branch.files == branch.base, "all of it"
            case "came_back":
                assert self.model.merged(name, entry["strategy"]) is None
                assert state["files"]
                self.yard.pen.ask("DELETE", f"/landings/{entry['id']}")
            case "refused":
                assert state["message"]
                assert state["files"]

    def files_of(self, oid: str) -> dict[str, str]:
        names = git(self.repo, "ls-tree", "--name-only", oid).splitlines()
        return {name: git(self.repo, "show", f"{oid}:{name}") + "\n" for name in names}


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with made_yard() as made:
        made.pen.start()
        yield made


NUMBERS = itertools.count()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TURNS)
def test_n3_n5_what_lands_at_once_is_what_the_model_says_though_hubs_are_killed(
    yard: Yard, turns: list[Turn]
) -> None:
    number = next(NUMBERS)
    repo = make_repo(yard.pen.root.parent / f"repo{number}", files=2)
    names = {name: f"{name}{number}" for name in NAMES}
    created = yard.pen.cli("worktree", "create", *names.values(), cwd=repo, seconds=300)
    assert created.code == 0, created
    files = {file: (repo / file).read_text() for file in FILES if (repo / file).exists()}
    world = World(yard, repo, names, Model(files), git(repo, "rev-parse", "main"))
    for turn in turns:
        world.play(turn)
    assert git(repo, "fsck", "--no-dangling", "--no-progress") == ""
