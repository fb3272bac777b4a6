"""What directors leave to a person: approvals that no engine waits for.

Called by `hub/http/escalations`, with the director that the token says. Opened once for each name
that a director gives it, also across restarts: the event log decides. Listed and answered as every
approval; the director asks what came of it, and may withdraw it.
"""

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bullpen.errors import BullpenError, Kind
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.permissions.asked_events import asked_key, ended_key
from bullpen.hub.store.events import find_by_key
from bullpen.hub.store.store import Store
from bullpen.model.approval import ESCALATE, Approval, ToolRequest, digest, director_run

MOST_OPEN = 20  # of one director
MOST_CHARACTERS = 40_000  # of one

FieldName = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,29}$")]


class Escalation(BaseModel):
    """What a person is to decide. `about` is shown below `what`, field by field."""

    model_config = ConfigDict(extra="forbid")

    what: str = Field(min_length=1, max_length=500)
    about: dict[FieldName, Annotated[str, Field(max_length=MOST_CHARACTERS)]] = Field(
        default_factory=dict, max_length=20
    )

    def request(self) -> ToolRequest:
        """As an approval has it."""
        return ToolRequest(tool=ESCALATE, input={**self.about, "what": self.what})


class Escalations:
    """Those of all directors."""

    def __init__(self, store: Store, approvals: Approvals) -> None:
        self._store = store
        self._approvals = approvals
        self._opening = asyncio.Lock()  # whoever counts those that are open counts each once

    async def open(self, director: str, name: str, given: Escalation) -> Approval:
        """Ask a person; the same name again is the same question."""
        request = given.request()
        if sum(map(len, request.input.values())) > MOST_CHARACTERS:
            raise BullpenError(f"more than {MOST_CHARACTERS} characters")
        async with self._opening:
            approval = await self._find(director, name)
            if approval is None:
                self._refuse_more(director)
                approval = await self._approvals.open(
                    director, director_run(director), name, request
                )
        if approval.digest != digest(request):
            raise BullpenError(f"{name} is another question already", kind=Kind.CONFLICT)
        return approval

    async def get(self, director: str, name: str) -> Approval:
        """How it stands."""
        approval = await self._find(director, name)
        if approval is None:
            raise BullpenError(f"no escalation {name} of {director}", kind=Kind.NOT_FOUND)
        return approval

    async def withdraw(self, director: str, name: str) -> Approval:
        """Nobody has to decide it any more; fine if somebody has."""
        approval = await self.get(director, name)
        if approval.is_open:
            await self._approvals.close(approval, f"{director} has withdrawn it")
        return await self.get(director, name)

    def _refuse_more(self, director: str) -> None:
        if self._approvals.open_of(director_run(director)) >= MOST_OPEN:
            raise BullpenError(
                f"{MOST_OPEN} questions of {director} wait for a person already",
                hint="bullpen approvals",
                kind=Kind.UNAVAILABLE,
            )

    async def _find(self, director: str, name: str) -> Approval | None:
        """Also one that ended so long ago that only the log knows it."""
        run = director_run(director)
        approval = self._approvals.find(run, name)
        if approval is not None:
            return approval
        key = f"{run}:{name}"
        events = [
            await self._store.read(find_by_key(which(key))) for which in (asked_key, ended_key)
        ]
        self._approvals.recall([event for event in events if event is not None])
        return self._approvals.find(run, name)
