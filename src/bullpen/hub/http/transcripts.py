"""`/agents/{name}/transcript`: what was said and done in an agent's conversation."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub.agents.transcript import read_page
from bullpen.hub.http.guard import owner_or_self
from bullpen.hub.http.parameters import Name
from bullpen.hub.http.state import HubPart
from bullpen.hub.parts import Hub
from bullpen.model.agent import Agent
from bullpen.model.transcript import Transcript

router = APIRouter(tags=["agents"])

TaskQuery = Annotated[str, Query(alias="task", max_length=80, description="that task's")]
Offset = Annotated[int, Query(ge=0, le=1 << 53, description="the page before ended there")]


@router.get(
    "/agents/{name}/transcript", response_model=Transcript, dependencies=[Depends(owner_or_self)]
)
async def get_transcript(
    hub: HubPart, name: Name, task_id: TaskQuery = "", offset: Offset = 0
) -> Any:
    """A page of it, as the engine wrote it down; of an agent that takes tasks that of its latest
    task, or of `task`. Agents see their own only."""
    agent = await _conversing(hub, hub.registry.get(name).agent, task_id)
    engine = get_engine(agent.engine)
    session, conversation = hub.home.session(name), agent.conversation
    page = await hub.context.trees.run(
        name, lambda: read_page(engine, agent, session, conversation, offset)
    )
    if page is None:
        raise BullpenError(
            f"there is no transcript of {task_id or name}",
            hint=f"bullpen logs {name} shows what its program wrote",
            kind=Kind.NOT_FOUND,
        )
    return page


async def _conversing(hub: Hub, agent: Agent, task_id: str) -> Agent:
    """The agent with the conversation that is meant. Those of tasks are their sessions'."""
    if not agent.takes_tasks:
        return agent
    rows = hub.tasks.board.rows
    if not task_id:
        latest, _ = await rows.page(agent.name, 1, 1)
        task_id = latest[0].id if latest else ""
    session = None
    if task_id:
        task = await hub.tasks.board.get(task_id, agent.name)
        session = await rows.find_session(task.session_id)
    if session is None:
        return agent
    update = {"conversation": session.conversation, "state_files": session.state_files}
    return agent.model_copy(update=update)
