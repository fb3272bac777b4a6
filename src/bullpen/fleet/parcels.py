"""Git bundles that hosts send each other by way of the server, in pieces. What names them is
signed, and has their SHA-256. `task_server` and `mail_server` are such connections.
"""

import hashlib
import json
from functools import partial

from nats.aio.client import Client

from bullpen.errors import BullpenError, Kind
from bullpen.fleet.direct_get import NOTHING_THERE, Entry
from bullpen.fleet.kept_connection import ANSWER_SECONDS, KeptConnection, publish_once
from bullpen.fleet.subjects import PARCELS, parcel
from bullpen.model.parcel import Parcel

PIECE_BYTES = 256 << 10
MOST_PARCEL = 256 << 20


class ParcelConnection(KeptConnection):
    """One over which bundles go. `task_server` makes the stream in which they are kept."""

    async def send_parcel(self, id: str, data: bytes, commit: str) -> Parcel:
        """Have it kept for others; the same again is sent once."""
        if len(data) > MOST_PARCEL:
            raise BullpenError(
                f"the repository's bundle has {len(data) >> 20} MiB, and the fleet carries"
                f" {MOST_PARCEL >> 20}",
                hint="have the task clone it from where everybody reaches it",
                kind=Kind.UNSUPPORTED,
            )
        digest = hashlib.sha256(data).hexdigest()
        starts = range(0, len(data), PIECE_BYTES)
        for number, start in enumerate(starts):
            subject = parcel(self.host, f"{id}-{digest[:16]}", f"{number:05}")
            piece = data[start : start + PIECE_BYTES]
            await self.surely(partial(publish_once, subject=subject, data=piece))
        return Parcel(
            host=self.host,
            id=f"{id}-{digest[:16]}",
            pieces=len(starts),
            bytes=len(data),
            sha256=digest,
            commit=commit,
        )

    async def fetch_parcel(self, sent: Parcel) -> bytes:
        """BullpenError if it is not there any more, or is another one."""
        if sent.bytes > MOST_PARCEL or sent.pieces > MOST_PARCEL // PIECE_BYTES + 1:
            raise BullpenError(f"{sent.host} has sent more than anybody may")
        pieces: list[bytes] = []
        for number in range(sent.pieces):
            pieces.append(await self._fetch_piece(sent, number))
        data = b"".join(pieces)
        if hashlib.sha256(data).hexdigest() != sent.sha256:
            raise BullpenError(f"what {sent.host} has sent did not arrive as it was sent")
        return data

    async def _fetch_piece(self, sent: Parcel, number: int) -> bytes:
        subject = parcel(sent.host, sent.id, f"{number:05}")

        entry = await self.surely(lambda client: read_last(client, PARCELS, subject))
        piece = (entry.data or b"") if entry else b""
        if not 0 < len(piece) <= PIECE_BYTES:
            raise BullpenError(f"what {sent.host} has sent is no longer there")
        return piece


async def read_last(client: Client, stream: str, subject: str) -> Entry | None:
    """What a stream has last under that subject."""
    query = json.dumps({"last_by_subj": subject}).encode()
    answer = await client.request(f"$JS.API.DIRECT.GET.{stream}", query, ANSWER_SECONDS)
    headers = answer.headers or {}
    if headers.get("Status") == NOTHING_THERE:
        return None
    if "Status" in headers:
        raise ConnectionError(f"the server does not say what is there: {headers}")
    return Entry(answer.data, int(headers["Nats-Sequence"]))
