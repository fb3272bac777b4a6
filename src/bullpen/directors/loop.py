"""The loop of every director: observe, plan, act, remember.

A director is its `Rules`. Each round looks at the world (`observe`), decides (`plan`, pure) and
carries out the actions one by one. Before an action its intent is on disk, after it what came of
it: a process that is killed in between leaves an intent, and the next one asks `resume` whether the
deed was done. So kill -9 at any point neither loses nor repeats work, if `resume` tells the truth
or doing it again is the same as doing it once (the hub's `request`: make one with `request_key`).

A failure holds up its subject only, for a while (`failures`); a limit of the other side ends the
round, and nothing is done before it is over. Never ends by itself; a director that
is told to leave cancels it, which is the same as killing it.

`tests/directors/sample.py` is a whole director in a few lines; `tests/directors/replay.py` replays
any director and kills it at every step.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bullpen.directors.failures import GIVE_UP_AFTER, LimitError, Trouble, Verdict, judge
from bullpen.directors.memory import Action, Checkpoint, MemoryFile
from bullpen.model.component import Level
from bullpen.model.value import Value

log = logging.getLogger("bullpen.director")

WHOLE = ""  # the subject of what concerns the whole director

S = TypeVar("S")
M = TypeVar("M", bound=Value)
A = TypeVar("A", bound=Action)
O = TypeVar("O")  # noqa: E741 - what comes of an action


class Rules(Protocol[S, M, A, O]):
    """What one kind of director sees, decides and does. `plan`, `remember` and `give_up` are pure.

    S is what it sees (a snapshot), M its memory (empty: `M()`), A its actions (a union is told
    apart by a Literal field), O what comes of an action, never None.
    """

    memory_type: Any  # type[M]
    action_type: Any  # A, or an annotated union of actions

    async def observe(self, memory: M) -> S:
        """Look at the world."""

    def plan(self, snapshot: S, memory: M) -> Sequence[A]:
        """What is to be done now, in order. What is done already must not come again: it is in
        the snapshot, or in the memory."""

    async def act(self, action: A) -> O:
        """Do it. What is raised says what becomes of it: see `failures`."""

    async def resume(self, action: A) -> O | None:
        """An earlier try may have done it: what came of it, or None if it was not done. Where
        twice is the same as once, `act` itself."""

    def remember(self, memory: M, action: A, outcome: O) -> M:
        """The memory with what came of an action."""

    def give_up(self, memory: M, action: A, reason: str) -> M:
        """The memory once nothing more is tried about the action's subject. A subject that shall
        be tried again later gets another name then."""

    def pause_seconds(self, memory: M) -> float:
        """How long until the next look, if nobody wakes the loop."""


Tell = Callable[[Level, str, dict[str, object]], None]


@dataclass(frozen=True)
class Ahead(Generic[A]):
    """An action that a round would carry out; `waits`: why not yet. `is_begun`: an earlier process
    may have done it already, and what came of it is found out first."""

    action: A
    waits: str
    is_begun: bool


class Loop(Generic[S, M, A, O]):
    """One director at work. `tell` notes what a person may want to know, each thing once."""

    def __init__(
        self,
        rules: Rules[S, M, A, O],
        file: "MemoryFile[M, A]",
        tell: Tell,
        now: Callable[[], float] = time.time,
        give_up_after: int = GIVE_UP_AFTER,
    ) -> None:
        self.rules = rules
        self._file = file
        self._tell = tell
        self._now = now
        self._give_up_after = give_up_after
        self._kind: Any = checkpoint_type(rules)
        self._checkpoint: Checkpoint[M, A] = file.load() or self._kind(memory=rules.memory_type())
        self._is_saved = True
        self._is_unsaved_said = False  # that it cannot be
        self._woken = asyncio.Event()
        self._saving = asyncio.Lock()
        self.last_look = 0.0  # at the world that succeeded, in seconds since 1970

    @property
    def memory(self) -> M:
        return self._checkpoint.memory

    @property
    def troubles(self) -> dict[str, Trouble]:
        """By subject; WHOLE: it cannot even look."""
        return self._checkpoint.troubles

    @property
    def refusals(self) -> dict[str, str]:
        """Why a subject does not go on."""
        return {subject: trouble.reason for subject, trouble in self.troubles.items()}

    def wake(self) -> None:
        """Look at the world soon: something has changed."""
        self._woken.set()

    async def hub_is_back(self) -> None:
        """Try at once what waits for the hub: the waits have grown while it was away."""
        if not any(one.is_hub_away for one in self.troubles.values()):
            return  # a look costs requests to others, too
        troubles = {
            subject: one.model_copy(update={"wait_seconds": 0.0}) if one.is_hub_away else one
            for subject, one in self.troubles.items()
        }
        await self._keep(troubles=troubles)
        self.wake()

    async def try_now(self, subject: str) -> None:
        """What held it up may concern nobody any more: do not wait."""
        trouble = self.troubles.get(subject)
        if trouble is not None:
            tried = trouble.model_copy(update={"wait_seconds": 0.0})
            await self._keep(troubles={**self.troubles, subject: tried})
        self.wake()

    async def change(self, change: Callable[[M], M]) -> None:
        """Change the memory from outside, as a person's request does. On disk when this
        returns."""
        await self._keep(memory=change(self.memory))

    async def run(self) -> None:
        """Work until this is cancelled. What held up the process before this one is said first: the
        log of each says what it waits for."""
        for subject, trouble in self.troubles.items():
            if not trouble.is_given_up:
                self._say(subject, trouble)
        while True:
            self._woken.clear()
            await self.step()
            try:
                async with asyncio.timeout(self._pause_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def step(self) -> int:
        """One round. How many actions were tried."""
        try:
            return await self._round()
        except Exception as error:  # noqa: BLE001 - the boundary of a director: what fails is tried again
            await self._stumble(WHOLE, error)
            return 0

    async def look_ahead(self) -> list[Ahead[A]]:
        """What `step` would do now, in order, and what it would leave for later: reads only, and
        changes nothing. What was begun comes first; what comes of it may change the rest."""
        now = self._now()
        begun = list(self._checkpoint.intents.values())
        snapshot = await self.rules.observe(self.memory)
        planned = self.rules.plan(snapshot, self.memory)
        actions = [*begun, *(each for each in planned if each not in begun)]
        subjects = [each.subject for each in begun]
        return [
            Ahead(action, self._waits(action, now), is_begun=number < len(begun))
            for number, action in enumerate(actions)
            if number < len(begun) or action.subject not in subjects
        ]

    def _waits(self, action: A, now: float) -> str:
        """Why it is left for later; empty: it is not."""
        whole, own = self.troubles.get(WHOLE), self.troubles.get(action.subject)
        if whole is not None and whole.is_limit and whole.blocks(now):
            return whole.reason
        return own.reason if own is not None and own.blocks(now) else ""

    async def _round(self) -> int:
        if not self._is_saved:
            await self._save()
        whole = self.troubles.get(WHOLE)
        if whole is not None and whole.is_limit and whole.blocks(self._now()):
            return 0
        tried = await self._resume_all()
        snapshot = await self.rules.observe(self.memory)
        self.last_look = self._now()
        if WHOLE in self.troubles:
            await self._keep(troubles=self._troubles_but(WHOLE))
            self._tell("info", "goes on", {})
        actions = self.rules.plan(snapshot, self.memory)
        await self._forget_troubles({action.subject for action in actions})
        for action in actions:
            if not self._is_held_up(action.subject):
                await self._do(action)
                tried += 1
        return tried

    def _is_held_up(self, subject: str) -> bool:
        trouble = self.troubles.get(subject)
        is_blocked = trouble is not None and trouble.blocks(self._now())
        return is_blocked or subject in self._checkpoint.intents

    # ── one action ──

    async def _do(self, action: A) -> None:
        if action.is_deed:
            await self._keep(intents={**self._checkpoint.intents, action.subject: action})
        try:
            outcome = await self.rules.act(action)
        except LimitError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a subject: the others go on
            await self._stumble(action.subject, error, action)
        else:
            await self._done(action, outcome)

    async def _resume_all(self) -> int:
        """Find out what became of everything that was begun."""
        tried = 0
        for action in list(self._checkpoint.intents.values()):
            trouble = self.troubles.get(action.subject)
            if trouble is not None and trouble.blocks(self._now()):
                continue
            tried += 1
            try:
                outcome = await self.rules.resume(action)
            except LimitError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `_do`
                await self._stumble(action.subject, error, action)
                continue
            if outcome is None:
                await self._keep(intents=self._intents_but(action))
            else:
                await self._done(action, outcome)
        return tried

    async def _done(self, action: A, outcome: O) -> None:
        if action.subject in self.troubles:
            self._tell("info", "succeeds now", {"about": action.subject})
        await self._keep(
            memory=self.rules.remember(self.memory, action, outcome),
            intents=self._intents_but(action),
            troubles=self._troubles_but(action.subject),
        )

    async def _stumble(self, subject: str, error: Exception, action: A | None = None) -> None:
        """Write down what is wrong, and say it if that is new."""
        before = self.troubles.get(subject)
        trouble = judge(error, before, self._now(), self._give_up_after)
        if action is None:  # the whole director never gives up
            trouble = trouble.model_copy(update={"is_given_up": False})
        if trouble.reason.startswith("a bug: "):
            log.exception("failed", exc_info=error)
        if before is None or before.reason != trouble.reason or trouble.is_given_up:
            self._say(subject, trouble)
        changes: dict[str, Any] = {"troubles": {**self.troubles, subject: trouble}}
        if action is not None and trouble.is_given_up:
            changes["memory"] = self.rules.give_up(self.memory, action, trouble.reason)
            changes["intents"] = self._intents_but(action)
        try:
            await self._keep(**changes)
        except OSError as problem:  # a full disk: it is in memory, and saved before the next round
            if not self._is_unsaved_said:
                self._is_unsaved_said = True
                log.warning("cannot write the memory", extra={"reason": str(problem)})

    def _say(self, subject: str, trouble: Trouble) -> None:
        fields: dict[str, object] = {"reason": trouble.reason}
        if subject:
            fields["about"] = subject
        if trouble.hint:
            fields["hint"] = trouble.hint
        if trouble.is_given_up:
            self._tell("error", "gives up", fields)
        elif trouble.verdict is Verdict.PERSON:
            self._tell("error", "needs a person", fields)
        else:
            self._tell("warn", "failed, and is tried again", fields)

    # ── the checkpoint ──

    def _intents_but(self, action: A) -> dict[str, A]:
        intents = self._checkpoint.intents
        return {subject: each for subject, each in intents.items() if subject != action.subject}

    def _troubles_but(self, subject: str) -> dict[str, Trouble]:
        return {name: each for name, each in self.troubles.items() if name != subject}

    async def _forget_troubles(self, planned: Collection[str]) -> None:
        """Those of subjects about which nothing is to be done any more."""
        subjects = {*planned, *self._checkpoint.intents}
        await self._keep(
            troubles={name: each for name, each in self.troubles.items() if name in subjects}
        )

    async def _keep(self, **changes: Any) -> None:
        """Change the checkpoint, and write it if that changed anything."""
        before = self._checkpoint
        self._checkpoint = before.model_copy(update=changes)
        if self._checkpoint != before or not self._is_saved:
            self._is_saved = False
            await self._save()

    async def _save(self) -> None:
        # In a thread: a disk that is slow to flush must not keep `/status` waiting. One at a time:
        # what was kept last is what stays.
        async with self._saving:
            checkpoint = self._checkpoint
            await asyncio.to_thread(self._file.save, checkpoint)
            self._is_saved = checkpoint is self._checkpoint
            self._is_unsaved_said = False

    def _pause_seconds(self) -> float:
        now = self._now()
        whole = self.troubles.get(WHOLE)
        if whole is not None:
            return max(0.0, whole.remaining_seconds(now))
        waits = [
            one.remaining_seconds(now) for one in self.troubles.values() if not one.is_given_up
        ]
        return max(0.0, min([self.rules.pause_seconds(self.memory), *waits]))


def checkpoint_type(rules: Rules[Any, M, A, Any]) -> type[Checkpoint[M, A]]:
    """How such a director's memory lies on disk."""
    kind: type[Checkpoint[M, A]] = Checkpoint[rules.memory_type, rules.action_type]  # type: ignore[name-defined]
    return kind


def request_key(director: str, action: Action) -> str:
    """An action's key as the hub wants it: the same for the same deed of the same director."""
    return hashlib.sha256(f"{director}\0{action.key}".encode()).hexdigest()[:32]
