"""Decisions in the page: once, with the name of who made them (V8)."""

from collections.abc import Iterator

import pytest

from bullpen.model.approval import Answered, Approval, words
from tests.hub.permissions.asking import ALLOW, Asking
from tests.web.running import RunningView

pytestmark = pytest.mark.slow


@pytest.fixture
def asking(served: RunningView) -> Iterator[Asking]:
    if "amy" not in served.pen.agents():
        served.pen.run(name="amy")
    made = Asking(served.pen)
    yield made
    for hook in made.hooks:
        hook.kill()


def open_id(view: RunningView) -> int:
    (approval,) = view.ask("GET", "/api/approvals").json["approvals"]
    return int(approval["id"])


@pytest.mark.storm
def test_v8_the_first_answer_counts_and_the_second_hears_whose_it_was(
    served: RunningView, asking: Asking
) -> None:
    hook = asking.ask("make all")
    number = open_id(served)
    target = f"/api/approvals/{number}"
    assert served.ask("GET", target).json["input"]["command"] == "make all"
    allowed = served.ask("POST", target, {"decision": "allow"})
    assert allowed.status == 200
    assert allowed.json["state"]["name"] == "Ann"
    assert hook.decision() == ALLOW
    bob = {"Cookie": served.cookie("Bob")}
    second = served.ask("POST", target, {"decision": "deny"}, bob)
    assert second.status == 409
    assert second.json["details"]["state"]["name"] == "Ann"
    assert "allowed by Ann" in second.json["message"]
    answered = served.pen.events("amy", "approval.answered")
    (event,) = [one for one in answered if one["id"] == number]
    assert (event["by"], event["name"]) == ("owner", "Ann")


def test_v8_a_question_is_answered_with_a_name(served: RunningView, asking: Asking) -> None:
    asking.ask_question("Which bird?")
    target = f"/api/approvals/{open_id(served)}/answers"
    answered = served.ask("POST", target, {"answers": ["heron"]})
    assert (answered.status, answered.json["state"]["name"]) == (200, "Ann")


def test_v8_a_name_cannot_drive_a_terminal() -> None:
    state = Answered(decision="allow", by="owner", name="A\u202enn", at=1.0)
    approval = Approval(id=1, ask="a", agent="amy", run="r", tool="Bash", asked=0.0, state=state)
    assert words(approval) == "allowed by A⟨U+202E⟩nn"
