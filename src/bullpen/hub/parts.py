"""The parts of a hub, and the only list of them.

A new part is a module of its own, a line in `Hub.__init__` that gives it what it uses, and a row in
`Hub.parts` that says when it is called. Nothing else has to know of it, but the routes that ask it.
Made by `main`. Routes reach the parts as attributes (`hub.tasks`). A part itself is never given
the `Hub`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bullpen.component.journal import Journal
from bullpen.component.lifecycle import Life
from bullpen.home.settings import Settings
from bullpen.hub.adopt import Adopter
from bullpen.hub.agents.dialogs import StartDialogs
from bullpen.hub.agents.gc import Gc
from bullpen.hub.agents.hooks import Hooks
from bullpen.hub.agents.intent import LaunchUndo
from bullpen.hub.agents.kinds import Kinds
from bullpen.hub.agents.last_answers import LastAnswers
from bullpen.hub.agents.launch import Launcher
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.private_gits import PrivateGits
from bullpen.hub.agents.registry import Registry
from bullpen.hub.agents.remove import Remover
from bullpen.hub.agents.start import Starter
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.agents.terminals import Terminals
from bullpen.hub.agents.watch import Watch
from bullpen.hub.background import Background
from bullpen.hub.components import Components
from bullpen.hub.context import HubContext
from bullpen.hub.directors import Directors
from bullpen.hub.fleet import Fleet
from bullpen.hub.fleet_children import FleetChildren
from bullpen.hub.fleet_children.guests import GuestChildren
from bullpen.hub.fleet_children.remote import RemoteChildren
from bullpen.hub.fleet_children.rows import ChildRows
from bullpen.hub.fleet_children.spawn import FleetSpawner
from bullpen.hub.fleet_mail import FleetMail
from bullpen.hub.fleet_tasks import FleetTasks
from bullpen.hub.holders.factory import Factory
from bullpen.hub.landing.book import LandingBook
from bullpen.hub.landing.children import ChildCleanUp, ChildMerger
from bullpen.hub.landing.queue import Landings
from bullpen.hub.landing.rows import LandingRows
from bullpen.hub.messages.box import Messages
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.messages.git_news import GitNews
from bullpen.hub.messages.heartbeat import Heartbeats
from bullpen.hub.messages.lost_conversations import LostConversations
from bullpen.hub.messages.mail_events import MailEvents
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.permissions.escalations import Escalations
from bullpen.hub.permissions.flow import PermissionFlow
from bullpen.hub.pods.launch import Pods
from bullpen.hub.quotas import Quotas
from bullpen.hub.revive import Reviver
from bullpen.hub.sandbox.agent_sockets import AgentSockets
from bullpen.hub.sandbox.tunnels import Tunnels
from bullpen.hub.settings_watch import SettingsWatch
from bullpen.hub.store.feed import Feed
from bullpen.hub.store.store import Store
from bullpen.hub.tasks.agents import TaskAgents
from bullpen.hub.tasks.autostart import Autostart
from bullpen.hub.tasks.board import Board
from bullpen.hub.tasks.branches import TaskBranches
from bullpen.hub.tasks.delegations import Delegations
from bullpen.hub.tasks.driver import Driver
from bullpen.hub.tasks.limits import TaskLimits
from bullpen.hub.tasks.merge import TaskMerger
from bullpen.hub.tasks.merged import MergedTasks
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.tasks.rows import TaskRows
from bullpen.hub.tree.children import Children
from bullpen.hub.tree.orphans import Orphans
from bullpen.hub.tree.queue import Queue
from bullpen.hub.tree.spawn import Spawner
from bullpen.hub.upkeep import Upkeep
from bullpen.hub.usage.budgets import Budgets
from bullpen.hub.usage.count import Usage
from bullpen.hub.usage.delegated import DelegatedCosts
from bullpen.hub.usage.rate_limits import RateLimits
from bullpen.hub.workflows.land import SequenceLanding
from bullpen.hub.workflows.sequence import Workflows
from bullpen.model.child_letter import Used
from bullpen.model.event import Event
from bullpen.model.state import Idle

log = logging.getLogger("bullpen.hub")


@dataclass(frozen=True)
class Part:
    """When one part is called; a part has what it needs of these."""

    load: Callable[[], Awaitable[None]] | None = None
    """Before the hub serves: take up what earlier hubs left."""
    notice: Callable[[list[Event]], None] | None = None
    """On the loop, for every committed event, in their order. Must not wait."""
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    """From the moment at which the hub serves, until it is cancelled."""
    leave: Callable[[], None] | None = None
    """The hub stops: whoever waits here is let go, or the server would wait for them."""


class Hub:
    """One running hub: what its parts share, the parts, and when each is called."""

    def __init__(  # noqa: PLR0915 - a list, one line for each part
        self, context: HubContext, store: Store, factory: Factory
    ) -> None:
        self.life = life = Life(Journal(log), own_stage=Idle())
        self.stop = life.over  # set: the hub is to stop
        self.is_restarting = True  # the next hub comes soon, as far as anybody knows
        self.context = context
        self.home = home = context.home
        self.port = context.port
        self.store = store
        self.factory = factory
        self.feed = feed = Feed(store)
        self.settings_watch = settings_watch = SettingsWatch(context, life.journal)
        self.background = background = Background()
        self.queue = queue = Queue(store)
        self.registry = registry = Registry()
        self.quotas = Quotas()
        self.components = components = Components(store, life.journal)
        self.directors = directors = Directors(store, home, components)

        # What agents of both kinds need.
        self.observer = observer = Observer(store, background)
        self.agent_sockets = agent_sockets = AgentSockets(home)
        self.tunnels = tunnels = Tunnels(home)
        self.private_gits = private_gits = PrivateGits(context, registry, observer, background)
        self.watch = watch = Watch(
            context, registry, observer, agent_sockets, tunnels, background, private_gits
        )
        self.hooks = hooks = Hooks(home, observer, watch)
        self.last_answers = last_answers = LastAnswers(context, registry, background)
        dialogs = StartDialogs(home, registry, observer, background)

        # What is said to agents, and what they use.
        self.messages = messages = Messages(store)
        self.delivery = delivery = Delivery(home, store, registry, messages)
        self.mail_events = mail_events = MailEvents(registry, messages, queue, background)
        self.child_rows = child_rows = ChildRows(store)
        self.children = children = Children(
            context,
            store,
            registry,
            queue,
            background,
            lambda name: bool(messages.queue(name)),
            child_rows,
        )
        self.heartbeats = heartbeats = Heartbeats(context, registry, delivery, background)
        approvals = Approvals(store, registry, observer, background)
        self.escalations = Escalations(store, approvals)
        self.permissions = permissions = PermissionFlow(context, registry, observer, approvals)
        self.usage = usage = Usage(store, registry)
        delegated_costs = DelegatedCosts(store)
        self.budgets = budgets = Budgets(home, store, registry, usage, delivery, delegated_costs)
        self.rate_limits = rate_limits = RateLimits(store, registry, observer, delivery, background)

        # Landing.
        book = LandingBook(context, LandingRows(store))
        self.landings = landings = Landings(
            context,
            book,
            registry,
            private_gits,
            delivery,
            lambda message, agent: self.fleet.mail.send(message, agent),  # noqa: PLW0108 - later
            child_rows.find_named,
            background,
        )
        self.asked_children = asked_children = RemoteChildren(
            context,
            registry,
            child_rows,
            messages.letters,
            children,
            queue,
            delegated_costs,
            book,
        )
        self.child_merger = ChildMerger(
            context,
            registry,
            children,
            private_gits,
            landings,
            book,
            child_rows.find_named,
            asked_children.fetch_late,
        )

        # Tasks.
        board = Board(TaskRows(store, Delegations(queue, delegated_costs)))
        limits = TaskLimits(home, registry, rate_limits, background)
        driver = Driver(
            context,
            registry,
            observer,
            factory,
            tunnels,
            board,
            messages,
            budgets,
            approvals,
            background,
            private_gits,
            limits,
        )
        self.tasks = tasks = TaskQueue(context, registry, board, driver, limits)
        self.task_branches = task_branches = TaskBranches(board)
        self.task_merger = TaskMerger(context, registry, tasks, private_gits, landings)
        merged_tasks = MergedTasks(context, book, registry, board, background)
        self.delegating = asyncio.Lock()  # a part of a budget is found and given by one at a time

        # Agents: the two kinds, and what is the same for both.
        self.task_agents = task_agents = TaskAgents(
            context,
            store,
            registry,
            observer,
            watch,
            agent_sockets,
            board,
            tasks,
            background,
            factory.ports,
        )
        terminals = Terminals(
            context, factory, observer, watch, agent_sockets, tunnels, private_gits
        )
        kinds: Kinds = {"interactive": terminals, "headless": task_agents}
        self.starter = starter = Starter(
            home, registry, observer, agent_sockets, tunnels, kinds, background, delivery.end
        )
        self.stopper = stopper = Stopper(context, registry, observer, kinds)
        self.launcher = launcher = Launcher(home, store, registry, watch, starter, stopper, kinds)
        at_removal = (usage.flush, delivery.end, landings.cancel_removed)
        self.remover = Remover(context, store, registry, stopper, kinds, private_gits, *at_removal)
        self.child_clean_up = child_clean_up = ChildCleanUp(
            book, registry, self.remover, background, asked_children
        )
        undo = LaunchUndo(context, store, registry, stopper, background)
        self.spawner = Spawner(
            context,
            store,
            registry,
            observer,
            starter,
            undo,
            private_gits,
            children,
            background,
            budgets.share,
            child_rows.count_living,
        )
        orphans = Orphans(
            home,
            store,
            registry,
            stopper,
            children,
            queue,
            background,
            delivery.redirect,
            asked_children,
        )
        self.pods = Pods(context, store, registry, observer, starter, undo, background)
        self.workflows = workflows = Workflows(
            context,
            store,
            registry,
            self.pods,
            starter,
            stopper,
            tasks,
            delivery,
            SequenceLanding(context, approvals, landings),
            background,
        )
        adopter = Adopter(home, store, registry, watch, kinds, hooks, agent_sockets, tunnels, undo)
        reviver = Reviver(store, registry, launcher, delivery, background)
        autostart = Autostart(home, store, registry, launcher, life.journal)
        self.gc = Gc(context, store, registry, background, kinds, private_gits, *at_removal)
        upkeep = Upkeep(context, store, registry, messages, self.children, usage)
        fleet_tasks = FleetTasks(context, store, registry, tasks, task_agents, private_gits)
        self.fleet_spawner = FleetSpawner(
            child_rows,
            asked_children,
            messages.letters,
            self.spawner,
            lambda: self.fleet.show(),  # noqa: PLW0108 - it is made later
            orphans.look,
        )
        taken_children = GuestChildren(
            context,
            registry,
            child_rows,
            messages.letters,
            children,
            self.spawner,
            stopper,
            self.remover,
            private_gits,
            lambda agent: Used(**budgets.spent_by(agent).model_dump()),
        )
        fleet_children = FleetChildren(asked_children, self.fleet_spawner, taken_children)
        fleet_mail = FleetMail(registry, messages, delivery, self.quotas, fleet_children)
        self.fleet = fleet = Fleet(context, registry, settings_watch, fleet_tasks, fleet_mail)

        # In this order they are loaded, told of events, run and left. Agents come before all that
        # looks at them; tasks last, because they go on at once and use the rest.
        self.parts: tuple[Part, ...] = (
            Part(notice=feed.publish, leave=feed.close),
            Part(run=settings_watch.run),
            Part(load=watch.load, leave=watch.leave),
            Part(load=adopter.load),
            Part(load=dialogs.load, notice=dialogs.notice),
            Part(load=last_answers.load, notice=last_answers.notice),
            Part(load=private_gits.load, notice=private_gits.notice, run=private_gits.run),
            Part(load=components.load),
            Part(load=directors.load),
            Part(notice=upkeep.notice, run=upkeep.run),
            Part(load=approvals.load, notice=approvals.notice, run=approvals.run),
            Part(leave=permissions.leave),
            Part(load=usage.load, notice=usage.notice, run=usage.run),
            Part(load=delegated_costs.load),
            Part(load=asked_children.load, notice=fleet_children.notice),
            Part(run=budgets.run),
            Part(load=messages.load),
            Part(load=rate_limits.load, notice=rate_limits.notice),
            Part(load=delivery.load, notice=delivery.notice, leave=delivery.leave),
            Part(notice=mail_events.notice),
            Part(load=children.load, notice=children.notice, leave=queue.leave),
            Part(notice=orphans.notice, run=orphans.run),
            Part(load=heartbeats.load, notice=heartbeats.notice),
            Part(notice=GitNews(registry, delivery, background).notice),
            Part(
                load=landings.load,
                notice=landings.notice,
                run=landings.run,
                leave=landings.leave,
            ),
            Part(notice=child_clean_up.notice, run=child_clean_up.run),
            Part(notice=limits.notice),
            Part(load=task_branches.load, notice=task_branches.notice),
            Part(load=tasks.load, notice=tasks.notice, leave=tasks.leave),
            Part(notice=merged_tasks.notice, run=merged_tasks.run),
            Part(leave=context.trees.leave),
            Part(run=task_agents.run, leave=task_agents.ports.leave),
            Part(run=autostart.run),
            Part(run=workflows.run),
            Part(notice=reviver.notice, run=reviver.run),
            Part(notice=LostConversations(delivery, background).notice),
            Part(notice=fleet.notice, run=fleet.run),
            Part(leave=agent_sockets.leave),
            Part(leave=tunnels.leave),
        )

    @property
    def settings(self) -> Settings:
        """As they are now."""
        return self.context.settings

    async def load(self) -> None:
        """Take up what earlier hubs left, before this one serves."""
        for part in self.parts:
            if part.load is not None:
                await part.load()

    def notice(self, events: list[Event]) -> None:
        """Tell the parts of events that were committed. On the loop. What fails in one part keeps
        nobody else from hearing of them."""
        for part in self.parts:
            if part.notice is not None:
                try:
                    part.notice(events)
                except Exception:
                    log.exception("committed events could not be handed on")

    def run(self) -> list[asyncio.Task[None]]:
        """Begin what goes on for as long as the hub serves; whoever calls cancels it."""
        return [
            self.background.begin(part.run(), part.run.__qualname__)
            for part in self.parts
            if part.run is not None
        ]

    def leave(self) -> None:
        """Let everybody go who waits for something."""
        for part in self.parts:
            if part.leave is not None:
                part.leave()
