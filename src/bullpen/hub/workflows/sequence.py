"""Sequences: each member of a pod gets its task when the one before has ended its own, from that
one's branch and with its result. A failure stops the pod.

The agents start together and wait; so what a start needs of the caller is not needed later. What
is on record (`pod.sequence`) says all about the tasks, and each has a key: a hub that is killed
anywhere goes on where it was, and no task is given twice. What was stopped or cannot be done ends
the sequence. At the end it lands if its template says so (`land`). The person is told how it ended.
"""

import asyncio
import contextlib
import logging
import time
import uuid

from bullpen.errors import BullpenError
from bullpen.home.pods import load_template
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.start import Starter
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.background import Background
from bullpen.hub.context import HubContext
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.pods.launch import Launching, Pods
from bullpen.hub.store.events import find_by_key, list_after
from bullpen.hub.store.store import Store
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.workflows.land import SequenceLanding
from bullpen.hub.workflows.plan import (
    SequencePlan,
    SequenceRecord,
    SequenceStep,
    make_tree,
    plan_sequence,
    prompt_of,
)
from bullpen.model import names
from bullpen.model.event import Draft
from bullpen.model.launch import PodLaunch
from bullpen.model.message import BULLPEN, ROOT, Message
from bullpen.model.pod import PodTemplate, members_of
from bullpen.model.state import Errored, Starting
from bullpen.model.task import Completed, Failed, QueuedTaskRequest, Task

log = logging.getLogger("bullpen.hub")

LOOK_SECONDS = 2.0
READY_SECONDS = 0.1
TOLD_CHARACTERS = 4000  # of the last result, in the message to the person


