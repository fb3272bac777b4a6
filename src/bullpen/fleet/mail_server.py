"""What the server of the fleet keeps of messages: letters on their way from hub to hub, and what
each hub has taken.

Used by `hub/fleet_mail`. Nothing here has to be kept for good: the sender's database has every
letter until its receiver has said, signed, that it is in its own.
"""

from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from bullpen.fleet.credential import Credential
from bullpen.fleet.direct_get import read_messages
from bullpen.fleet.kept_connection import ANSWER_SECONDS, ask_api, publish_once
from bullpen.fleet.parcels import ParcelConnection
from bullpen.fleet.presence import copies
from bullpen.fleet.subjects import HEARD, HEARD_STREAM, MAIL, heard_key, mail, mail_to

KEPT_SECONDS = 14 * 86400.0  # then it is sent again
ACK_SECONDS = 15.0  # a letter of which its receiver says nothing for so long is delivered again
MOST_AT_ONCE = 1000  # that are delivered to one hub and neither taken nor refused


class MailServer(ParcelConnection):
    """The connection of one hub. `hear` is told what others say that they have taken, `changed`
    that there is a new connection."""

    what = "messages"

    def __init__(
        self,
        url: str,
        credential: Credential,
        hear: Callable[[str, bytes], None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(url, credential)
        self._hear = hear
        self._changed = changed

    async def prepare(self, client: Client) -> None:
        await _make_streams(client)
        await ask_api(
            client, f"CONSUMER.CREATE.{MAIL}.{self.host}.{mail_to(self.host)}", _consumer(self.host)
        )

    async def begin(self, client: Client) -> None:
        async def hear(message: Msg) -> None:
            self._hear(message.subject, message.data)

        await client.subscribe(heard_key("*", self.host), cb=hear)

    def begun(self) -> None:
        self._changed()

    async def read_heard(self) -> None:
        """Have `hear` told what others have said while this hub was away."""

        async def ask(client: Client) -> None:
            query = {"multi_last": [heard_key("*", self.host)]}
            async for subject, entry in read_messages(client, HEARD_STREAM, query, ANSWER_SECONDS):
                if entry.data is not None:
                    self._hear(subject, entry.data)

        await self.surely(ask)

    async def send(self, to: str, name: str, data: bytes, id: str) -> None:
        """Have a letter delivered. Sent again while it waits there, it waits once."""
        subject = mail(to, self.host, name)
        await self.surely(lambda client: publish_once(client, subject, data, id))

    async def pull(self, seconds: float) -> Msg | None:
        """The next letter for this host; None if none comes within that time."""
        return await self.pull_next(MAIL, self.host, seconds)

    async def say_heard(self, sender: str, data: bytes) -> None:
        """Tell another hub what was taken of its letters."""
        subject = heard_key(self.host, sender)

        async def ask(client: Client) -> None:
            await client.jetstream().publish(subject, data, ANSWER_SECONDS)

        await self.surely(ask)


def _consumer(host: str) -> dict[str, Any]:
    return {
        "stream_name": MAIL,
        "config": {
            "durable_name": host,
            "filter_subject": mail_to(host),
            "ack_policy": "explicit",
            "ack_wait": int(ACK_SECONDS * 1e9),
            "max_deliver": -1,
            "max_ack_pending": MOST_AT_ONCE,
        },
    }


async def _make_streams(client: Client) -> None:
    """Unless they are there. A letter that waits is refused if it is sent again; a key has what was
    said last."""
    common: dict[str, Any] = {
        "num_replicas": copies(client),
        "max_msgs_per_subject": 1,
        "max_age": KEPT_SECONDS,
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": False,
        "discard": DiscardPolicy.NEW,
    }
    letters = {**common, "discard_new_per_subject": True, "retention": RetentionPolicy.WORK_QUEUE}
    for config in (
        StreamConfig(name=MAIL, subjects=[f"{MAIL}.>"], **letters),
        StreamConfig(name=HEARD_STREAM, subjects=[f"$KV.{HEARD}.>"], allow_direct=True, **common),
    ):
        await client.jetstream().add_stream(config)
