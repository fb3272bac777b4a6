"""What becomes of a permission that an engine's own rules do not decide: the reviewer, where the
role has one; else, or when it is not sure, an approval that a person answers.

Nothing is allowed here by default, by time or by failure: who gets no answer is told nothing, and
the engine's own dialog decides.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bullpen.component.redact import Redactor
from bullpen.engines import get_engine
from bullpen.engines.hooks import permission_answer
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.home.roles import RoleFile, find_role, text_with_rule
from bullpen.hub.agents.launched_reviewer import find_reviewer
from bullpen.hub.agents.observe import Observer
from bullpen.hub.agents.registry import LiveAgent, Registry
from bullpen.hub.agents.rules import add_rule
from bullpen.hub.context import HubContext
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.permissions.asked_events import REVIEWED
from bullpen.hub.permissions.questions import refuse_question
from bullpen.hub.permissions.reviewer import Reviewed, Reviewer
from bullpen.model import duration
from bullpen.model.agent import Agent
from bullpen.model.approval import (
    REVIEWER,
    TIME_OUT,
    Answered,
    Approval,
    ApprovalAnswer,
    Decision,
    ToolRequest,
    decided_elsewhere,
    parse_request,
)
from bullpen.model.event import Draft
from bullpen.model.question import answered_input
from bullpen.model.role import ReviewerSettings
from bullpen.model.state import Blocked, EngineReport, State, Working

MOST_OPEN = 20  # of one agent
MOST_OPEN_BYTES = 16 << 20  # of what they are about
BIG_BYTES = 1 << 16  # is read in a thread

_redactor = Redactor()


class PermissionFlow:
    """The flow. `hub_stops` is set when the hub stops: hooks then ask the next one."""

    def __init__(
        self, context: HubContext, registry: Registry, observer: Observer, approvals: Approvals
    ) -> None:
        self._context = context
        self._registry = registry
        self._observer = observer
        self.approvals = approvals
        self.reviewer = Reviewer(context.home)
        self.hub_stops = asyncio.Event()
        self._opening: Counter[str] = Counter()  # by run

    def leave(self) -> None:
        """The hub stops: hooks that wait here are answered, and ask the next hub."""
        self.hub_stops.set()

    # ── asked by an engine ──

    async def decide(self, live: LiveAgent, request_id: str, body: bytes, asked_at: float) -> str:
        """The decision in the engine's form, perhaps after a day; empty: it is not ours.
        `asked_at` is when the hook began to ask, perhaps an earlier hub."""
        run = live.agent.run
        is_big = len(body) > BIG_BYTES
        request = await asyncio.to_thread(parse_request, body) if is_big else parse_request(body)
        if request is None:
            data = {"run": run, "malformed": len(body)}
            await self._observer.observe(live, None, _draft(live, "hook.received", data))
            return ""
        with self.approvals.hook_of(live.agent.name, run, request_id):
            return await self._answer(live, request_id, request, asked_at)

    async def _answer(
        self, live: LiveAgent, request_id: str, request: ToolRequest, asked_at: float
    ) -> str:
        approval = self.approvals.find(live.agent.run, request_id)
        if approval is not None:
            # An answer is for what was shown: another question under its name gets none.
            is_same = await self.approvals.is_about(approval, request)
            return await self._go_on(live, approval, request) if is_same else ""
        if not live.is_running:
            return ""
        if _is_question(live, request):
            await self._note(live, request_id, request, asked_at, is_reviewed=False)
            approval = await self._open(live, request_id, request, asked_at)
            return await self._wait_for_person(approval, request) if approval is not None else ""
        return await self._decide(live, request_id, request, asked_at)

    async def _wait_for_person(self, approval: Approval, request: ToolRequest) -> str:
        """The answer to a question of the agent, which is no matter for a reviewer. One without a
        form that is known here has more answers than two, and only the terminal has them."""
        return await self._wait(approval, request) if request.questions else ""

    async def _decide(
        self, live: LiveAgent, request_id: str, request: ToolRequest, asked_at: float
    ) -> str:
        settings = await asyncio.to_thread(self._find_reviewer, live.agent)
        await self._note(live, request_id, request, asked_at, is_reviewed=settings is not None)
        if settings is not None:
            return await self._review(live, request_id, request, asked_at, settings)
        approval = await self._open(live, request_id, request, asked_at)
        return await self._wait(approval, request) if approval is not None else ""

    async def _go_on(self, live: LiveAgent, approval: Approval, request: ToolRequest) -> str:
        """A hook is back, perhaps after a hub that was killed in the middle of a review."""
        if _is_question(live, request):
            return await self._wait_for_person(approval, request)
        settings = None
        if approval.is_open and not approval.review:
            settings = await asyncio.to_thread(self._find_reviewer, live.agent)
        if settings is None:
            return await self._wait(approval, request)
        return await self._review(live, approval.ask, request, approval.asked, settings)

    async def _review(
        self,
        live: LiveAgent,
        request_id: str,
        request: ToolRequest,
        asked_at: float,
        settings: ReviewerSettings,
    ) -> str:
        """It is listed meanwhile, and whoever answers first has decided: the reviewer, the person
        here, or somebody in the terminal."""
        # The hook waits without a gap, for the verdict and then for the person: one that no hook
        # waits for is taken for abandoned.
        async with contextlib.AsyncExitStack() as hook:
            with self.approvals.under_review(live.agent.run, request_id):
                approval = await self._open(live, request_id, request, asked_at)
                if approval is None:  # decided, or too much waits to list one more
                    reviewed = await self.reviewer.review(live.agent, request, settings)
                    return await self._judge_unlisted(live, request, asked_at, reviewed)
                over = await hook.enter_async_context(self.approvals.waited_for(approval))
                review = self.reviewer.review(live.agent, request, settings)
                verdict = await _unless(review, over)
                if verdict is not None:
                    await self._judge(live, approval, request, verdict)
            answered = self.approvals.find(approval.run, approval.ask)
            if answered is not None and answered.is_open:
                await self.approvals.leave_to_person(live, answered)
                return await self._wait(answered, request)
        return _to_hook(answered, request) if answered else ""

    async def _judge(
        self, live: LiveAgent, approval: Approval, request: ToolRequest, reviewed: Reviewed
    ) -> None:
        """End it by the reviewer's verdict; it stays open if the reviewer is not sure."""
        word, reason = reviewed.verdict.word, _redactor.text(reviewed.verdict.reason)
        is_late = bool(why := decided_elsewhere(approval.asked, live.view, is_waited_for=True))
        if is_late:
            await self.approvals.close(approval, why)
        elif word != "ASK_USER":
            # Before its state is said: work that goes on would look like an answer elsewhere.
            decision: Decision = "allow" if word == "ALLOW" else "deny"
            is_late = not await self._answer_first(approval, decision, REVIEWER, reason)
        await self._record(live, request, reviewed, is_late=is_late, ask=approval.ask)

    async def _judge_unlisted(
        self, live: LiveAgent, request: ToolRequest, asked_at: float, reviewed: Reviewed
    ) -> str:
        word = reviewed.verdict.word
        is_late = bool(decided_elsewhere(asked_at, live.view, is_waited_for=True))
        reason = await self._record(live, request, reviewed, is_late=is_late)
        if word == "ASK_USER" or is_late:
            return ""
        return permission_answer(is_allowed=word == "ALLOW", reason=reason)

    async def _open(
        self, live: LiveAgent, request_id: str, request: ToolRequest, asked_at: float
    ) -> Approval | None:
        """None: it is decided already; or whoever asks for so much at once is answered in its
        terminal."""
        run = live.agent.run
        is_decided = decided_elsewhere(asked_at, live.view, is_waited_for=True)
        is_known = self.approvals.find(run, request_id) is not None
        if is_decided or (self._asks_too_much(run) and not is_known):
            return None
        self._opening[run] += 1  # before anybody else asks whether it is too much
        return await asyncio.shield(self._ask(live, request_id, request, asked_at))

    async def _ask(
        self, live: LiveAgent, request_id: str, request: ToolRequest, asked_at: float
    ) -> Approval | None:
        try:
            return await self.approvals.ask(live, request_id, request, asked_at)
        finally:
            self._opening[live.agent.run] -= 1

    def _asks_too_much(self, run: str) -> bool:
        is_many = self.approvals.open_of(run) + self._opening[run] >= MOST_OPEN
        return is_many or self.approvals.open_bytes(run) >= MOST_OPEN_BYTES

    async def _wait(self, approval: Approval, request: ToolRequest) -> str:
        limit = self._context.settings.ask_timeout
        left = None
        if limit is not None:
            left = max(0.0, approval.asked + limit.total_seconds() - time.time())
        async with self.approvals.waited_for(approval) as over:
            try:
                async with asyncio.timeout(left):
                    await over.wait()
            except TimeoutError:
                assert limit is not None
                reason = f"nobody answered within {duration.to_text(limit)}"
                await self._answer_first(approval, "deny", TIME_OUT, reason)
        answered = self.approvals.find(approval.run, approval.ask)
        return _to_hook(answered, request) if answered else ""

    async def _answer_first(
        self, approval: Approval, decision: Decision, by: str, reason: str
    ) -> bool:
        """Answer it; False: somebody was faster."""
        try:
            await self.approvals.answer(approval.id, decision, by=by, reason=reason)
        except BullpenError as error:
            if error.kind is not Kind.CONFLICT:
                raise
            return False
        return True

    def _find_reviewer(self, agent: Agent) -> ReviewerSettings | None:
        return find_reviewer(self._context.home, agent.name) if agent.role else None

    async def _note(
        self,
        live: LiveAgent,
        request_id: str,
        request: ToolRequest,
        asked_at: float,
        is_reviewed: bool,
    ) -> None:
        tool, run = request.tool, live.agent.run
        is_question = _is_question(live, request)
        state: State = Blocked(on="question" if is_question else "permission", tool=tool)
        if is_reviewed:
            state = Working(doing="review", tool=tool)
        at = max(asked_at, live.view.told_at)
        state = self.approvals.blocked_on(live) or state
        seen = EngineReport(at=at, source="hook PermissionRequest", says=tool, state=state)
        data = {"run": run, "event": "PermissionRequest", "tool": tool}
        draft = _draft(live, "hook.received", data, key=f"permission:{run}:{request_id}")
        await self._observer.observe(live, seen, draft)

    async def _record(
        self,
        live: LiveAgent,
        request: ToolRequest,
        reviewed: Reviewed,
        *,
        is_late: bool,
        ask: str = "",
    ) -> str:
        """The verdict as an event, and what it says of the state; its reason, as it may be shown.
        `ask`: the approval that it is about."""
        tool, word = request.tool, reviewed.verdict.word
        reason = _redactor.text(reviewed.verdict.reason)
        state: State = Blocked(on="permission", tool=tool)
        if word != "ASK_USER":
            state = Working(tool=tool) if word == "ALLOW" else Working(doing="thinking")
        at = max(time.time(), live.view.told_at)
        state = self.approvals.blocked_on(live) or state
        seen = EngineReport(at=at, source="reviewer", says=f"{tool}: {word}", state=state)
        data = {
            "run": live.agent.run,
            "tool": tool,
            "verdict": word,
            "reason": reason,
            "seconds": round(reviewed.seconds, 3),
            "reused": reviewed.is_reused,
            **({"ask": ask} if ask else {}),
        }
        draft = _draft(live, REVIEWED, data)
        for event in await self._observer.observe(live, None if is_late else seen, draft):
            self.approvals.take_review(event)
        return reason

    # ── answered by a person ──

    async def answer(self, id: int, given: ApprovalAnswer) -> Approval:
        """Answer an approval; with a rule for the next time, if that is wanted."""
        approval = self.approvals.get(id)
        if given.decision == "allow":
            refuse_question(approval)
        rule, file, text = "", None, ""
        if given.always or given.role:
            rule = _rule_of(approval, given)
        if given.role:
            file = await asyncio.to_thread(self._file_to_change, approval)
            text = await asyncio.to_thread(text_with_rule, file, rule)
        ended = await self.approvals.answer(
            id,
            given.decision,
            reason=given.reason,
            always=rule,
            answer=given.answer,
            name=given.name,
        )
        if rule:
            session = self._context.home.session(approval.agent)
            await asyncio.to_thread(add_rule, session, rule)
        if file is not None:
            await asyncio.to_thread(_rewrite, file.path, text)
        return ended

    def _file_to_change(self, approval: Approval) -> RoleFile:
        agent = self._registry.get(approval.agent).agent
        if not agent.role:
            raise BullpenError(
                f"{agent.name} has no role that a rule could be added to",
                hint=f"bullpen approve {approval.id} --always",
            )
        home = self._context.home
        return find_role(agent.role, home.roles, home.pod_roles if agent.pod else None)


