"""L4: what one child, or somebody who looks at its work, must not spoil for others."""

import json
from typing import Any

import pytest

from bullpen.hot import wire
from tests.fleet.kin import Kin
from tests.waiting import wait_until
from tests.worktrees.repos import git

pytestmark = pytest.mark.slow


def hook(kin: Kin, child: str, **fields: Any) -> int:
    """As the program of that child may."""
    socket = kin.h2.pen.session(child) / "api" / "hub.sock"
    headers, body = {"content-type": "application/json"}, json.dumps(fields).encode()
    return wire.request(str(socket), "POST", f"/agents/{child}/hooks", headers, body, 60.0).status


@pytest.mark.storm
def test_l4_a_child_that_says_much_holds_up_no_letter(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead, "csv")
    assert hook(kin, child, hook_event_name="UserPromptSubmit") == 200
    much = "я" * 250_000  # as signed JSON more than the server takes
    assert hook(kin, child, hook_event_name="Stop", last_assistant_message=much) == 200
    wait_until(lambda: kin.h1.queue(lead))
    [event] = kin.h1.queue(lead)
    assert (event["from"], event["kind"]) == (f"h2/{child}", "child_idle")
    assert set(event["data"]["last_message"]) == {"я"}
    kin.report(child, "done")
    wait_until(lambda: (f"h2/{child}", "child_finished", "done") in kin.heard(lead))


def test_l4_a_branch_that_somebody_looks_at_stays_when_it_has_landed(kin: Kin) -> None:
    lead = kin.lead()
    child = kin.spawn(lead, "csv")
    tip = kin.commit(child, "a.txt")
    kin.report(child, "done")
    kin.h1.wait(lead)
    git(kin.h1.repo, "checkout", "-q", child)
    try:
        assert kin.h1.call(lead, "merge_child", name=f"h2/{child}")["state"] == "landed"
        kin.h2.pen.stop(child)
        wait_until(lambda: child not in kin.h2.pen.agents())
        assert kin.branch(child) == tip
        assert git(kin.h1.repo, "status", "--porcelain").strip() == ""
    finally:
        git(kin.h1.repo, "checkout", "-q", "main")
