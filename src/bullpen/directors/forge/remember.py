"""What a director remembers of what it did: one move for each action. Pure."""

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
    Withdraw,
)
from bullpen.directors.forge.nouns import Pull
from bullpen.directors.forge.texts import failed_text
from bullpen.directors.forge.work import (
    Answered,
    AtWork,
    Claimed,
    ForgeMemory,
    Hopeless,
    Pushed,
    Reaction,
    Tried,
    Waiting,
    Work,
)
from bullpen.directors.history import HistoryRow, with_row
from bullpen.directors.memory import Action
from bullpen.model.value import Value

FIRST_SECONDS = 60.0  # after a task that failed
MOST_SECONDS = 3600.0


class Given(Value):
    """A task that the hub has taken."""

    task_id: str
    session_id: str


class Collected(Value):
    """What came of a task. `failure`: why it was not done; `is_final`: and never will be;
    `is_unbegun`: nor was there a directory for it."""

    at: float
    output: str = ""
    commit: str = ""
    is_uncommitted: bool = False
    failure: str = ""
    failure_kind: str = ""
    is_final: bool = False
    is_unbegun: bool = False


class Sent(Value):
    """A branch that the forge has. `newest_approval`: of all that it had by then."""

    newest_approval: int = 0


class Inspected(Value):
    """What red checks had to say."""

    report: str


class Opened(Value):
    """A question in the inbox."""

    name: str


class Done(Value):
    """Of an action about which nothing more has to be known than when it was done."""

    at: float


Outcome = Given | Collected | Sent | Pull | Inspected | Opened | Done | int


def remember(
    memory: ForgeMemory, action: Action, outcome: Outcome, give_up_after: int
) -> ForgeMemory:
    """The memory after the action."""
    match action, outcome:
        case Freeze(work=work), _:
            return memory.with_work(work)
        case ShowStatus(text=text), int(number):
            return memory.model_copy(update={"status_issue": number, "status_text": text})
        case Finish() as finish, Done(at=at):
            return _finished(memory, finish, at)
    work = memory.works[_number(action)]
    return memory.with_work(_moved(work, action, outcome, give_up_after))


def _moved(work: Work, action: Action, outcome: Outcome, give_up_after: int) -> Work:
    match action, outcome:
        case Claim(), _:
            return _at(work, Claimed())
        case GiveTask() as given, Given(task_id=task_id, session_id=session_id):
            return _at(
                work,
                AtWork(purpose=given.purpose, task_id=task_id),
                session_id=session_id,
                last_task=task_id,
                round=work.round + 1,
                reviews=work.reviews + 1 if given.purpose == "review" else 0,
                again=given.purpose,
                news=given.news,
                seen_comment=given.seen_comment,
                seen_pull_comment=given.seen_pull_comment,
                seen_review=given.seen_review,
                seen_line=given.seen_line,
                report=given.report,
                fault=given.fault,
                tries=_tries(work, given),
            )
        case Collect() as collect, Collected() as collected:
            return _collected(work, collect, collected, give_up_after)
        case Push() as push, Sent(newest_approval=newest):
            assert isinstance(work.stage, Answered)
            pushed = Pushed(
                purpose=work.stage.purpose, output=work.stage.output, is_draft=push.is_draft
            )
            return _at(work, pushed, pushed=push.commit, seen_approval=newest)
        case OpenPull(), Pull(number=number, url=url):
            return _at(work, Waiting(), pull=number, pull_url=url)
        case _:
            return _reacted(work, action, outcome)


def _reacted(work: Work, action: Action, outcome: Outcome) -> Work:
    match action, outcome:
        case Inspect(fault=fault), Inspected(report=report):
            return _at(work, Claimed(), again="ci_failed", report=report, fault=fault)
        case Say(reaction=None), _:
            return _at(work, Waiting())
        case Say(reaction=reaction) as said, Done(at=at):
            assert reaction is not None
            tried = _tried(work, reaction, said.fault, is_try=not said.is_left)
            tried = tried.model_copy(update={"left": said.fault if said.is_left else "", "at": at})
            return _at(work, Waiting(), tries={**work.tries, reaction: tried})
        case Escalate(reaction=reaction, fault=fault), Opened(name=name):
            before = work.tries.get(reaction, Tried())
            tried = before.model_copy(update={"about": fault, "left": fault, "question": name})
            tries = {**work.tries, reaction: tried}
            return work.model_copy(update={"tries": tries, "questions": work.questions + 1})
        case Heed(reaction=reaction, answer=answer), _:
            tries = {**work.tries, reaction: _heeded(work.tries[reaction], answer)}
            return work.model_copy(update={"tries": tries})
        case Withdraw(reactions=reactions), _:
            return work.model_copy(update={"tries": _withdrawn(work, reactions)})
    raise AssertionError(f"{type(outcome).__name__} does not come of {action.key}")


