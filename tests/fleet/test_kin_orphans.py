"""I4 across machines: what becomes of children when their parent on another machine ends."""

import pytest

from tests.fleet.kin import WORKTREE, Kin
from tests.hub.tree.support import PROGRAM
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def parent_of(kin: Kin, child: str) -> str:
    return str(kin.h2.pen.agents()[child]["parent"])


@pytest.mark.storm
def test_i4_children_elsewhere_report_to_the_person_when_their_parent_has_ended(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    kin.h1.pen.stop(lead)
    wait_until(lambda: parent_of(kin, child) == "h1/root")
    wait_until(lambda: kin.h2.pen.record(child, "session.json")["parent"] == "h1/root")
    kin.report(child, "done")
    expected = (f"h2/{child}", "child_finished", "done")
    wait_until(lambda: expected in kin.heard("root"))
    assert kin.heard("root").count(expected) == 1
    assert kin.heard(lead) == []


def test_i4_children_elsewhere_report_to_the_next_above_that_lives(kin: Kin) -> None:
    top = kin.lead()
    mid = kin.h1.spawn(top, "mid")
    child = kin.spawn(mid)
    kin.h1.pen.stop(mid)
    wait_until(lambda: parent_of(kin, child) == f"h1/{top}")
    kin.commit(child, "a.txt")
    kin.report(child, "done")
    expected = (f"h2/{child}", "child_finished", "done")
    wait_until(lambda: expected in kin.heard(top))
    # Who has it now may merge it.
    assert kin.h1.call(top, "merge_child", name=f"h2/{child}")["state"] == "landed"


def test_i4_children_elsewhere_are_stopped_if_their_parents_role_says_so(kin: Kin) -> None:
    kin.h1.pen.role("last", **PROGRAM, may_grant="coder", worktree=WORKTREE, orphans="stop")
    lead = kin.lead("last")
    child = kin.spawn(lead)
    grand = kin.h2.spawn(child, "deep")
    kin.h1.pen.stop(lead)
    wait_until(lambda: not kin.h2.pen.agents()[child]["running"])
    assert not kin.h2.pen.agents()[grand]["running"]


def test_i4_children_elsewhere_are_kept_if_their_parents_role_says_so(kin: Kin) -> None:
    kin.h1.pen.role("kept", **PROGRAM, may_grant="coder", worktree=WORKTREE, orphans="keep")
    lead = kin.lead("kept")
    child = kin.spawn(lead)
    kin.h1.pen.stop(lead)
    kin.report(child, "done")
    wait_until(lambda: kin.heard(lead) == [(f"h2/{child}", "child_finished", "done")])
    assert parent_of(kin, child) == f"h1/{lead}" and kin.h2.pen.agents()[child]["running"]


@pytest.mark.storm
def test_i4_a_parent_that_ended_while_the_other_machine_was_away_is_told_of(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead)
    kin.h2.pen.kill_hub()
    kin.h1.pen.stop(lead)
    kin.h1.pen.kill_hub()
    kin.start(kin.h1.pen)
    kin.start(kin.h2.pen)
    wait_until(lambda: parent_of(kin, child) == "h1/root")