def _is_question(live: LiveAgent, request: ToolRequest) -> bool:
    is_its_own = request.tool in get_engine(live.agent.engine).questions
    return is_its_own or bool(request.questions)


def _to_hook(approval: Approval, request: ToolRequest) -> str:
    match approval.state:
        case Answered(answers=answers) if answers:
            tool_input = answered_input(request.input, answers)
            return permission_answer(is_allowed=True, tool_input=tool_input)
        case Answered(decision=decision, reason=reason, always=rule):
            return permission_answer(is_allowed=decision == "allow", reason=reason, rule=rule)
        case _:
            return ""


async def _unless(review: Coroutine[Any, Any, Reviewed], over: asyncio.Event) -> Reviewed | None:
    """The verdict; None if somebody else has decided before."""
    reviewing, ending = asyncio.create_task(review), asyncio.create_task(over.wait())
    try:
        await asyncio.wait({reviewing, ending}, return_when=asyncio.FIRST_COMPLETED)
        return None if over.is_set() else reviewing.result()
    finally:
        reviewing.cancel()
        ending.cancel()


def _rewrite(path: Path, text: str) -> None:
    write_atomically(path, text, mode=path.stat().st_mode & 0o777)


def _rule_of(approval: Approval, given: ApprovalAnswer) -> str:
    if given.decision != "allow":
        raise BullpenError("a rule for the next time is only made by allowing")
    if not approval.rule.rule:
        raise BullpenError(
            f"#{approval.id} cannot be allowed for good: {approval.rule.why_not}",
            hint=f"once: bullpen approve {approval.id} · or write a rule into the role by hand",
            kind=Kind.UNSUPPORTED,
        )
    return approval.rule.rule


def _draft(live: LiveAgent, kind: str, data: dict[str, Any], key: str = "") -> Draft:
    return Draft(time=time.time(), kind=kind, agent=live.agent.name, data=data, key=key)