class Workflows:
    """Starts pods as their templates say, and drives the sequences of one hub."""

    def __init__(
        self,
        context: HubContext,
        store: Store,
        registry: Registry,
        pods: Pods,
        starter: Starter,
        stopper: Stopper,
        tasks: TaskQueue,
        delivery: Delivery,
        landing: SequenceLanding,
        background: Background,
    ) -> None:
        self._context = context
        self._store = store
        self._registry = registry
        self._pods = pods
        self._starter = starter
        self._stopper = stopper
        self._tasks = tasks
        self._delivery = delivery
        self._landing = landing
        self._background = background

    async def launch(self, request: PodLaunch) -> Launching:
        """Begin; asked for twice it is one launch. Refusals come before anything is touched."""
        directory = self._context.home.pod_templates
        template = await asyncio.to_thread(load_template, request.template, directory)
        if template.workflow == "parallel":
            return await self._pods.launch(request)
        id = request.run or uuid.uuid4().hex
        begun = await self._store.read(find_by_key(f"sequence:{id}"))
        if begun is not None:
            await self._refuse_failed(id)
            return _under_way(SequenceRecord.model_validate(begun.data))
        return await self._begin(request, template, id)

    async def _begin(self, request: PodLaunch, template: PodTemplate, id: str) -> Launching:
        registry = self._registry
        pod = names.check_name("pod", request.pod or template.pod_name)
        before = {live.agent.name: live for live in registry}
        pods = {name: live.agent.pod for name, live in before.items()}
        members = members_of(template, pod, pods)
        for member in members:
            self._starter.refuse_taken(member.name, "")
        plan = await asyncio.to_thread(
            plan_sequence, self._context, request, template, id, pod, members, before
        )
        data = plan.record.model_dump(mode="json")
        await self._store.append(
            Draft(time.time(), "pod.sequence", data=data, key=f"sequence:{id}")
        )
        try:
            await self._start(plan, before)
        except BullpenError as error:
            await self._end(plan.record, f"it could not start: {error.message}", is_told=False)
            raise
        self._begin_drive(plan.record)
        return _under_way(plan.record)

    async def _refuse_failed(self, id: str) -> None:
        """Asked for again after it has ended badly, perhaps because the hub was killed."""
        finished = await self._store.read(find_by_key(f"finished:{id}"))
        if finished is not None and finished.data["failed"]:
            raise BullpenError(f"pod {finished.data['pod']} stopped: {finished.data['failed']}")

    async def _start(self, plan: SequencePlan, before: dict[str, LiveAgent]) -> None:
        for each in plan.agents:
            last = before.get(each.agent.name)
            await self._starter.start(each, last.agent if last else None)

    # ── driving ──

    async def run(self) -> None:
        """Go on with those that earlier hubs began."""
        for record in await list_unfinished(self._store):
            self._begin_drive(record)

    def _begin_drive(self, record: SequenceRecord) -> None:
        self._background.begin(self._drive(record), f"sequence of {record.pod}")

    async def _drive(self, record: SequenceRecord) -> None:
        try:
            result = await self._do_steps(record)
            landed = await self._land(record, result) if record.target else ""
        except BullpenError as error:
            await self._end(record, error.message)
        except Exception as error:
            log.exception("a sequence could not be driven", extra={"pod": record.pod})
            await self._end(record, f"the hub failed ({type(error).__name__}); its log says where")
        else:
            await self._end(record, "", result, landed)

    async def _do_steps(self, record: SequenceRecord) -> str:
        """One after the other; what the last one said."""
        result = ""
        for number, step in enumerate(record.steps):
            task = await self._give(record, number, result)
            task = await self._wait_over(step, task)
            if not isinstance(task.status, Completed):
                raise BullpenError(f"{step.name}: task {task.id} {_how_ended(task)}")
            result = task.output or ""
        return result

    async def _land(self, record: SequenceRecord, result: str) -> str:
        """How that ended is on record before its agents are stopped: it is not tried again."""
        key = f"landed:{record.id}"
        event = await self._store.read(find_by_key(key))
        if event is None:
            outcome = {"landed": "", "failed": ""}
            try:
                outcome["landed"] = await self._try_to_land(record, result)
            except BullpenError as error:
                outcome["failed"] = error.message
            data = {"id": record.id, "pod": record.pod, **outcome}
            (event,) = await self._store.append(
                Draft(time.time(), "pod.landed", data=data, key=key)
            )
        if event.data["failed"]:
            raise BullpenError(event.data["failed"])
        return str(event.data["landed"])

    async def _try_to_land(self, record: SequenceRecord, result: str) -> str:
        last = record.steps[-1]
        await self._wait_ready(last)
        return await self._landing.land(record, result, lambda: self._get_running(last))

    async def _give(self, record: SequenceRecord, number: int, result: str) -> Task:
        """The task of that step; the same one after a restart of the hub."""
        step = record.steps[number]
        request = QueuedTaskRequest(
            prompt=prompt_of(record, number, result),
            agent=step.name,
            repo=record.repo,
            worktree=step.branch,
            keep_open=False,
            request=record.request(number),
        )
        again = await self._tasks.find_again(request)
        if again is not None:
            return again
        for later in record.steps[number:]:
            self._get_running(later)  # a killed hub may have started the first of them only
        live = await self._wait_ready(step)
        await self._context.trees.run_to_end(
            lambda: make_tree(self._context, live.agent, record, number)
        )
        return await self._tasks.offer(request)

    async def _wait_ready(self, step: SequenceStep) -> LiveAgent:
        while True:
            live = self._get_running(step)
            match live.view.stage:
                case Errored(reason=reason):
                    raise BullpenError(f"{step.name} cannot work: {reason}")
                case Starting() | None:
                    await asyncio.sleep(READY_SECONDS)
                case _:
                    return live

    async def _wait_over(self, step: SequenceStep, task: Task) -> Task:
        """Its task waits for nobody once the agent is stopped."""
        board = self._tasks.board
        while not (task := await board.get(task.id)).is_over:
            if self._find_running(step) is None:
                with contextlib.suppress(BullpenError):  # it is over in this moment
                    await self._tasks.cancel(task.id)
                raise _was_stopped(step)
            await board.next_news(LOOK_SECONDS, task.agent)
        return task

    def _get_running(self, step: SequenceStep) -> LiveAgent:
        live = self._find_running(step)
        if live is None:
            raise _was_stopped(step)
        return live

    def _find_running(self, step: SequenceStep) -> LiveAgent | None:
        live = self._registry.find(step.name)
        is_this = live is not None and live.agent.run == step.run and live.is_running
        return live if is_this else None

    # ── the end ──

    async def _end(
        self,
        record: SequenceRecord,
        why: str,
        result: str = "",
        landed: str = "",
        *,
        is_told: bool = True,
    ) -> None:
        """Stop its agents, tell the person, and note it; killed in between, all of it again."""
        for step in record.steps:
            if self._find_running(step) is not None:
                with contextlib.suppress(BullpenError):  # it has just ended
                    await self._stopper.stop(step.name, None)
        if is_told:
            await self._delivery.send(_message(record, why, result, landed))
        data = {"id": record.id, "pod": record.pod, "failed": why}
        await self._store.append(
            Draft(time.time(), "pod.finished", data=data, key=f"finished:{record.id}")
        )


def _under_way(record: SequenceRecord) -> Launching:
    members = [step.name for step in record.steps]
    running = {"step": "running", "pod": record.pod, "members": members}
    if record.target:
        running["lands_in"] = record.target
    return Launching(record.id, record.pod, steps=[running], is_over=True)


def _was_stopped(step: SequenceStep) -> BullpenError:
    return BullpenError(f"{step.name} was stopped")


def _how_ended(task: Task) -> str:
    if isinstance(task.status, Failed):
        return f"failed: {task.status.error.message}"
    return "was cancelled"


def _message(record: SequenceRecord, why: str, result: str, landed: str) -> Message:
    """What the person is told."""
    text = f"pod {record.pod} stopped: {why}"
    if not why:
        last = record.steps[-1]
        text = f"pod {record.pod} is finished, on branch {last.branch}"
        text += f"; {landed}" if landed else ""
        text += f". {last.name} said:\n\n"
        text += result[:TOLD_CHARACTERS]
    return Message(
        id=record.message_id, sender=BULLPEN, to=ROOT, text=text.strip(), created=time.time()
    )


async def list_unfinished(store: Store) -> list[SequenceRecord]:
    """Sequences without an end."""
    records: dict[str, SequenceRecord] = {}
    seen = 0
    while events := await store.read(
        list_after(seen, 1000, kinds=("pod.sequence", "pod.finished"))
    ):
        for event in events:
            if event.kind == "pod.sequence":
                record = SequenceRecord.model_validate(event.data)
                records[record.id] = record
            else:
                records.pop(event.data["id"], None)
        seen = events[-1].id
    return list(records.values())
