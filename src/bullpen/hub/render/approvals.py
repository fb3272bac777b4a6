"""What waits for a person: `bullpen approvals` as text. Pure."""

from collections.abc import Sequence

from bullpen.model.agent_shown import AgentShown
from bullpen.model.approval import Approval
from bullpen.model.approval_text import list_lines, terminal_lines


def approvals_text(
    approvals: Sequence[Approval], agents: Sequence[AgentShown], columns: int, now: float
) -> str:
    """A line each, or as many as it needs; and the agents that ask in their terminals alone."""
    lines = list_lines(approvals, columns, now)
    lines += terminal_lines(agents, approvals, columns, now)
    return "".join(f"{line}\n" for line in lines or ["nothing waits for you"])
