"""Who may take a task that an agent gives. Reads roles.

Called by `mcp/task_tools` when the task is given, and by `run_start` before each run of it: files
change, and who takes a task for a role is not known before.
"""

from bullpen.errors import BullpenError, Kind
from bullpen.home.overrides import load_changed_role
from bullpen.home.paths import Home
from bullpen.model.message import LINES_FROM_AGENTS
from bullpen.model.rights import more_than
from bullpen.model.role import Role
from bullpen.model.task import Giver


def check_task_agent(home: Home, giver: Giver, agent: str, role: Role) -> None:
    """Refuse a taker that runs with that role, if it may do more than the giver may grant; or a
    plain program, which reads its task as it would read a person's lines: a shell runs it."""
    if role.agent_type == "command" and role.deliver != LINES_FROM_AGENTS:
        raise BullpenError(
            f"{agent} runs a plain program, which takes tasks of a person alone",
            hint=f"another agent · a person can allow it: deliver: {LINES_FROM_AGENTS}",
            kind=Kind.DENIED,
        )
    if not giver.may_grant:
        return
    more = more_than(role, load_changed_role(home, giver.may_grant, giver.pod, ()))
    if more:
        raise BullpenError(
            f"{agent} may do more than {giver.name} may grant ({giver.may_grant}):"
            f" {', '.join(more)}",
            hint=f"an agent that has the role {giver.may_grant}, and nothing besides",
            kind=Kind.DENIED,
        )
