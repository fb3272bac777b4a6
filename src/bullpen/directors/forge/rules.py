"""What a director of a forge sees and does: the effects around `plan` and `remember`.

Everything it does is looked for before it is done, so `resume` is `act`. What is wrong with one
issue is no trouble of the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge import texts
from bullpen.directors.forge.actions import (
    AnyAction,
    Claim,
    Collect,
    Escalate,
    Finish,
    Freeze,
    GiveTask,
    Heed,
    Inspect,
    OpenPull,
    Push,
    Say,
    ShowStatus,
    Stumble,
    Withdraw,
)
from bullpen.directors.forge.allowed import Allowed
from bullpen.directors.forge.checkouts import Checkouts
from bullpen.directors.forge.deliveries import NOWHERE, Wanted
from bullpen.directors.forge.inbox import Inbox
from bullpen.directors.forge.nouns import SEEN, Comment, Forge, Issue, Reviews
from bullpen.directors.forge.plan import Planner, claim_key
from bullpen.directors.forge.reactions import Sight
from bullpen.directors.forge.remember import (
    Collected,
    Done,
    Inspected,
    Opened,
    Outcome,
    Sent,
    gave_up,
    remember,
)
from bullpen.directors.forge.seen import Look, News, Seen
from bullpen.directors.forge.tasks import Tasks
from bullpen.directors.forge.texts import MOST_CHECKS
from bullpen.directors.forge.work import AtWork, ForgeMemory, Waiting, Work
from bullpen.directors.loop import request_key
from bullpen.directors.memory import Action


@dataclass
class ForgeRules:
    """One director's rules. `progress`: something was done since the last pause."""

    planner: Planner
    forge: Forge
    tasks: Tasks
    checkouts: Checkouts
    inbox: Inbox
    origin: str  # what it works for; see `origin`
    now: Callable[[], float] = time.time
    progress: bool = False
    wanted: Wanted = NOWHERE  # where deliveries say that something has happened
    last: Look | None = None
    is_status_shown: bool = False  # by this process
    is_leaving: bool = False
    is_file_changed: Callable[[], bool] = lambda: False  # since this process read it
    agents: dict[str, str] = field(default_factory=dict)  # who works, and on which task
    status_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    memory_type = ForgeMemory
    action_type: Any = AnyAction

    # ── seeing ──

    async def observe(self, memory: ForgeMemory) -> Seen:
        last, self.last = self.last, None  # after one that fails all is looked at
        wanted, self.wanted = self.wanted, NOWHERE
        me = await self.forge.login()
        allowed = Allowed(self.forge, self.planner.config.settings.allowed_authors, me)
        if wanted and last is not None and last.holds(memory, self.now(), self._interval):
            seen = await self._look_again(last.seen, wanted, memory, allowed)
            self.last = replace(last, seen=seen)
        else:
            seen = await self._look_at_all(memory, allowed)
            self.last = Look(seen, memory, self.now())
        return seen

    async def _look_at_all(self, memory: ForgeMemory, allowed: Allowed) -> Seen:
        is_open = await self._open_issues()
        candidates, claimed = await self._candidates(is_open, memory, allowed)
        seen = Seen(
            self.now(),
            allowed.me,
            candidates,
            claimed_by_other=claimed,
            is_status_shown=self.is_status_shown,
            is_file_changed=await asyncio.to_thread(self.is_file_changed),
        )
        self.agents = {}
        await self._look_at_works(memory.works.values(), is_open, seen, allowed)
        return seen

    async def _look_again(
        self, seen: Seen, wanted: Wanted, memory: ForgeMemory, allowed: Allowed
    ) -> Seen:
        """At a part; the rest is as it was seen last. What could not be seen then is looked at,
        too: that it failed once must not count twice."""
        numbers = {*wanted.works, *seen.unseen}
        seen = seen.without(numbers, self.now())
        is_open = await self._open_issues() if wanted.is_new else {}
        if wanted.is_new:
            candidates, claimed = await self._candidates(is_open, memory, allowed)
            seen = replace(seen, candidates=candidates, claimed_by_other=claimed)
        works = (work for number, work in memory.works.items() if number in numbers)
        await self._look_at_works(works, is_open, seen, allowed)
        return seen

    async def _open_issues(self) -> dict[int, Issue]:
        issues = await self.forge.open_issues(self.planner.config.label or "")
        return {issue.number: issue for issue in issues}

    async def _look_at_works(
        self, works: Iterable[Work], is_open: dict[int, Issue], seen: Seen, allowed: Allowed
    ) -> None:
        for work in works:
            try:
                await self._look_at(work, is_open, seen, allowed)
            except ActionError as error:
                if error.verdict is Verdict.LATER:  # of the whole forge
                    raise
                seen.unseen[work.number] = error

    async def _look_at(
        self, work: Work, is_open: dict[int, Issue], seen: Seen, allowed: Allowed
    ) -> None:
        issue = is_open.get(work.number) or await self.forge.issue(work.number)
        seen.issues[work.number] = issue
        if isinstance(work.stage, AtWork):
            task = await self.tasks.look(work.stage.task_id)
            seen.over.update({work.stage.task_id} if task.is_over else ())
            if task.agent and not task.is_over:
                self.agents[task.agent] = work.stage.task_id
                seen.at_work[work.number] = task.agent
            elif not task.is_over:
                seen.untaken[work.number] = task.created_at
        if work.pull:
            await self._look_at_pull(work, seen, allowed)

    async def _candidates(
        self, is_open: dict[int, Issue], memory: ForgeMemory, allowed: Allowed
    ) -> tuple[tuple[tuple[Issue, tuple[Comment, ...], int], ...], int]:
        """The oldest that may be taken on, as many as there is room for. None if one of them, which
        is named, bears a claim of this name and is not in the memory: its own claims are made of
        issues that are, so another director of that name works here, and would do all twice."""
        busy = sum(work.is_busy for work in memory.works.values())
        room = self.planner.config.settings.at_once - busy
        candidates: list[tuple[Issue, tuple[Comment, ...], int]] = []
        for number in sorted(is_open):
            issue = is_open[number]
            if len(candidates) >= room:
                break
            if self._is_ours(issue, memory, allowed.me) and await allowed.counts(issue.author):
                comments = await self.forge.comments(number)
                if self._is_claimed(number, comments, allowed.me):
                    return (), number
                candidates.append((issue, await allowed.those(comments), _newest(comments)))
        return tuple(candidates), 0

    def _is_claimed(self, number: int, comments: Iterable[Comment], me: str) -> bool:
        mark = texts.marker(self.planner.director, claim_key(number))
        return any(comment.author == me and mark in comment.body for comment in comments)

    def _is_ours(self, issue: Issue, memory: ForgeMemory, me: str) -> bool:
        is_new = issue.number not in memory.works and issue.number not in memory.over
        is_free = not issue.assignees or me in issue.assignees
        return is_new and is_free and issue.title.startswith(f"[{self.planner.director}] ")

    async def _look_at_pull(self, work: Work, seen: Seen, allowed: Allowed) -> None:
        pull = await self.forge.find_pull(self._branch(work.number))
        if pull is None:
            return
        seen.pulls[work.number] = pull
        is_over = not (pull.is_open and seen.issues[work.number].is_open)
        if is_over or not isinstance(work.stage, Waiting):
            return
        seen.news[work.number] = await self._news(work, allowed)
        seen.sights[work.number] = await self._sight(work)
        for question in work.open_questions:
            seen.answers[question] = await self.inbox.look(question)
        approvals = await self.forge.approvals(work.pull)
        people = [each.person for each in approvals if each.id > work.seen_approval]
        seen.approvers[work.number] = tuple(
            [person for person in people if await allowed.counts(person)]
        )

    async def _news(self, work: Work, allowed: Allowed) -> News:
        comments = await self.forge.comments(work.number)
        of_pull = await self.forge.comments(work.pull, of_pull=True)
        is_heeded = self.planner.config.reactions.changes_requested is not None
        posted = await self.forge.reviews(work.pull) if is_heeded else Reviews()
        news = [
            *(each for each in comments if each.id > work.seen_comment),
            *(each for each in of_pull if each.id > work.seen_pull_comment),
        ]
        reviews = [
            *(each for each in posted.texts if each.id > work.seen_review),
            *(each for each in posted.at_lines if each.id > work.seen_line),
            *(each for each in news if is_heeded and each.path),
        ]
        return News(
            await allowed.those([each for each in news if each not in reviews]),
            await allowed.those(reviews),
            _newest(comments),
            _newest(of_pull),
            _newest(posted.texts),
            _newest(posted.at_lines),
        )

    async def _sight(self, work: Work) -> Sight:
        """What is asked for is what the file reacts to."""
        reactions = self.planner.config.reactions
        health = None
        if reactions.conflict or reactions.stale:
            health = await self.forge.health(work.pull)
        checks = await self.forge.checks(work.pushed) if reactions.ci_failed else []
        return Sight(health, tuple(checks))

    # ── deciding ──

    def plan(self, snapshot: Seen, memory: ForgeMemory) -> Sequence[Action]:
        return self.planner.plan(snapshot, memory)

    def remember(self, memory: ForgeMemory, action: Action, outcome: Outcome) -> ForgeMemory:
        return remember(memory, action, outcome, self.planner.config.settings.give_up_after)

    def give_up(self, memory: ForgeMemory, action: Action, reason: str) -> ForgeMemory:
        return gave_up(memory, action, reason)

    def pause_seconds(self, memory: ForgeMemory) -> float:
        """None after something was done: what follows may be due."""
        if self.progress:
            self.progress = False
            return 0.0
        since = self.now() - self.last.at if self.last is not None else 0.0
        return self._interval - max(0.0, since)

    @property
    def _interval(self) -> float:
        return self.planner.config.poll_interval.total_seconds()

    def want(self, wanted: Wanted) -> bool:
        """Look there next time. Whether that is anywhere."""
        self.wanted |= wanted
        return bool(wanted)

    # ── doing ──

    async def act(self, action: Action) -> Outcome:
        if isinstance(action, Stumble):
            raise ActionError(action.reason, action.verdict, hint=action.hint)
        outcome = await self._do(action)
        self.progress = True
        return outcome

    async def resume(self, action: Action) -> Outcome | None:
        if isinstance(action, Stumble):  # looked at anew
            return None
        return await self.act(action)

    async def _do(self, action: Action) -> Outcome:
        match action:
            case Freeze() | Heed():
                pass
            case Withdraw(questions=questions):
                for question in questions:
                    await self.inbox.withdraw(question)
            case Claim(number=number):
                await self.forge.assign(number, await self.forge.login())
                await self.forge.react(number, SEEN)
                await self._post(action, number, texts.claim_text(self.planner.director))
            case Say(at=at, of_pull=of_pull, text=text):
                await self._post(action, at, text, of_pull=of_pull)
            case Finish():
                await self._finish(action)
            case ShowStatus():
                return await self._show_status(action)
            case _:
                return await self._bring(action)
        return Done(at=self.now())

    async def _bring(self, action: Action) -> Outcome:
        """What brings something to be remembered."""
        match action:
            case GiveTask():
                return await self._give(action)
            case Collect():
                return await self._collect(action)
            case Push():
                return await self._push(action)
            case OpenPull():
                return await self._open_pull(action)
            case Inspect():
                return await self._inspect(action)
            case Escalate(what=what, about=about):
                name = self._request(action)
                await self.inbox.open(name, what, about)
                return Opened(name=name)
        raise AssertionError(f"no such action: {action.key}")

    def _branch(self, number: int) -> str:
        return f"{self.planner.config.settings.branch_prefix}{number}"

    def _request(self, action: Action) -> str:
        """The hub's name for it."""
        return request_key(f"{self.planner.director} {self.origin}", action)

    def _marker(self, action: Action) -> str:
        return texts.marker(self.planner.director, action.key)

    async def _post(self, action: Action, number: int, text: str, *, of_pull: bool = False) -> None:
        """A comment, unless it is there."""
        me, mark = await self.forge.login(), self._marker(action)
        for comment in await self.forge.comments(number, of_pull=of_pull):
            if comment.author == me and mark in comment.body:
                return
        await self.forge.comment(number, f"{text}\n\n{mark}", of_pull=of_pull)

    async def _inspect(self, action: Inspect) -> Inspected:
        logs = [(check, await self.forge.log_tail(check)) for check in action.checks[:MOST_CHECKS]]
        logs += [(check, "") for check in action.checks[MOST_CHECKS:]]
        return Inspected(report=self.planner.publisher.hide(texts.checks_text(logs)))

    async def _give(self, action: GiveTask) -> Outcome:
        if not action.session_id or action.purpose == "conflict":
            repository = await self.forge.repository()
            await asyncio.to_thread(self.checkouts.update, repository)
        return await self.tasks.give(
            self._request(action),
            action.prompt,
            session_id=action.session_id,
            repo=str(self.checkouts.clone),
            branch=self._branch(action.number),
        )

    async def _collect(self, action: Collect) -> Collected:
        task = await self.tasks.look(action.task_id)
        now = self.now()
        if task.failure:
            return Collected(
                at=now,
                failure=task.failure,
                failure_kind=task.failure_kind,
                is_final=task.is_cancelled,
                is_unbegun=task.is_unbegun,
            )
        refused = await self.tasks.find_refused(action.task_id)
        if refused:
            return Collected(at=now, failure=refused)
        repository = await self.forge.repository()
        branch = self._branch(action.number)
        commit = await asyncio.to_thread(self.checkouts.head, branch, repository)
        left = not commit and await self.tasks.has_uncommitted(action.task_id)
        return Collected(at=now, output=task.output, commit=commit, is_uncommitted=left)

    async def _push(self, action: Push) -> Sent:
        repository = await self.forge.repository()
        sent = await asyncio.to_thread(self.checkouts.sent, action.commit, repository)
        publisher = self.planner.publisher
        if secret := publisher.find_secret(sent):
            where = await asyncio.to_thread(
                self.checkouts.name_place, sent, secret.offset, action.commit
            )
            raise ActionError(
                f"the change holds a credential of this installation ({secret.name}), in"
                f" {publisher.plain(where, texts.PLACE_CHARACTERS)}, and was not pushed",
                Verdict.HOPELESS,
            )
        branch = self._branch(action.number)
        await asyncio.to_thread(
            self.checkouts.push, branch, action.commit, action.expected, repository
        )
        # Looked at after the push, and told apart by their ids: nobody's clock counts.
        old = await self.forge.approvals(action.pull) if action.pull else []
        return Sent(newest_approval=max((each.id for each in old), default=0))

    async def _open_pull(self, action: OpenPull) -> Outcome:
        branch = self._branch(action.number)
        pull = await self.forge.find_pull(branch)
        # One that an earlier process opened may be over by now, with the very commit.
        if pull is not None and (pull.is_open or (action.commit and pull.head == action.commit)):
            return pull
        repository = await self.forge.repository()
        return await self.forge.open_pull(
            branch,
            repository.default_branch,
            action.title,
            f"{action.body}\n\n{self._marker(action)}",
            is_draft=action.is_draft,
        )

    async def _finish(self, action: Finish) -> None:
        for question in action.questions:
            await self.inbox.withdraw(question)
        if action.task_id:
            await self.tasks.cancel(action.task_id)
        if action.label:
            await self.forge.label(action.at, action.label)
        if action.text:
            await self._post(action, action.at, action.text, of_pull=action.of_pull)

    # ── the status issue ──

    async def _show_status(self, action: ShowStatus) -> int:
        async with self.status_lock:
            if self.is_leaving:
                return action.number
            mark = self._marker(action)
            body = f"{action.text}\n\n{mark}"
            number = action.number
            if not number or not await self.forge.edit_issue(number, body, is_open=True):
                number = await self._find_status(mark)  # none yet, or somebody has deleted it
                if number:
                    await self.forge.edit_issue(number, body, is_open=True)
                else:
                    number = await self.forge.open_issue(f"Status of {self.planner.director}", body)
            self.is_status_shown = True
            return number

    async def _find_status(self, mark: str) -> int:
        me = await self.forge.login()
        for issue in await self.forge.open_issues(""):
            if issue.author == me and mark in issue.body:
                return issue.number
        return 0

    async def close_status(self, memory: ForgeMemory) -> None:
        """The director leaves: nothing is shown from now on. The loop may still be at work."""
        async with self.status_lock:
            self.is_leaving = True
            if memory.status_issue:
                mark = texts.marker(self.planner.director, "status")
                body = f"{self.planner.director} does not run.\n\n{mark}"
                await self.forge.edit_issue(memory.status_issue, body, is_open=False)


def _newest(comments: Sequence[Comment]) -> int:
    return max((comment.id for comment in comments), default=0)
