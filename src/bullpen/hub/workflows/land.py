"""The end of a sequence whose template says `land: true`: the person is asked, then it lands.

Called by `sequence` when all steps are done, and again by the next hub if this one was killed: the
question, its answer and the entry of the queue are found again. An answer is for one commit. What
came back, or was refused, ends the sequence: a newer commit is the person's to land.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bullpen import worktrees
from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.agents.worktrees import open_site
from bullpen.hub.context import HubContext
from bullpen.hub.landing.queue import Landings
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.workflows.plan import SequenceRecord
from bullpen.model.approval import LAND, LAND_ASK, Answered, Approval, ToolRequest
from bullpen.model.landing import (
    SHORT,
    CameBack,
    Cancelled,
    Landed,
    Landing,
    LandingRequest,
    Refused,
    note_of,
)
from bullpen.model.names import subtree_name
from bullpen.model.state import Blocked
from bullpen.worktrees.git import git

AGAIN_SECONDS = 0.2
MOST_NAMED = 3
SAID_CHARACTERS = 1000


class SequenceLanding:
    """Asks and lands, for the sequences of one hub."""

    def __init__(self, context: HubContext, approvals: Approvals, landings: Landings) -> None:
        self._context = context
        self._approvals = approvals
        self._landings = landings

    async def land(
        self, record: SequenceRecord, result: str, get_agent: Callable[[], LiveAgent]
    ) -> str:
        """How it ended, for the person; raises if it does not land though they allowed it.
        `result` is what the last agent said, `get_agent` that agent: it has to stay while the
        question waits."""
        while True:
            entry = await self._plan(record)
            describe = partial(self._describe, entry)
            wanted = await self._context.trees.run_repeatable(entry.name, describe)
            if wanted is None:
                return f"{entry.target} has it already"
            if result.strip():
                wanted["said"] = result.strip()[:SAID_CHARACTERS]
            answer = await self._ask(record, get_agent, ToolRequest(tool=LAND, input=wanted))
            if answer.decision == "deny":
                reason = f": {answer.reason}" if answer.reason else ""
                later = f"bullpen land {entry.name} --into {entry.target}"
                return f"it was not landed, you denied that{reason} (to land it: {later})"
            now = await self._plan(record)
            if now.tip == entry.tip:
                return await self._wait_landed(now)

    async def _plan(self, record: SequenceRecord) -> Landing:
        """What would land now: the branch of the last step, into where the first began."""
        name = subtree_name(record.steps[-1].branch)
        request = LandingRequest(names=(name,), into=record.target)
        with self._context.trees.repeatable():
            entry = await self._landings.plan(name, request)
        return entry.model_copy(update={"is_for_one_commit": True})

    def _describe(self, entry: Landing) -> dict[str, str] | None:
        """What the person is asked; None if the target has it all. In a thread."""
        settings, base = self._context.settings, Path(entry.base_dir)
        site = open_site(self._context.home, settings, Path(entry.repo), base)
        between = f"refs/heads/{entry.target}..{entry.tip}"
        count = int(git(site.repo, "rev-list", "--count", between).text)
        if not count:
            return None
        since_fork = between.replace("..", "...")
        changes = git(site.repo, "diff", "--shortstat", "--no-ext-diff", since_fork).text.strip()
        commits = f"{count} commit{'s' * (count != 1)}"
        what = f"land {entry.branch} ({entry.tip[:SHORT]}) in {entry.target}: {commits}"
        wanted = {
            "what": ", ".join(filter(None, (what, changes))),
            "look": f"bullpen diff {entry.name} --against {entry.target}",
        }
        left = worktrees.uncommitted_files(site, entry.name)
        if left:
            more = ", …" if len(left) > MOST_NAMED else ""
            wanted["left_behind"] = f"uncommitted: {', '.join(left[:MOST_NAMED])}{more}"
        if entry.verify:
            wanted["verify"] = entry.verify
        return wanted

    # ── asking ──

    async def _ask(
        self, record: SequenceRecord, get_agent: Callable[[], LiveAgent], request: ToolRequest
    ) -> Answered:
        """The person's answer. One that was asked before, of an earlier hub too, is found again; a
        question that was closed, or is about another commit, is followed by another."""
        for number in itertools.count():
            live = get_agent()
            # No agent can ask under such a name: the API takes no colon.
            name = f"{LAND_ASK}{record.id}:{number}"
            approval = await self._approvals.ask(live, name, request, time.time())
            if approval is None:
                await self._withdraw(live, name)
            while approval is not None and approval.is_open:
                approval = await self._wait_ended(live, approval)
            if approval is not None and isinstance(approval.state, Answered):
                return approval.state
            await asyncio.sleep(AGAIN_SECONDS)
        raise AssertionError("it counts for ever")

    async def _withdraw(self, live: LiveAgent, name: str) -> None:
        """Of an earlier hub, and about another commit."""
        approval = self._approvals.find(live.agent.run, name)
        if approval is not None and approval.is_open:
            await self._approvals.close(approval, "there is another commit")

    async def _wait_ended(self, live: LiveAgent, approval: Approval) -> Approval | None:
        async with self._approvals.waited_for(approval) as over:
            if not isinstance(live.view.state, Blocked):  # another hub has asked
                await self._approvals.leave_to_person(live, approval)
            await over.wait()
        return self._approvals.find(live.agent.run, approval.ask)

    # ── landing ──

    async def _wait_landed(self, entry: Landing) -> str:
        (landing,) = await self._landings.put_in([entry])
        landing = await self._landings.wait_resting(landing.id)
        match landing.status:
            case Landed(commit=commit):
                return f"landed on {landing.target} as {commit[:SHORT]}"
            case CameBack():
                why = note_of(landing)
                await self._landings.cancel(landing.id)
            case Refused(message=message):
                why = message
            case Cancelled(reason=reason):
                why = "its landing was cancelled" + (f": {reason}" if reason else "")
            case status:
                raise AssertionError(f"{status.state} is no rest")
        raise BullpenError(
            f"its work is on branch {landing.branch} and did not land on {landing.target}: {why}"
        )
