"""Calls of `/approvals`: what waits for a person, and their answers. No I/O."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, given, path

if TYPE_CHECKING:
    from bullpen.model.approval import Approval, ApprovalList, WholeApproval


def list_approvals(everything: bool = False) -> "Call[ApprovalList]":
    """What waits for a decision; with `everything` also what was decided lately."""
    return Call(
        "GET",
        path("approvals"),
        {"all": 1 if everything else None},
        read=Model("approval.ApprovalList"),
    )


def get_approval(id: int | str) -> "Call[WholeApproval]":
    """All that it is about."""
    return Call("GET", path("approvals", str(id)), read=Model("approval.WholeApproval"))


def answer_approval(
    id: int | str,
    decision: Literal["allow", "deny"],
    *,
    reason: str = "",
    always: bool = False,
    role: bool = False,
    name: str | None = None,
) -> "Call[Approval]":
    """Allow or deny. The first answer wins; `name` is who gave it. `always` adds a rule for exactly
    the same to the agent's settings, `role` to its role."""
    body = {
        "decision": decision,
        "reason": reason,
        "always": always,
        "role": role,
        "answer": uuid.uuid4().hex,
        **given(name=name),
    }
    return Call(
        "POST", path("approvals", str(id)), body=body, again=True, read=Model("approval.Approval")
    )


def answer_agent(
    id: int | str, answers: Sequence[str], *, as_text: bool = False, name: str | None = None
) -> "Call[Approval]":
    """Answer the questions of an agent, each by the number or the words of an option (of several:
    with commas between them) or with a text; `as_text`: with a text in any case."""
    return Call(
        "POST",
        path("approvals", str(id), "answers"),
        body={
            "answers": list(answers),
            "as_text": as_text,
            "answer": uuid.uuid4().hex,
            **given(name=name),
        },
        again=True,
        read=Model("approval.Approval"),
    )
