"""A person's answers to the questions of an agent, by the API: which choices they mean.

Called by the routes and by `flow`. The answer itself is kept, and reaches the engine, as that to
any other approval (`approvals`): the first one wins.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bullpen.errors import BullpenError, Kind
from bullpen.hub.permissions.approvals import Approvals
from bullpen.model.approval import NAME_CHARACTERS, Approval
from bullpen.model.question import choose, read_questions


class Answers(BaseModel):
    """Answers to the questions of an agent, one for each: the number or the words of an option
    (of several: with commas between them), or a text. `as_text`: none is the number or the words
    of an option. `answer` names them, so that
    sending them twice is the same as once."""

    model_config = ConfigDict(extra="forbid")

    answers: tuple[Annotated[str, Field(max_length=4000)], ...] = Field(
        min_length=1, max_length=1000
    )
    as_text: bool = False
    answer: str = Field(default="", max_length=64)
    name: str = Field(default="", max_length=NAME_CHARACTERS, description="of who answers")


async def answer_questions(approvals: Approvals, id: int, given: Answers) -> Approval:
    """Answer what an agent asks."""
    approval = await approvals.whole(id)
    questions = read_questions(approval.tool, approval.input or {})
    if approval.is_open and not questions:
        raise _no_question(approval)
    # Of one that has ended nothing is kept: who was first is all that there is to say.
    choices = choose(questions, given.answers, given.as_text) if questions else ()
    return await approvals.answer(
        id, "allow", answers=choices, answer=given.answer, name=given.name
    )


def refuse_question(approval: Approval) -> None:
    """One that asks for more than yes or no is not just allowed."""
    if approval.is_open and approval.questions:
        raise BullpenError(
            f"#{approval.id} is a question of {approval.agent}: it needs an answer",
            hint=f"bullpen approvals {approval.id} · bullpen answer {approval.id} TEXT",
            kind=Kind.CONFLICT,
        )


def _no_question(approval: Approval) -> BullpenError:
    id, agent = approval.id, approval.agent
    if getattr(approval.state, "reachable", False):
        return BullpenError(
            f"#{id} is no question with options: {agent} asks whether {approval.tool} may run",
            hint=f"bullpen approve {id} · bullpen deny {id}",
        )
    return BullpenError(
        f"#{id} can only be answered in {agent}'s terminal: its engine takes no answer to"
        f" {approval.tool} from elsewhere",
        hint=f"bullpen attach {agent}",
        kind=Kind.UNSUPPORTED,
    )
