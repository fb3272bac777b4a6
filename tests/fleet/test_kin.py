"""L4: parents and children on different machines: started, heard of, merged, cleaned up."""

import json
import os
from typing import Any

import pytest

from tests.fleet.kin import WORKTREE, Kin
from tests.fleet.mail import rows
from tests.hub.tree.support import PROGRAM, ToolError
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


def test_l4_a_child_on_another_machine_works_reports_and_lands(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead, "csv", task="write it")
    assert child == f"{lead}.csv"
    agent = kin.h2.pen.agents()[child]
    assert (agent["parent"], agent["birth_branch"]) == (f"h1/{lead}", child)
    wait_until(lambda: b"write it" in kin.h2.pen.log(child))
    assert git(kin.tree(child), "rev-parse", "HEAD") == git(kin.h1.repo, "rev-parse", lead)
    tip = kin.commit(child, "a.txt")
    kin.report(child, "done")
    event = kin.h1.wait(lead)
    assert (event["from"], event["kind"]) == (f"h2/{child}", "child_finished")
    assert event["data"] == {"status": "success", "message": "done"}
    assert kin.branch(child) == tip
    merged = kin.h1.call(lead, "merge_child", name=f"h2/{child}")
    assert merged["state"] == "landed", merged
    assert (kin.h1.pen.root / "worktrees" / lead / "a.txt").read_text() == "text\n"
    # It goes when it has ended, as one of this machine would.
    assert child in kin.h2.pen.agents()
    kin.h2.pen.stop(child)
    wait_until(lambda: kin.is_cleaned_up(child))
    wait_until(kin.nothing_waits)
    assert kin.heard(lead) == [(f"h2/{child}", "child_finished", "done")]
    # Whoever asks again hears the same.
    assert kin.h1.call(lead, "merge_child", name=f"h2/{child}") == merged


def test_l4_the_same_request_is_one_child(kin: Kin) -> None:
    lead = kin.lead()
    first = kin.ask(lead, request="r1")
    assert kin.ask(lead, request="r1") == first
    assert kin.children_of(lead) == {f"{lead}.csv"}


