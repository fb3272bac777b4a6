"""N5: a hub that is killed at any step of a landing. The next one goes on, and it lands once."""

import contextlib
import json
from typing import Any

import pytest

from bullpen.hot import wire
from bullpen.hub.landing import steps
from bullpen.hub.landing.rows import LandingRows
from bullpen.hub.landing.steps import Verifier
from bullpen.hub.messages.deliver import Delivery
from bullpen.worktrees.landing import fast_forward, scratch
from tests.hub.landing.yard import Yard
from tests.hub.pods.support import deadly_hub
from tests.listing import list_files
from tests.steps import after, before
from tests.waiting import wait_until
from tests.worktrees.landing.works import status
from tests.worktrees.repos import commit, git

STEPS = {
    "about to be kept": before(LandingRows.put),
    "kept": after(LandingRows.put),
    "taken up": after(LandingRows.put, 2),
    "about to be built": before(steps.build_chain),
    "built": after(steps.build_chain),
    "about to be verified": before(Verifier.run),
    "command about to run": before(scratch.verify),
    "command has run": after(scratch.verify),
    "scratch about to go": before(scratch.discard),
    "verified": after(Verifier.run),
    "noted that it moves": after(LandingRows.put, 4),
    "about to move": before(steps.move_target),
    "lock about to be taken": before(fast_forward._take_lock),
    "lock taken": after(fast_forward._take_lock),
    "files about to be written": before(fast_forward._write_files),
    "files written": after(fast_forward._write_files),
    "branch about to move": before(fast_forward.swap),
    "branch moved": after(fast_forward.swap),
    "lock about to go": before(fast_forward._end),
    "lock gone": after(fast_forward._end),
    "moved": after(steps.move_target),
    "about to be said": before(LandingRows.put, 5),
    "said": after(LandingRows.put, 5),
}
FEW = ("command about to run", "branch moved", "about to be said")


def ask(yard: Yard, **fields: object) -> None:
    """Once, whatever becomes of the hub."""
    with contextlib.suppress(wire.HubError):
        yard.pen.ask("POST", "/landings", {"names": ["amy"], **fields})


def all_landings(yard: Yard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yard.pen.ask("GET", "/landings?all=1")[1]["landings"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(
            name, marks=() if name in FEW else pytest.mark.storm, id=name.replace(" ", "-")
        )
        for name in STEPS
    ],
)
@pytest.mark.few(1)
def test_n5_a_hub_killed_at_a_step_of_a_landing(yard: Yard, step: str) -> None:
    pen, repo = yard.pen, yard.repo
    yard.agent("amy", a_txt="a\n", file0_txt="amy\n")
    (repo / "file1.txt").write_text("staged\n")
    git(repo, "add", "file1.txt")
    (repo / "mine.txt").write_text("mine\n")
    before_it = status(repo)
    old = yard.head()
    pen.kill_hub()
    with deadly_hub(pen, STEPS[step]):
        ask(yard, verify="grep a a.txt")
    pen.start()
    if step == "about to be kept":
        assert all_landings(yard) == [], "nobody was told that it waits"
        ask(yard, verify="grep a a.txt")
    (entry,) = all_landings(yard)
    rested = yard.rested(str(entry["id"]))
    assert rested["status"]["state"] == "landed", rested["status"]
    assert yard.head() == rested["status"]["commit"]
    assert git(repo, "rev-list", "--count", "--first-parent", f"{old}..main") == "1", "once"
    assert status(repo) == before_it
    assert (repo / "file0.txt").read_text() == "amy\n"
    assert not (repo / ".git" / "index.lock").exists()
    wait_until(lambda: not list_files(pen.root / "worktrees", ".landing/*/*"))
    assert git(repo, "fsck", "--no-dangling", "--no-progress") == ""
    pen.start()
    assert [each["id"] for each in all_landings(yard)] == [entry["id"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "state"),
    [
        pytest.param(before(LandingRows.put, 4), "verifying", marks=pytest.mark.storm),
        (after(LandingRows.put, 4), "cancelled"),
    ],
    ids=["about-to-be-noted", "noted"],
)
def test_n5_a_hub_killed_when_a_verification_is_cancelled(
    yard: Yard, step: str, state: str
) -> None:
    """Its program has ended and its checkout is gone. Not noted, it is verified again."""
    pen = yard.pen
    yard.agent("amy", a_txt="a\n")
    pen.kill_hub()
    with deadly_hub(pen, step):
        ask(yard, verify="sleep 98765")
        wait_until(lambda: bool(list_files(pen.root / "logs", "landings/*.log")))
        with contextlib.suppress(wire.HubError):
            pen.ask("DELETE", "/landings/amy")
    if state == "cancelled":
        assert not list_files(pen.root / "worktrees", ".landing/*/*")
    pen.start()
    wait_until(lambda: [each["status"]["state"] for each in all_landings(yard)] == [state])
    assert pen.ask("DELETE", "/landings/amy")[0] == (404 if state == "cancelled" else 200)
    assert [each["status"]["state"] for each in all_landings(yard)] == ["cancelled"]
    assert not list_files(pen.root / "worktrees", ".landing/*/*")


BACK_STEPS = {
    "about to come back": before(LandingRows.put, 3),
    "came back": after(LandingRows.put, 3),
    "author about to be told": before(Delivery.send),
    "author told": after(Delivery.send),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(
            name, marks=() if name == "came back" else pytest.mark.storm, id=name.replace(" ", "-")
        )
        for name in BACK_STEPS
    ],
)
@pytest.mark.storm
def test_n4_the_author_is_told_once_whoever_is_killed(yard: Yard, step: str) -> None:
    pen = yard.pen
    yard.agent("amy", file0_txt="amy\n")
    commit(yard.repo, "file0.txt", "main\n")
    pen.kill_hub()
    with deadly_hub(pen, BACK_STEPS[step]):
        ask(yard)
    pen.start()
    (entry,) = all_landings(yard)
    assert yard.rested(str(entry["id"]))["status"]["state"] == "came_back"
    wait_until(lambda: len(yard.messages("amy")) == 1)
    pen.kill_hub()
    pen.start()
    assert json.loads(pen.cli("land", "--list", "--json").out)["landings"]
    assert len(yard.messages("amy")) == 1
