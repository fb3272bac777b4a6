"""The tool by which a parent takes the work of a child. Registered by `server`. That for the work
of tasks is in `task_tools`."""

import json
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from bullpen.hub.mcp.caller import caller_of
from bullpen.hub.mcp.hints import hint_for_agent
from bullpen.hub.parts import Hub
from bullpen.model.landing import CameBack, Cancelled, Landed, Landing, Refused
from bullpen.model.landing_rules import Strategy


async def merge_child(
    hub: Hub,
    ctx: Context[Any],
    name: Annotated[str, Field(description="Your child's name, as list_agents shows it.")],
    strategy: Annotated[
        Strategy | None, Field(description="Left out: as the project has it, else merge.")
    ] = None,
) -> str:
    """Merge the branch of a child that has finished into your own branch and files.

    Look at agent_diff first. The child must have committed everything and be idle or ended. With a
    conflict nothing of yours changes: the child is told the files, and its next commit is tried
    again by itself; call merge_child again to hear of it. A child that has ended answers nothing:
    what you can do then stands in the result. When it has landed and the child has ended, its
    worktree and branch are removed."""
    caller = caller_of(hub, ctx)
    landing = await hub.child_merger.merge_child(caller.name, name, strategy)
    return json.dumps(show_landing(landing), ensure_ascii=False)


def show_landing(landing: Landing) -> dict[str, Any]:
    """What became of it, for a model."""
    shown: dict[str, Any] = {"state": landing.status.state, "into": landing.target}
    match landing.status:
        case Landed(commit=commit, is_there=is_there):
            return {**shown, "commit": commit, "was_there_already": is_there}
        case CameBack(
            why=why, files=files, problem=problem, output=output, is_agent_running=running
        ):
            text = {"problem": problem, "output": output} if why == "verify" else {}
            ended = {} if running else {"child_has_ended": _instead(landing)}
            return {**shown, "why": why, "files": files, **text, **ended}
        case Refused(message=message, hint=hint, files=files):
            return {**shown, "message": message, "hint": hint_for_agent(hint), "files": files}
        case Cancelled(reason=reason) if reason:
            return {**shown, "why": reason}
    return shown


def _instead(landing: Landing) -> str:
    """What its parent can do. By its hash a commit is found in every sandbox of the repository."""
    commit, name = landing.tip, landing.name
    return (
        f"{name} does not run: nobody reads what it was told. Start another child (spawn_subtree)"
        f" whose task is to `git merge {commit}` and to mend that, and merge that child; or do so"
        f" yourself in your own files, if you may write. Then merge_child {name} cleans up."
    )


TOOLS = (merge_child,)
