"""Starts one run of a task: budget, plan, messages that wait, files, tunnel, holder.

Called by `driver`. `run_plan` plans and writes, `run` starts the program. A task whose run cannot
be started has failed, and says why.
"""

import asyncio

from bullpen.errors import BullpenError
from bullpen.hub.agents import sessions
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.context import HubContext
from bullpen.hub.holders.factory import Factory
from bullpen.hub.messages.box import Messages
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.sandbox.private_git import store_at
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.hub.tasks import run as task_run
from bullpen.hub.tasks import run_plan, workspaces
from bullpen.hub.tasks.board import Board, LiveTask
from bullpen.hub.tasks.grants import check_task_agent
from bullpen.hub.tasks.workers import Workers
from bullpen.hub.usage.budgets import Budgets
from bullpen.model.agent import Agent
from bullpen.model.message import Message, envelope, may_be_typed
from bullpen.model.task import Cancelling
from bullpen.worktrees.private.store import PrivateStore

TASK_CHANNEL = "task"


class RunStarter:
    """Starts the runs of all tasks."""

    def __init__(
        self,
        context: HubContext,
        registry: Registry,
        factory: Factory,
        tunnels: Tunnels,
        board: Board,
        messages: Messages,
        budgets: Budgets,
        private_gits: PrivateGits,
        workers: Workers,
    ) -> None:
        self._context = context
        self._home = context.home
        self._registry = registry
        self._factory = factory
        self._tunnels = tunnels
        self._board = board
        self._messages = messages
        self._budgets = budgets
        self._private_gits = private_gits
        self._workers = workers

    async def start(self, live: LiveTask, run_ref: task_run.RunRef, number: int) -> bool:
        """Start the run; a task whose run cannot be started has failed."""
        refusal = self._budgets.refusal(live.task.agent)
        if refusal:
            await self._board.fail(live, "budget", refusal)
            return False
        messages: list[Message] = []
        try:
            agent = self._workers.agent(live)
            launch_env = await asyncio.to_thread(sessions.load_launch_env, self._home, agent.name)
            await asyncio.to_thread(workspaces.check_there, live.session)
            context, task, session = self._context, live.task, live.session
            worker = live.worker
            if worker is None or task.runs:  # another run: what the files say now
                worker = await self._workers.load(live)
            if task.wish.sandboxed == "required" and not worker.is_sandboxed:
                raise sandbox_policy.SandboxError(
                    f"the task is for an agent in a sandbox, and {agent.name} works without one",
                    hint="sandbox: {enabled: true}",
                )
            if task.giver is not None:
                await asyncio.to_thread(
                    check_task_agent, self._home, task.giver, agent.name, worker.role
                )
            run = await asyncio.to_thread(
                run_plan.start_run,
                context,
                agent,
                worker,
                launch_env,
                task,
                session,
                number,
            )
            if run.warning:
                async with live.lock:
                    warnings = tuple(dict.fromkeys((*live.task.warnings, run.warning)))
                    warned = live.task.model_copy(update={"warnings": warnings})
                    await self._board.put(live, warned)
            messages = await self._messages_for(agent, run)
            texts = [envelope(each) for each in messages]
            plan = await asyncio.to_thread(run_plan.plan_run, context, run, task, session, texts)
            await self._private_gits.wait_finished(await find_store(live))
            request = await asyncio.to_thread(run_plan.write, self._home, plan)
            await self._messages.mark_sent(messages, TASK_CHANNEL)
            conversed = live.session.in_conversation(plan.prepared.conversation)
            files = {"state_files": run.engine.state_files(run.start)}
            await self._board.keep_session(live, conversed.model_copy(update=files))
            await self.open_tunnel(
                self._registry.get(agent.name),
                sandbox_policy.tunnel_hosts(plan.sandbox_plan),
            )
            if isinstance(live.task.status, Cancelling):
                return False  # nothing has begun
            await task_run.start(self._factory, request, run_ref)
        except sandbox_policy.SandboxError as error:
            await self._board.fail(live, "sandbox_error", words_of(error))
            return False
        except (BullpenError, OSError) as error:
            await self._board.fail(live, "setup_failed", words_of(error))
            return False
        return True

    async def _messages_for(self, agent: Agent, run: run_plan.RunStart) -> list[Message]:
        """What waits for the agent. What an earlier prompt held and no event showed is looked for
        in the transcripts: while the hub was away nobody was told."""
        queue = self._messages.queue(agent.name)
        sent = [message for message in queue if message.sent is not None]
        if sent:
            started = agent.model_copy(update={"state_files": run.engine.state_files(run.start)})
            ids = {message.id for message in sent}
            since = min(message.sent or 0.0 for message in sent)
            shown = await asyncio.to_thread(run.engine.find_shown, started, ids, since)
            await self._messages.mark_delivered([each for each in sent if each.id in shown])
            await self._messages.mark_queued([each for each in sent if each.id not in shown])
        waiting = self._messages.queue(agent.name)
        role = run.start.role
        if run.engine.is_model or role is None:
            return waiting
        # A plain program reads them as its input: a shell would run what another agent wrote.
        return [each for each in waiting if may_be_typed(role.deliver or "", each)]

    async def open_tunnel(self, agent: LiveAgent, hosts: tuple[str, ...]) -> None:
        """Let an agent without network reach these hosts and no others, from now on and after a
        restart of the hub, too."""
        if hosts != agent.agent.tunnel:
            agent.agent = agent.agent.model_copy(update={"tunnel": hosts})
            await asyncio.to_thread(sessions.rewrite, self._home, agent.agent)
        await self._tunnels.open(agent.agent.name, hosts)


async def find_store(live: LiveTask) -> PrivateStore | None:
    """The private git of the task's worktree, if it has one."""
    return await asyncio.to_thread(store_at, workspaces.checkout_of(live.session))


def words_of(error: Exception) -> str:
    """What went wrong, for the task's owner."""
    if isinstance(error, BullpenError):
        return f"{error.message} · {error.hint}" if error.hint else error.message
    if isinstance(error, OSError):
        return ": ".join(filter(None, (error.strerror or str(error), error.filename)))
    return str(error)