def _heeded(tried: Tried, answer: str) -> Tried:
    match answer:
        case "again":
            return Tried(is_granted=True, at=tried.at)
        case "leave":
            return tried.model_copy(update={"question": ""})
        case _:  # asked anew
            return tried.model_copy(update={"question": "", "left": ""})


def _withdrawn(work: Work, reactions: tuple[Reaction, ...]) -> dict[Reaction, Tried]:
    """What is mended counts no more; but checks may be green for a moment, between two of them."""
    tries = {name: tried for name, tried in work.tries.items() if name not in reactions}
    if "ci_failed" in reactions:
        tries["ci_failed"] = Tried(count=work.tries["ci_failed"].count)
    return tries


def _tries(work: Work, given: GiveTask) -> dict[Reaction, Tried]:
    """When a person has had their say, everything is tried anew."""
    match given.purpose:
        case "work" | "review":
            return work.tries
        case "comment":
            return {}
        case "changes_requested":
            return {given.purpose: _tried(work, given.purpose, given.fault)}
        case _:
            return {**work.tries, given.purpose: _tried(work, given.purpose, given.fault)}


def _tried(work: Work, reaction: Reaction, fault: str, *, is_try: bool = True) -> Tried:
    """After one more try. A task that is given again is none."""
    before = work.tries.get(reaction, Tried())
    if reaction == "stale":
        count = before.count if before.about == fault else 0
        is_new = is_try
    else:
        count = before.count
        is_new = is_try and before.about != fault
    return Tried(count=count + is_new, about=fault)


def _collected(work: Work, collect: Collect, collected: Collected, give_up_after: int) -> Work:
    if not collected.failure:
        answered = Answered(
            purpose=collect.purpose,
            output=collected.output,
            commit=collected.commit,
            is_uncommitted=collected.is_uncommitted,
        )
        is_review = collect.purpose == "review"
        summary = work.summary if is_review else collected.output
        return _at(work, answered, failures=0, summary=summary)
    failures = work.failures + 1
    if collected.is_final or failures >= give_up_after:
        public = ""
        if collected.failure_kind:
            public = failed_text(collect.task_id, collected.failure_kind)
        hopeless = Hopeless(reason=collected.failure, public=public)
        return _at(work, hopeless, failures=failures)
    wait = min(MOST_SECONDS, FIRST_SECONDS * 2 ** (failures - 1))
    # A review that is given again is no further review.
    reviews = work.reviews - 1 if collect.purpose == "review" else work.reviews
    # Nobody has worked on it: the next task names repository and branch as the first one did.
    session = "" if collected.is_unbegun and not work.summary else work.session_id
    claimed = Claimed(due=collected.at + wait)
    return _at(work, claimed, failures=failures, reviews=reviews, session_id=session)


def _finished(memory: ForgeMemory, finish: Finish, at: float) -> ForgeMemory:
    work = memory.works[finish.number]
    row = HistoryRow.model_validate(
        {
            "id": f"#{work.number}",
            "state": finish.how,
            "task_id": work.last_task,
            "created_at": work.since,
            "completed_at": at,
            "reason": finish.reason,
            "title": work.title,
            "pull": work.pull_url,
        }
    )
    return memory.model_copy(
        update={
            "works": {n: each for n, each in memory.works.items() if n != work.number},
            "over": {**memory.over, work.number: finish.how},
            "history": with_row(memory.history, row),
        }
    )


def gave_up(memory: ForgeMemory, action: Action, reason: str) -> ForgeMemory:
    """Nothing more is tried about it: that is said at the issue, unless even that was in vain."""
    match action:
        case ShowStatus(text=text):
            return memory.model_copy(update={"status_text": text})
        case Freeze(work=work):
            return memory.model_copy(update={"over": {**memory.over, work.number: reason}})
        case Finish() as finish:
            return _finished(memory, finish.model_copy(update={"reason": reason}), 0.0)
    work = memory.works[_number(action)]
    return memory.with_work(_at(work, Hopeless(reason=reason)))


def _number(action: Action) -> int:
    number = getattr(action, "number", 0)
    assert isinstance(number, int)
    return number


def _at(work: Work, stage: object, **fields: object) -> Work:
    return work.model_copy(update={"stage": stage, **fields})
