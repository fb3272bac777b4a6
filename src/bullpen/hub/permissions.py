"""What becomes of a permission that an engine's own rules do not decide: the reviewer, where the
role has one; else, or when it is not sure, an approval that a person answers.

Nothing is allowed here by default, by time or by failure: who gets no answer is told nothing, and
the engine's own dialog decides.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bullpen.component.redact import Redactor
from bullpen.engines import get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.hub.approvals import Approvals
from bullpen.hub.registry import Live
from bullpen.hub.reviewer import Reviewed, Reviewer
from bullpen.hub.rules import add_rule
from bullpen.hub.supervise import Supervisor
from bullpen.model import duration
from bullpen.model.agent import Agent
from bullpen.model.approval import (
    TIME_OUT,
    Approval,
    Decision,
    Request,
    decision_json,
    hook_output,
    parse_request,
    settled_elsewhere,
)
from bullpen.model.event import Draft
from bullpen.model.role import Reviewer as Instructed
from bullpen.model.state import Blocked, State, Told, Working
from bullpen.overrides import apply_overrides
from bullpen.roles import RoleFile, find_role, load_role, text_with_rule

log = logging.getLogger("bullpen.hub")

MOST_OPEN = 20  # of one agent

_redactor = Redactor()


class Given(BaseModel):
    """An answer. `answer` names it, so that sending it twice is the same as once."""

    model_config = ConfigDict(extra="forbid")

    decision: Decision
    reason: str = Field(default="", max_length=2000)
    always: bool = False
    role: bool = False
    answer: str = Field(default="", max_length=64)


class Permissions:
    """The flow. `left` is set when the hub stops: hooks then ask the next one."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.approvals = Approvals(supervisor)
        self.reviewer = Reviewer(supervisor.home)
        self.left = asyncio.Event()

    # ── asked by an engine ──

    async def decide(self, live: Live, ask: str, body: bytes, asked: float) -> str:
        """The decision in the engine's form, perhaps after a day; empty: it is not ours.
        `asked` is when the hook began to ask, perhaps an earlier hub."""
        run = live.agent.run
        request = parse_request(body)
        if request is None:
            data = {"run": run, "malformed": len(body)}
            await self.supervisor.record.observe(live, None, _draft(live, "hook.received", data))
            return ""
        approval = self.approvals.find(run, ask)
        if approval is not None:
            return await self._wait(approval)
        if not live.is_running:
            return ""
        if request.tool in get_engine(live.agent.engine).questions:
            # It has more than two answers: the terminal has them.
            await self._note(live, ask, request, asked, is_reviewed=False)
            await asyncio.shield(self.approvals.ask(live, ask, request, asked, ""))
            return ""
        return await self._decide(live, ask, request, asked)

    async def _decide(self, live: Live, ask: str, request: Request, asked: float) -> str:
        told = await asyncio.to_thread(self._instructions, live.agent)
        await self._note(live, ask, request, asked, is_reviewed=told is not None)
        review = ""
        if told is not None:
            reviewed = await self.reviewer.review(live.agent, request, told)
            word, review = reviewed.verdict.word, _redactor.text(reviewed.verdict.reason)
            # The dialog is open meanwhile.
            is_late = bool(settled_elsewhere(asked, live.view, is_waited_for=True))
            await self._record(live, request, reviewed, review, is_late=is_late)
            if word != "ASK_USER" and not is_late:
                return decision_json(allow=word == "ALLOW", message=review)
        is_settled = settled_elsewhere(asked, live.view, is_waited_for=True)
        if is_settled or self.approvals.open_of(live.agent.run) >= MOST_OPEN:
            return ""  # whoever asks for so much at once is answered in its terminal
        opening = self.approvals.ask(live, ask, request, asked, review)
        return await self._wait(await asyncio.shield(opening))

    async def _wait(self, approval: Approval) -> str:
        limit = self.supervisor.settings.ask_timeout
        left = None
        if limit is not None:
            left = max(0.0, approval.asked + limit.total_seconds() - time.time())
        async with self.approvals.waited_for(approval) as over:
            try:
                async with asyncio.timeout(left):
                    await over.wait()
            except TimeoutError:
                assert limit is not None
                await self._deny_late(approval, duration.to_text(limit))
        found = self.approvals.find(approval.run, approval.ask)
        return hook_output(found.state) if found else ""

    async def _deny_late(self, approval: Approval, limit: str) -> None:
        reason = f"nobody answered within {limit}"
        try:
            await self.approvals.answer(approval.id, "deny", by=TIME_OUT, reason=reason)
        except BullpenError as error:
            if error.kind is not Kind.CONFLICT:  # somebody was faster
                raise

    def _instructions(self, agent: Agent) -> Instructed | None:
        """What the agent's reviewer is told; None: it has none. A role that cannot be read has
        none either: then the person is asked."""
        if not agent.role:
            return None
        try:
            role = apply_overrides(load_role(self._role_file(agent)), agent.overrides)
        except BullpenError as error:
            log.error(
                "no reviewer: its role cannot be read",
                extra={"agent": agent.name, "reason": error.message},
            )
            return None
        return role.permissions.agent if role.permissions.agent.is_on else None

    def _role_file(self, agent: Agent) -> RoleFile:
        home = self.supervisor.home
        return find_role(agent.role, home.roles, home.pod_roles if agent.pod else None)

    async def _note(
        self, live: Live, ask: str, request: Request, asked: float, is_reviewed: bool
    ) -> None:
        tool, run = request.tool, live.agent.run
        is_question = tool in get_engine(live.agent.engine).questions
        state: State = Blocked(on="question" if is_question else "permission", tool=tool)
        if is_reviewed:
            state = Working(doing="review", tool=tool)
        at = max(asked, live.view.told_at)
        state = self.approvals.blocked_on(live) or state
        seen = Told(at=at, source="hook PermissionRequest", says=tool, state=state)
        data = {"run": run, "event": "PermissionRequest", "tool": tool}
        draft = _draft(live, "hook.received", data, key=f"permission:{run}:{ask}")
        await self.supervisor.record.observe(live, seen, draft)

    async def _record(
        self, live: Live, request: Request, reviewed: Reviewed, reason: str, is_late: bool
    ) -> None:
        tool, word = request.tool, reviewed.verdict.word
        state: State = Blocked(on="permission", tool=tool)
        if word != "ASK_USER":
            state = Working(tool=tool) if word == "ALLOW" else Working(doing="thinking")
        at = max(time.time(), live.view.told_at)
        state = self.approvals.blocked_on(live) or state
        seen = Told(at=at, source="reviewer", says=f"{tool}: {word}", state=state)
        data = {
            "run": live.agent.run,
            "tool": tool,
            "verdict": word,
            "reason": reason,
            "seconds": round(reviewed.seconds, 3),
            "reused": reviewed.is_reused,
        }
        draft = _draft(live, "permission.reviewed", data)
        await self.supervisor.record.observe(live, None if is_late else seen, draft)

    # ── answered by a person ──

    async def answer(self, id: int, given: Given) -> Approval:
        """Answer an approval; with a rule for the next time, if that is wanted."""
        approval = self.approvals.get(id)
        rule, file, text = "", None, ""
        if given.always or given.role:
            rule = _rule_of(approval, given)
        if given.role:
            file = await asyncio.to_thread(self._file_to_change, approval)
            text = await asyncio.to_thread(text_with_rule, file, rule)
        ended = await self.approvals.answer(
            id, given.decision, reason=given.reason, always=rule, answer=given.answer
        )
        if rule:
            session = self.supervisor.home.session(approval.agent)
            await asyncio.to_thread(add_rule, session, rule)
        if file is not None:
            await asyncio.to_thread(_rewrite, file.path, text)
        return ended

    def _file_to_change(self, approval: Approval) -> RoleFile:
        agent = self.supervisor.registry.get(approval.agent).agent
        if not agent.role:
            raise BullpenError(
                f"{agent.name} has no role that a rule could be added to",
                hint=f"bullpen approve {approval.id} --always",
            )
        return self._role_file(agent)


def _rewrite(path: Path, text: str) -> None:
    write_atomically(path, text, mode=path.stat().st_mode & 0o777)


def _rule_of(approval: Approval, given: Given) -> str:
    if given.decision != "allow":
        raise BullpenError("a rule for the next time is only made by allowing")
    if not approval.rule.rule:
        raise BullpenError(
            f"#{approval.id} cannot be allowed for good: {approval.rule.why_not}",
            hint=f"once: bullpen approve {approval.id} · or write a rule into the role by hand",
            kind=Kind.UNSUPPORTED,
        )
    return approval.rule.rule


def _draft(live: Live, kind: str, data: dict[str, Any], key: str = "") -> Draft:
    return Draft(time=time.time(), kind=kind, agent=live.agent.name, data=data, key=key)
