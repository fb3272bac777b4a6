"""What the server of the fleet keeps of tasks: the queue, how each task stands, git bundles.

Used by `hub/fleet_tasks`. A connection of its own, so that a bundle on its way is in nobody's
terminal's way. What is asked again goes under one id.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import APIError

from bullpen.fleet.credential import Credential
from bullpen.fleet.direct_get import Entry
from bullpen.fleet.kept_connection import ANSWER_SECONDS, ask_api, publish_once
from bullpen.fleet.parcels import ParcelConnection, read_last
from bullpen.fleet.presence import EXPECTED_REVISION, copies
from bullpen.fleet.subjects import (
    PARCELS,
    QUEUE,
    TASKS,
    TASKS_STREAM,
    queued,
    task_key,
)
from bullpen.fleet.task_records import KEPT_SECONDS

ACK_SECONDS = 15.0  # a task whose taker says nothing for so long is given to others
NEED_SECONDS = 86400.0  # after so long without a task or a taker the server forgets a need
MOST_AT_ONCE = 100_000  # that are taken and not over, of one need


class LostError(Exception):
    """Somebody else was faster."""


class TaskServer(ParcelConnection):
    """The connection of one hub."""

    what = "tasks"

    def __init__(self, url: str, credential: Credential) -> None:
        super().__init__(url, credential)
        self._watched: dict[str, Callable[[], None]] = {}  # by key

    async def prepare(self, client: Client) -> None:
        await _make_streams(client)

    async def begin(self, client: Client) -> None:
        await client.subscribe(task_key(self.host, "*"), cb=self._hear)

    def begun(self) -> None:
        for changed in list(self._watched.values()):
            changed()

    async def _hear(self, message: Msg) -> None:
        if (changed := self._watched.get(message.subject)) is not None:
            changed()

    # ── how a task stands ──

    async def read(self, asker: str, id: str) -> Entry | None:
        """None: nobody has taken it. What is read may be old: nothing is decided by it alone."""
        return await self.surely(
            lambda client: read_last(client, TASKS_STREAM, task_key(asker, id))
        )

    async def put(self, asker: str, id: str, data: bytes, revision: int) -> int:
        """Write how it stands, if it stands as it did at that revision; the new one. LostError if
        somebody else has written since. The data must say who writes them, and what for."""
        subject = task_key(asker, id)
        # One id for all tries: the second is no second write.
        headers = {
            "Nats-Msg-Id": hashlib.sha256(subject.encode() + b"\0" + data).hexdigest(),
            EXPECTED_REVISION: str(revision),
        }

        async def ask(client: Client) -> int:
            ack = await client.jetstream().publish(subject, data, ANSWER_SECONDS, headers=headers)
            return ack.seq

        try:
            return await self.surely(ask)
        except APIError as error:
            # Perhaps by an earlier try of ours, whose answer was lost.
            entry = await self.read(asker, id)
            if entry is not None and entry.data == data:
                return entry.revision
            raise LostError from error

    def watch(self, id: str, changed: Callable[[], None]) -> None:
        """Called when one of this host's own tasks may stand otherwise than before."""
        self._watched[task_key(self.host, id)] = changed

    def unwatch(self, id: str) -> None:
        self._watched.pop(task_key(self.host, id), None)

    # ── the queue ──

    async def offer(self, need: str, id: str, data: bytes) -> None:
        """Let it wait for whoever fits. Asked again, it waits once."""

        async def ask(client: Client) -> None:
            await ask_api(client, f"CONSUMER.CREATE.{QUEUE}.{need}", _consumer(need))
            await publish_once(client, queued(self.host, need, id), data)

        await self.surely(ask)

    async def list_needs(self) -> list[str]:
        """What tasks that wait, or waited lately, need."""

        async def ask(client: Client) -> list[str]:
            return list((await ask_api(client, f"CONSUMER.NAMES.{QUEUE}", {}))["consumers"] or ())

        return await self.surely(ask)

    async def pull(self, need: str, seconds: float) -> Msg | None:
        """The next task of that need; None if none comes within that time."""
        return await self.pull_next(QUEUE, need, seconds)


def _consumer(need: str) -> dict[str, Any]:
    """Of all tasks with one need: those who fit have it deliver to them."""
    return {
        "stream_name": QUEUE,
        "config": {
            "durable_name": need,
            "filter_subject": queued("*", need, "*"),
            "ack_policy": "explicit",
            "ack_wait": int(ACK_SECONDS * 1e9),
            "max_deliver": -1,
            "max_ack_pending": MOST_AT_ONCE,
            "inactive_threshold": int(NEED_SECONDS * 1e9),
        },
    }


async def _make_streams(client: Client) -> None:
    """Unless they are there. A subject has one message: the same twice is refused in the queue and
    of parcels, and replaces what was there of a task's key."""
    common: dict[str, Any] = {
        "num_replicas": copies(client),
        "max_msgs_per_subject": 1,
        "max_age": KEPT_SECONDS,
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": False,
        "discard": DiscardPolicy.NEW,
    }
    once = {**common, "discard_new_per_subject": True}
    work_queue = RetentionPolicy.WORK_QUEUE
    for config in (
        StreamConfig(name=QUEUE, subjects=[f"{QUEUE}.>"], retention=work_queue, **once),
        StreamConfig(name=TASKS_STREAM, subjects=[f"$KV.{TASKS}.>"], allow_direct=True, **common),
        StreamConfig(name=PARCELS, subjects=[f"{PARCELS}.>"], allow_direct=True, **once),
    ):
        await client.jetstream().add_stream(config)
