"""L4: what a parent's hub knows of a child on another machine. Pure."""

import pytest
from pydantic import ValidationError

from bullpen.model.agent import Agent
from bullpen.model.child_letter import Birth, ChildUpdate, Used
from bullpen.model.fleet_child import RemoteChild, note_update, spent_since
from bullpen.model.parcel import Parcel
from bullpen.model.rights import Rights
from bullpen.model.tree import Family

ID, BASE, TIP = "a" * 32, "b" * 40, "c" * 40
CHILD = RemoteChild(
    id=ID,
    parent="lead",
    born="",
    host="h2",
    name="lead.csv",
    branch="lead.csv",
    repo="/repo",
    base_dir="/base",
    base=BASE,
    role="coder",
    ceiling=Rights(),
    at=1.0,
    state="started",
)


def told(event: str, **fields: object) -> ChildUpdate:
    return ChildUpdate.model_validate({"id": ID, "event": event, "key": "k", **fields})


def test_l4_a_report_brings_its_commits_and_what_it_says() -> None:
    said = {"status": "success", "message": "done"}
    after = note_update(CHILD, told("child_finished", data=said, tip=TIP), 5.0, "lead.csv", "")
    assert (after.tip, after.home_branch, after.is_at_rest) == (TIP, "lead.csv", True)
    assert (after.reported, after.message, after.reported_at) == ("success", "done", 5.0)
    assert after.is_living and not after.is_over


def test_l4_one_without_commits_is_where_it_began() -> None:
    after = note_update(CHILD, told("child_exited", tip=BASE, is_over=True), 5.0, "", "")
    assert (after.tip, after.home_branch, after.is_over) == (BASE, "", True)


def test_l4_commits_that_did_not_arrive_leave_what_was_there() -> None:
    before = CHILD.model_copy(update={"tip": BASE, "home_branch": "x"})
    after = note_update(before, told("child_idle", tip=TIP), 5.0, "", "gone")
    assert (after.tip, after.home_branch, after.problem) == (BASE, "x", "gone")
    again = note_update(after, told("child_idle", tip=TIP), 5.0, "x", "")
    assert (again.tip, again.problem) == (TIP, "")


def test_l4_one_that_is_blocked_has_finished_nothing() -> None:
    after = note_update(CHILD, told("child_blocked"), 5.0, "", "")
    assert not after.is_at_rest and after.tip == ""


def test_m8_what_was_spent_before_an_end_is_on_the_account_once() -> None:
    first = note_update(CHILD, told("", is_over=True, used={"tokens": 5}), 1.0, "", "")
    assert first.settled == Used(tokens=5)
    second = note_update(first, told("child_idle", used={"tokens": 8}), 1.0, "", "")
    assert spent_since(second.used, second.settled) == Used(tokens=3)


@pytest.mark.parametrize("below", ["/etc", "..", "a/../../b", "\0"])
def test_l4_an_order_cannot_lead_out_of_its_repository(below: str) -> None:
    parcel = Parcel(host="h1", id="x", pieces=1, bytes=1, sha256="0" * 64, commit=BASE)
    fields = {"id": ID, "at": 1.0, "parent": "lead", "depth": 1, "branch": "b", "role": "r"}
    more = {"task": "t", "ceiling": Rights(), "parcel": parcel}
    assert Birth.model_validate({**fields, **more, "below": "a/b"}).below == "a/b"
    with pytest.raises(ValidationError):
        Birth.model_validate({**fields, **more, "below": below})


def test_l4_a_family_knows_parents_on_other_machines() -> None:
    away = Agent(name="x", run="", cwd="/", created="", parent="h1/lead", levels_above=2)
    under = Agent(name="y", run="", cwd="/", created="", parent="x")
    family = Family([away, under])
    assert family.parent("x") == "h1/lead" and family.line("x") == []
    assert (family.depth("x"), family.depth("y")) == (2, 3)
    assert family.children("root") == ["x"] and family.under("x") == ["y"]
    assert family.children("h1/lead") == ["x"]
