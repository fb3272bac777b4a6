"""Decides what a director of a forge does next. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bullpen.directors.failures import ActionError, Verdict
from bullpen.directors.forge import texts
from bullpen.directors.forge.actions import (
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
from bullpen.directors.forge.config import ForgeConfig, Reacts, ReactsToSilence
from bullpen.directors.forge.reactions import (
    Fault,
    Sight,
    asked_fault,
    evidence,
    find_faults,
    find_mended,
    is_left,
    is_spent,
    reacts_to,
    tries_of,
)
from bullpen.directors.forge.seen import News, Seen
from bullpen.directors.forge.texts import Publisher
from bullpen.directors.forge.work import (
    Answered,
    AtWork,
    Claimed,
    ForgeMemory,
    Frozen,
    Hopeless,
    Purpose,
    Pushed,
    Reaction,
    Waiting,
    Work,
    freeze,
)
from bullpen.directors.memory import Action
from bullpen.model import duration

APPROVED = "approved"  # the label
WAIT_SECONDS = 60.0  # for an agent, before a person is told
TEMPLATES: dict[Purpose, str] = {
    "comment": texts.COMMENT,
    "ci_failed": texts.CI_FAILED,
    "changes_requested": texts.CHANGES_REQUESTED,
    "conflict": texts.CONFLICT,
}


@dataclass(frozen=True)
class Planner:
    """What does not change while a director runs."""

    director: str
    config: ForgeConfig
    publisher: Publisher

    def plan(self, seen: Seen, memory: ForgeMemory) -> list[Action]:
        actions = [
            action
            for work in memory.works.values()
            if (action := self._next(work, seen)) is not None
        ]
        return [
            *actions,
            *self._complain(seen),
            *self._take_on(seen, memory),
            *self._status(seen, memory),
        ]

    def _complain(self, seen: Seen) -> Iterator[Stumble]:
        """What a person has to see to, and what concerns no single issue."""
        waiting = sorted(n for n, since in seen.untaken.items() if seen.now - since > WAIT_SECONDS)
        if waiting and not seen.at_work:  # else they wait for each other
            yield self._untaken(waiting)
        if seen.claimed_by_other:
            yield _complaint(
                f"claim {seen.claimed_by_other}",
                f"somebody else works as {self.director} here: issue {seen.claimed_by_other} has a"
                " claim that this installation knows nothing of, so no issue is taken on",
                f"stop the other one, or give one of them another name; if there is none: delete"
                f' the comment "{self.director} works on this", and the issue is worked on anew',
            )
        if seen.is_file_changed:
            yield _complaint(
                "file",
                f"directors/{self.director}.yaml has changed, and counts after a restart",
                f"bullpen director restart {self.director}",
            )

    def _untaken(self, waiting: list[int]) -> Stumble:
        agent, role, labels = self.config.agent, self.config.role, self.config.labels
        who = f"agent {agent}" if agent else f"a free agent of role {role}"
        if labels:
            who += " with " + ", ".join(f"{name}={value}" for name, value in labels.items())
        words = f"bullpen agent start {agent or f'NAME --role {role}'}"
        numbers = ", ".join(map(str, waiting))
        count = f"issue {numbers} waits" if len(waiting) == 1 else f"issues {numbers} wait"
        return _complaint(f"agents for {numbers}", f"{count} for {who}", words)

    def _take_on(self, seen: Seen, memory: ForgeMemory) -> Iterator[Action]:
        """Oldest first, as many as may be worked on at once."""
        busy = sum(work.is_busy for work in memory.works.values())
        room = max(0, self.config.settings.at_once - busy)
        for issue, comments, newest in sorted(seen.candidates, key=lambda each: each[0].number):
            if room and issue.number not in memory.works and issue.number not in memory.over:
                room -= 1
                work = freeze(issue, comments, newest, seen.now)
                yield Freeze(key=_key(work, "freeze"), subject=_subject(work), work=work)

    def _next(self, work: Work, seen: Seen) -> Action | None:
        if not isinstance(work.stage, Hopeless) and (end := self._outside_end(work, seen)):
            return end
        match work.stage:
            case Frozen() | Claimed() | AtWork():
                return self._before_answer(work, seen)
            case Answered() as answered:
                return self._after_answer(work, answered)
            case Pushed() as pushed:
                return self._after_push(work, pushed)
            case Waiting():
                return self._while_waiting(work, seen)
            case Hopeless(reason=reason, public=public):
                text = texts.give_up_text(self.publisher.clean(public or reason))
                return self._finish(work, "given up", text=text, reason=reason)

    def _before_answer(self, work: Work, seen: Seen) -> Action | None:
        match work.stage:
            case Frozen():
                return Claim(key=claim_key(work.number), subject=_subject(work), number=work.number)
            case Claimed(due=due) if seen.now >= due:
                return self._give(work, work.again)
            case AtWork(purpose=purpose, task_id=task_id) if task_id in seen.over:
                return Collect(
                    key=_key(work, f"collect {work.round}"),
                    subject=_subject(work),
                    number=work.number,
                    purpose=purpose,
                    task_id=task_id,
                )
        return None

    # ── ends that others bring about ──

    def _outside_end(self, work: Work, seen: Seen) -> Action | None:
        if error := seen.unseen.get(work.number):
            return _stumble(work, error)
        pull, issue = seen.pulls.get(work.number), seen.issues.get(work.number)
        if pull is not None and not pull.is_open:
            return self._finish(work, "merged" if pull.is_merged else "rejected")
        if issue is None:
            return None
        if not issue.is_open:
            return self._finish(work, "closed")
        if issue.assignees and seen.me not in issue.assignees:
            return self._finish(work, f"left to {issue.assignees[0]}")
        return None

    def _finish(
        self, work: Work, how: str, *, text: str = "", label: str = "", reason: str = ""
    ) -> Finish:
        task_id = work.stage.task_id if isinstance(work.stage, AtWork) else ""
        return Finish(
            key=_key(work, how),
            # Another one than before: what failed there must not keep the end from being said.
            subject=f"{_subject(work)} {how}" if how == "given up" else _subject(work),
            number=work.number,
            how=how,
            at=(work.pull or work.number) if text else 0,
            of_pull=bool(work.pull) and bool(text),
            text=text,
            label=label,
            task_id=task_id,
            reason=reason,
            questions=work.open_questions,
        )

    # ── tasks ──

    def _give(
        self,
        work: Work,
        purpose: Purpose,
        news: News | None = None,
        report: str = "",
        fault: str = "",
    ) -> GiveTask:
        """`news`, `report` and `fault`: what a task is about; else as before."""
        is_again = news is None and not fault
        comments = work.news if news is None else (*news.comments, *news.reviews)
        report = work.report if is_again else report
        text = {
            "comment": comments,
            "changes_requested": comments,
            "ci_failed": (),
            "conflict": (),
        }.get(purpose, work.comments)
        prompts = self.config.prompts
        templates = {**TEMPLATES, "work": prompts.work, "review": prompts.review}
        return GiveTask(
            key=_key(work, f"task {work.round + 1}"),
            subject=_subject(work),
            number=work.number,
            purpose=purpose,
            prompt=texts.prompt_for(templates[purpose], work, texts.comments_text(text) or report),
            session_id=work.session_id,
            news=comments if purpose in ("comment", "changes_requested") else (),
            report=report if purpose in ("ci_failed", "conflict", "review") else "",
            fault=work.fault if is_again else fault,
            seen_comment=news.newest if news is not None else work.seen_comment,
            seen_pull_comment=news.newest_of_pull if news is not None else work.seen_pull_comment,
            seen_review=news.newest_review if news is not None else work.seen_review,
            seen_line=news.newest_line if news is not None else work.seen_line,
        )

    def _after_answer(self, work: Work, answered: Answered) -> Action:
        output = self.publisher.clean(answered.output)
        if work.pull and answered.commit == work.pushed:
            return self._say(work, output)
        most = self.config.settings.max_reviews
        if not answered.commit:
            if answered.is_uncommitted and work.reviews < most:
                return self._give(work, "review")
            text = texts.no_change_text(output, is_uncommitted=answered.is_uncommitted)
            return self._finish(work, "no change", text=text)
        is_good = answered.purpose == "review" and texts.says_lgtm(answered.output)
        if not is_good and work.reviews < most:
            return self._give(work, "review")
        return Push(
            key=_key(work, f"push {work.round}"),
            subject=_subject(work),
            number=work.number,
            commit=answered.commit,
            expected=work.pushed,
            pull=work.pull,
            is_draft=not is_good and most > 0,
        )

    def _after_push(self, work: Work, pushed: Pushed) -> Action:
        summary = self.publisher.clean(work.summary)
        if work.pull:
            return self._say(work, summary)
        review = self.publisher.clean(pushed.output) if pushed.is_draft else ""
        return OpenPull(
            key=_key(work, "pull"),
            subject=_subject(work),
            number=work.number,
            commit=work.pushed,
            title=texts.harmless(texts.one_line(self._own_title(work))),
            body=texts.pull_text(work.number, summary, review),
            is_draft=pushed.is_draft,
        )

    def _own_title(self, work: Work) -> str:
        return work.title.removeprefix(f"[{self.director}]").strip() or f"Issue {work.number}"

    def _say(
        self, work: Work, text: str, fault: Fault | None = None, *, is_left: bool = False
    ) -> Say:
        what = f"answer {work.round}"
        if fault is not None:
            done = "left" if is_left else f"said {tries_of(work, fault) + 1}"
            what = f"{fault.reaction} {fault.about} {done}"
        return Say(
            key=_key(work, what),
            subject=_subject(work),
            number=work.number,
            at=work.pull,
            of_pull=True,
            text=text or "Done.",
            reaction=fault.reaction if fault is not None else None,
            fault=fault.about if fault is not None else "",
            is_left=is_left,
        )

    # ── people have their say ──

    def _while_waiting(self, work: Work, seen: Seen) -> Action | None:
        if not self.config.settings.require_approval:
            return self._finish(work, "pull opened")
        news = seen.news.get(work.number, News())
        if news.comments:  # that is an answer as well
            return self._withdraw(work, tuple(work.tries)) or self._give(work, "comment", news)
        sight = seen.sights.get(work.number, Sight())
        faults = list(find_faults(work, sight, self.config.reactions, seen.now))
        review_faults = [asked_fault(news.reviews)] if news.reviews else []
        mended = find_mended(work, sight, [*review_faults, *faults])
        if action := self._answered(work, seen, mended) or self._first(work, review_faults, news):
            return action
        if approvers := seen.approvers.get(work.number):
            text = f"Approved by {approvers[0]}. It can be merged."
            return self._finish(work, APPROVED, text=text, label=APPROVED)
        return self._first(work, faults)

    # ── what is wrong with a pull ──

    def _first(
        self, work: Work, faults: Iterable[Fault], news: News | None = None
    ) -> Action | None:
        """What is done about the first of them that is not left to a person."""
        for fault in faults:
            reacts = reacts_to(self.config.reactions, fault)
            if not is_left(work, fault, reacts.retries):
                return self._react(work, fault, reacts, news)
        return None

    def _react(self, work: Work, fault: Fault, reacts: Reacts, news: News | None) -> Action:
        if is_spent(work, fault, reacts.retries):
            return self._leave(work, fault, reacts, news)
        match fault.reaction:
            case "changes_requested":
                if action := self._withdraw(work, tuple(work.tries)):
                    return action
                return self._give(work, "changes_requested", news, fault=fault.about)
            case "conflict":
                return self._give(work, "conflict", report=fault.base, fault=fault.about)
            case "ci_failed":
                return Inspect(
                    key=_key(work, f"inspect {fault.about}"),
                    subject=_subject(work),
                    number=work.number,
                    fault=fault.about,
                    checks=fault.checks,
                )
            case "stale":
                assert isinstance(reacts, ReactsToSilence)
                return self._say(
                    work, texts.STALE.format(duration.to_text(reacts.after)), fault, is_left=False
                )

    def _leave(self, work: Work, fault: Fault, reacts: Reacts, news: News | None) -> Action:
        """To a person."""
        tries = tries_of(work, fault)
        if reacts.escalate == "comment":
            text = texts.left_text(fault.reaction, tries, self.publisher.clean(fault.what))
            return self._say(work, text, fault, is_left=True)
        hide = self.publisher.plain
        what = texts.left_line(fault.reaction, tries, fault.what)
        reviews = news.reviews if news is not None else ()
        about = {**evidence(work, fault, reviews), "repository": self.config.repo}
        about |= texts.decisions(self.config.noun)
        return Escalate(
            key=_key(work, f"question {work.questions + 1} {fault.reaction} {fault.about}"),
            subject=_subject(work),
            number=work.number,
            reaction=fault.reaction,
            fault=fault.about,
            what=hide(what, texts.QUESTION_CHARACTERS),
            about={name: hide(each, texts.LOG_CHARACTERS) for name, each in about.items() if each},
        )

    def _answered(self, work: Work, seen: Seen, mended: tuple[Reaction, ...]) -> Action | None:
        """What a person has decided, or need decide no more."""
        for reaction, tried in work.tries.items():
            answer = seen.answers.get(tried.question, "waiting")
            if tried.question and answer != "waiting":
                return Heed(
                    key=_key(work, f"heed {tried.question}"),
                    subject=_subject(work),
                    number=work.number,
                    reaction=reaction,
                    answer=answer,
                )
        return self._withdraw(work, mended, is_mended=True)

    def _withdraw(
        self, work: Work, reactions: tuple[Reaction, ...], *, is_mended: bool = False
    ) -> Action | None:
        questions = tuple(filter(None, (work.tries[name].question for name in reactions)))
        if not is_mended:
            reactions = tuple(name for name in reactions if work.tries[name].question)
        if not reactions:
            return None
        return Withdraw(
            key=_key(work, f"withdraw {work.round} {work.questions} {' '.join(reactions)}"),
            subject=_subject(work),
            number=work.number,
            reactions=reactions,
            questions=questions,
        )

    def _status(self, seen: Seen, memory: ForgeMemory) -> Sequence[Action]:
        if not self.config.settings.status_issue:
            return ()
        rows = [(work.number, work.stage.stage) for work in memory.works.values()]
        text = texts.status_text(self.director, rows)
        if text == memory.status_text and seen.is_status_shown:
            return ()
        return [ShowStatus(key="status", subject="status", number=memory.status_issue, text=text)]


def _stumble(work: Work, error: ActionError) -> Stumble:
    return Stumble(
        key=_key(work, "stumble"),
        subject=_subject(work),
        number=work.number,
        verdict=error.verdict,
        reason=error.message,
        hint=error.hint,
    )


def _complaint(subject: str, reason: str, hint: str) -> Stumble:
    return Stumble(
        key=f"complaint {subject}",
        subject=subject,
        verdict=Verdict.PERSON,
        reason=reason,
        hint=hint,
    )


def _subject(work: Work) -> str:
    return f"issue {work.number}"


def claim_key(number: int) -> str:
    """Of taking an issue on. It stands in the comment that says so."""
    return f"issue {number} claim"


def _key(work: Work, what: str) -> str:
    return f"issue {work.number} {what}"
