"""What is left to a person: a question in the hub's inbox, and what came of it."""

from collections.abc import Mapping
from typing import Literal, Protocol

from bullpen.client import AsyncHub
from bullpen.client.escalations import get_escalation, open_escalation, withdraw_escalation
from bullpen.errors import BullpenError, Kind

Answer = Literal["waiting", "again", "leave", "gone"]


class Inbox(Protocol):
    """Where a director asks. `name`: 32 hexadecimal digits; the same is the same question."""

    async def open(self, name: str, what: str, about: Mapping[str, str]) -> None: ...

    async def look(self, name: str) -> Answer:
        """What a person has said; "gone": nobody can answer it any more."""

    async def withdraw(self, name: str) -> None:
        """Fine if it has ended."""


class UnreadInbox:
    """Of a director without a token, which looks ahead: nobody has answered."""

    async def open(self, name: str, what: str, about: Mapping[str, str]) -> None:
        raise AssertionError(f"asks {name} without a token")

    async def look(self, name: str) -> Answer:
        del name
        return "waiting"

    async def withdraw(self, name: str) -> None:
        raise AssertionError(f"withdraws {name} without a token")


class HubInbox:
    """That of the hub."""

    def __init__(self, hub: AsyncHub) -> None:
        self._hub = hub

    async def open(self, name: str, what: str, about: Mapping[str, str]) -> None:
        await self._hub.do(open_escalation(name, what, about))

    async def look(self, name: str) -> Answer:
        try:
            state = (await self._hub.do(get_escalation(name))).state
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            return "gone"
        match state.status:
            case "waiting":
                return "waiting"
            case "answered":
                return "again" if state.decision == "allow" else "leave"
            case "closed":
                return "gone"

    async def withdraw(self, name: str) -> None:
        try:
            await self._hub.do(withdraw_escalation(name))
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
