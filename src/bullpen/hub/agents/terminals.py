"""Agents in terminals: how a planned program gets its worktree, its files and its holder, and how
it is ended.

One of the two kinds (`kinds`). Called through that table by `start`, `stop` and `adopt`. What runs
is looked after by `watch`.
"""

import asyncio
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.kinds import Description
from bullpen.hub.agents.launched_reviewer import write_reviewer
from bullpen.hub.agents.observe import Observer, draft
from bullpen.hub.agents.plan import Plan, TerminalPlan, plan_launch, plan_restart
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.program import make_request
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.state_files import find_process
from bullpen.hub.agents.watch import END_SECONDS, Watch, does_not_answer, wait_over
from bullpen.hub.agents.worktrees import Tree, add_ports, ensure_tree, take_back_tree
from bullpen.hub.background import wholly
from bullpen.hub.context import HubContext
from bullpen.hub.holders import files as holder_files
from bullpen.hub.holders import link as holder_link
from bullpen.hub.holders.factory import Factory
from bullpen.hub.sandbox import policy as sandbox_policy
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.model.agent import Agent
from bullpen.model.launch import Launch

log = logging.getLogger("bullpen.hub")

GREETING_SECONDS = 2.0


class Terminals:
    """Starts, stops and adopts programs in terminals."""

    def __init__(
        self,
        context: HubContext,
        factory: Factory,
        observer: Observer,
        watch: Watch,
        agent_sockets: AgentSockets,
        tunnels: Tunnels,
        private_gits: PrivateGits,
    ) -> None:
        self._context = context
        self._home = context.home
        self._factory = factory
        self._observer = observer
        self._watch = watch
        self._agent_sockets = agent_sockets
        self._tunnels = tunnels
        self._private_gits = private_gits

    def plan(self, request: Launch, name: str, last: Agent | None) -> Plan:
        return plan_launch(self._context, request, name, last)

    def plan_again(self, last: Agent, launch_env: sessions.LaunchEnv) -> Plan:
        return plan_restart(self._context, last, launch_env)

    def describe(self, live: LiveAgent) -> Description:
        name = live.agent.name
        return Description(f"{name} is running", f"bullpen attach {name}")

    def reason_to_keep(self, agent: Agent) -> str:
        del agent
        return ""  # what it made is in its worktree, which has rules of its own

    # ── starting ──

    async def start(self, plan: Plan, live: LiveAgent) -> None:
        assert isinstance(plan, TerminalPlan)
        agent = plan.agent
        if plan.tree is not None:
            await self._make_tree(plan.tree, agent)
            live.branch_was_there = not plan.tree.new_branch
        await wholly(asyncio.to_thread(_make_ready, self._home, plan))
        self._watch.state_files.follow(live)
        await self._agent_sockets.open(agent)  # a sandbox mounts its directory
        await self._tunnels.open(agent.name, agent.tunnel)
        await self._private_gits.wait_free(live)
        request = await wholly(self._context.trees.run_to_end(partial(self._request, plan)))
        answer = await wholly(self._factory.hold(request))
        await asyncio.to_thread(_keep_ready, plan)
        await self._watch.started(live, answer["pid"], answer["child"])
        if not await self._watch.reconcile(live):  # it may have ended already
            self._watch.look_again_later(live)
        await self._type_first(live, plan.prepared.first_input)

    async def _make_tree(self, tree: Tree, agent: Agent) -> None:
        assert agent.worktree is not None
        if await wholly(self._context.trees.run_to_end(partial(ensure_tree, tree, agent))):
            data = {"path": agent.worktree.path, "branch": agent.birth_branch}
            await self._observer.record(draft("worktree.created", agent, data))
        if not Path(agent.cwd).is_dir():
            raise BullpenError(
                f"{agent.cwd} is not in the worktree: the directory has no committed files",
                hint="commit it, or start from the repository's root",
                kind=Kind.NOT_FOUND,
            )

    def _request(self, plan: TerminalPlan) -> dict[str, Any]:
        """What the factory is asked for. The sandbox is planned at the last moment: the directory
        is there by then."""
        agent, sandbox_plan = plan.agent, None
        launch_env = add_ports(plan.launch_env, agent)
        if agent.is_sandboxed:
            sandbox_plan = sandbox_policy.plan_for_agent(
                self._context, agent, plan.engine, plan.start, is_terminal=True
            )
        request = make_request(
            plan.start, launch_env, agent.command, sandbox_plan, is_terminal=True
        )
        socket = str(self._home.socket(agent.name))
        return {**request, "tag": agent.run, "socket": socket}

    async def _type_first(self, live: LiveAgent, text: bytes) -> None:
        """What it is given to do before anybody else talks to it."""
        if not text or not live.is_running:
            return
        try:
            await holder_link.type_into(self._home.socket(live.agent.name), text)
            live.prompt_typed_at = time.time()
        except (OSError, TimeoutError) as error:
            if await self._watch.reconcile(live) and not live.is_running:
                return
            # A holder writes the record before it lets go of us; of the end we hear elsewhere.
            ref = self._watch.holder_ref(live.agent)
            if await asyncio.to_thread(holder_files.find_exit, *ref) is None:
                raise does_not_answer(live.agent.name) from error

    async def asked_again(self, request: Launch, live: LiveAgent) -> None:
        """The hub was killed between the start and the prompt: nothing was typed at all."""
        if request.prompt and live.is_running and live.link is not None:
            name = live.agent.name
            try:
                status = await live.link.ask(b"S")
            except (OSError, TimeoutError) as error:
                raise does_not_answer(name) from error
            if not status.get("last_input"):
                plan = await asyncio.to_thread(plan_launch, self._context, request, name, None)
                await self._type_first(live, plan.prepared.first_input)

    async def take_back(self, plan: Plan, live: LiveAgent) -> None:
        assert isinstance(plan, TerminalPlan)
        agent = plan.agent
        if live.link is not None:
            live.link.close()
        holder = await asyncio.to_thread(holder_files.find_holder, *self._watch.holder_ref(agent))
        if holder:
            await self._end_held(agent)  # the program runs, but the rest failed
        if plan.tree is not None:
            site, new = plan.tree.site, plan.tree.new_branch
            take_back = partial(take_back_tree, site, agent.name, agent.run, new_branch=new)
            await self._context.trees.run_to_end(partial(take_back, ran=bool(holder)))

    async def _end_held(self, agent: Agent) -> None:
        """End the program of a start that failed; fine if it has ended by itself."""
        over = asyncio.Event()
        try:
            link = await holder_link.connect(self._home.socket(agent.name))
            link.follow(lambda _record: over.set(), over.set)
            await link.ask(b"X", {"grace": 0})
            async with asyncio.timeout(END_SECONDS):
                await over.wait()
        except (OSError, TimeoutError) as error:
            log.warning("after a failed start", extra={"agent": agent.name, "why": str(error)})

    # ── adopting and stopping ──

    async def adopt(self, live: LiveAgent) -> None:
        self._watch.state_files.follow(live)
        try:
            # A holder that is stopped holds nobody else up.
            is_clear = await self._watch.reconcile(live, GREETING_SECONDS)
        except Exception:
            self._watch.look_again_later(live)
            raise
        if not is_clear:
            self._watch.look_again_later(live)

    async def stop(self, live: LiveAgent, seconds: float) -> None:
        if not await self._watch.reconcile(live):
            raise does_not_answer(live.agent.name)
        if live.link is not None:
            await self._ask_to_stop(live, live.link, seconds)
        await wait_over(live, seconds + END_SECONDS)

    async def _ask_to_stop(self, live: LiveAgent, link: holder_link.Link, seconds: float) -> None:
        try:
            await link.ask(b"X", {"grace": seconds})
        except TimeoutError as error:  # which is an OSError
            # Stopped itself, perhaps: then it stops the program when it goes on.
            link.close()
            live.link = None
            await self._watch.note_silence(
                live, f"it was asked to stop {holder_link.ANSWER_SECONDS:g} s ago"
            )
            self._watch.look_again_later(live)
            raise does_not_answer(live.agent.name) from error
        except OSError:
            return  # it ended in that moment, which the link has noticed


def _make_ready(home: Home, plan: TerminalPlan) -> None:
    """The engine's files, and its own configuration; nobody may have the conversation open."""
    agent = plan.agent
    pid = find_process(plan.engine, agent.state_files, agent.conversation)
    if pid is not None:
        raise BullpenError(
            f"the conversation of {agent.name} is open in process {pid}",
            hint="end that one first; two at once would mix it up",
            kind=Kind.CONFLICT,
        )
    sessions.write_files(home, agent.name, plan.prepared.files)
    write_reviewer(home, agent.name, plan.start.role if agent.role else None)
    plan.engine.make_ready(plan.start, plan.prepared)


def _keep_ready(plan: TerminalPlan) -> None:
    """It runs by now, and asks the person what it misses."""
    try:
        plan.engine.keep_ready(plan.start, plan.prepared)
    except (BullpenError, OSError) as error:
        extra = {"agent": plan.agent.name, "reason": str(error)}
        log.warning("cannot look after the program's configuration", extra=extra)