def test_l4_what_a_child_does_is_told_in_its_order(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    kin.h2.hook(child, "UserPromptSubmit")
    kin.h2.hook(child, "Stop")
    for number in range(3):
        kin.report(child, f"part {number}")
    kin.report(child, "part 2 again", request="once")
    kin.report(child, "part 2 again", request="once")
    kin.h2.pen.stop(child)
    other = kin.spawn(lead, "other")
    kin.h2.pen.stop(other)
    away = [(f"h2/{child}", "child_finished", f"part {number}") for number in range(3)]
    expected = [
        (f"h2/{child}", "child_idle", None),
        *away,
        (f"h2/{child}", "child_finished", "part 2 again"),
        (f"h2/{other}", "child_exited", None),
    ]
    wait_until(lambda: len(kin.heard(lead)) >= len(expected))
    wait_until(kin.nothing_waits)
    assert kin.heard(lead) == expected
    exited = kin.h1.queue(lead)[-1]["data"]
    assert (exited["state"], exited["signal"]) == ("exited", 15), exited


def test_l4_what_is_no_text_is_told_as_far_as_it_is_one(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    (kin.tree(child) / os.fsdecode(b"\xff.txt")).touch()
    kin.h2.hook(child, "UserPromptSubmit")
    kin.h2.hook(child, "Stop", last_assistant_message="half \ud83d")
    kin.report(child, "done")
    wait_until(lambda: len(kin.heard(lead)) == 2)
    idle, finished = kin.h1.queue(lead)
    assert (idle["kind"], finished["data"]["message"]) == ("child_idle", "done")
    assert "half ?" in str(idle["data"])
    with pytest.raises(ToolError, match=r"uncommitted files \(\?.txt\)"):
        kin.h1.call(lead, "merge_child", name=f"h2/{child}")


def test_l4_a_child_that_ends_at_once_is_told_of_after_its_start(kin: Kin) -> None:
    lead = kin.lead()
    kin.h2.pen.role("brief", **{**PROGRAM, "command": ["true"]}, worktree=WORKTREE)
    child = kin.spawn(lead, role="brief")
    assert kin.h1.wait(lead)["kind"] == "child_exited"
    assert kin.heard(lead) == [(f"h2/{child}", "child_exited", None)]


def test_l4_a_child_on_another_machine_is_seen_and_written_to(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    name = f"h2/{child}"

    def shown() -> dict[str, Any]:
        lines = kin.h1.call(lead, "list_agents").splitlines()
        return {each["name"]: each for each in map(json.loads, lines)}

    # Its machine says every 2 seconds how its agents are.
    wait_until(lambda: "unknown: h2" not in shown()[name]["state"])
    assert shown()[name]["relation"] == "your child" and shown()[name]["parent"] == lead
    assert name in kin.h1.pen.cli("tree").out
    assert name in kin.h1.pen.cli("list", "--fleet").out
    assert kin.h1.call(lead, "agent_status", name=name)["reported"] is None
    assert "not reported yet" in kin.h1.call(lead, "agent_diff", name=name)
    kin.commit(child, "b.txt", "bee\n")
    kin.report(child, "half of it", status="failure")
    wait_until(lambda: kin.heard(lead) != [])
    status = kin.h1.call(lead, "agent_status", name=name)
    assert (status["reported"], status["report"]) == ("failure", "half of it")
    [line] = [line for line in kin.h1.pen.cli("tree").out.splitlines() if name in line]
    assert "reported failure" in line
    assert "+bee" in kin.h1.call(lead, "agent_diff", name=name)
    kin.h1.call(lead, "send_message", to=name, text="go on")
    wait_until(lambda: b"go on" in kin.h2.pen.log(child))
    kin.h2.call(child, "send_message", to="parent", text="what else?")
    wait_until(lambda: b"what else?" in kin.h1.pen.log(lead))
    found = rows(kin.h1.pen, "SELECT sender, text FROM messages WHERE recipient = ?", lead)
    assert found == [(name, "what else?")]
    # Of another agent's child nothing is shown but that it is none of its own.
    other = kin.lead()
    for tool in ("agent_status", "agent_diff"):
        with pytest.raises(ToolError, match="no agent of yours"):
            kin.h1.call(other, tool, name=name)
    with pytest.raises(ToolError, match="no child of"):
        kin.h1.call(other, "merge_child", name=name)


def test_n6_a_child_on_another_machine_that_is_not_finished_is_refused(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    name = f"h2/{child}"
    with pytest.raises(ToolError, match="not finished: it has not reported"):
        kin.h1.call(lead, "merge_child", name=name)
    (kin.tree(child) / "left.txt").write_text("left\n")
    kin.report(child, "done")
    wait_until(lambda: kin.heard(lead) != [])
    with pytest.raises(ToolError, match=r"uncommitted files \(left.txt\)"):
        kin.h1.call(lead, "merge_child", name=name)
    kin.commit(child, "left.txt")
    kin.report(child, "done")
    wait_until(lambda: len(kin.heard(lead)) == 2)
    assert kin.h1.call(lead, "merge_child", name=name)["state"] == "landed"


@pytest.mark.storm
def test_n6_a_conflict_goes_to_the_child_and_its_next_commit_lands(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    name = f"h2/{child}"
    commit(kin.h1.pen.root / "worktrees" / lead, "a.txt", "mine\n")
    kin.commit(child, "a.txt", "its own\n")
    kin.report(child, "done")
    wait_until(lambda: kin.heard(lead) != [])
    merged = kin.h1.call(lead, "merge_child", name=name)
    assert (merged["state"], merged["files"]) == ("came_back", ["a.txt"]), merged
    wait_until(lambda: b"a.txt" in kin.h2.pen.log(child))
    # It begins anew, with another history.
    git(kin.tree(child), "rm", "-q", "--cached", "a.txt")
    git(kin.tree(child), "commit", "-q", "--amend", "--allow-empty", "-m", "again")
    (kin.tree(child) / "a.txt").unlink()
    tip = kin.commit(child, "b.txt", "bee\n")
    kin.report(child, "done again")
    wait_until(lambda: len(kin.heard(lead)) == 2)
    assert kin.branch(child) == tip
    assert kin.h1.call(lead, "merge_child", name=name)["state"] == "landed"
    assert (kin.h1.pen.root / "worktrees" / lead / "b.txt").read_text() == "bee\n"


@pytest.fixture
def late(kin: Kin) -> tuple[str, str, str]:
    """A parent, its child that has ended, and the commit of that which did not arrive: the
    parent's repository was away."""
    lead = kin.lead()
    child = kin.spawn(lead)
    tip = kin.commit(child, "a.txt")
    away = kin.h1.repo.rename(kin.h1.repo.with_name("away"))
    try:
        kin.report(child, "done")
        kin.h2.pen.stop(child)
        wait_until(lambda: is_over(kin, child))
    finally:
        away.rename(kin.h1.repo)
    assert "its commits did not arrive" in kin.h1.queue(lead)[0]["data"]["problem"]
    assert kin.branch(child) == ""
    return lead, child, tip


def is_over(kin: Kin, child: str) -> bool:
    ended = "SELECT 1 FROM fleet_asked WHERE data LIKE ? AND data ->> 'is_over'"
    return rows(kin.h1.pen, ended, f"%{child}%") != []


def test_n6_commits_that_did_not_arrive_are_fetched_when_they_are_asked_for(
    kin: Kin, late: tuple[str, str, str]
) -> None:
    lead, child, tip = late
    assert "+text" in kin.h1.call(lead, "agent_diff", name=f"h2/{child}")
    assert kin.branch(child) == tip
    assert kin.h1.call(lead, "merge_child", name=f"h2/{child}")["state"] == "landed"
    wait_until(lambda: kin.is_cleaned_up(child))


def test_n6_commits_that_did_not_arrive_land_at_once_when_they_can(
    kin: Kin, late: tuple[str, str, str]
) -> None:
    lead, child, _ = late
    assert kin.h1.call(lead, "merge_child", name=f"h2/{child}")["state"] == "landed"
    wait_until(lambda: kin.is_cleaned_up(child))


@pytest.mark.storm
def test_n6_commits_that_did_not_arrive_are_fetched_by_the_next_hub(
    kin: Kin, late: tuple[str, str, str]
) -> None:
    _, child, tip = late
    kin.h1.pen.kill_hub()
    kin.start(kin.h1.pen)
    wait_until(lambda: kin.branch(child) == tip)
    wait_until(lambda: kin.machines.reachable("h1") == {"h1", "h2"})


@pytest.mark.storm
def test_n6_a_branch_that_somebody_has_made_here_stays(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    git(kin.h1.repo, "branch", child, "main")
    mine = git(kin.h1.repo, "commit-tree", "main^{tree}", "-m", "mine", "-p", "main")
    git(kin.h1.repo, "update-ref", f"refs/heads/{child}", mine)
    tip = kin.commit(child, "a.txt")
    kin.report(child, "done")
    wait_until(lambda: kin.heard(lead) != [])
    assert kin.branch(child) == mine
    assert kin.h1.call(lead, "merge_child", name=f"h2/{child}")["state"] == "landed"
    assert git(kin.h1.repo, "merge-base", "--is-ancestor", tip, lead) == ""
    kin.h2.pen.stop(child)
    wait_until(lambda: child not in kin.h2.pen.agents())
    assert kin.branch(child) == mine
