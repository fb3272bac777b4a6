"""The loop of every director, and what a crash, a failure or a full disk leaves."""

import asyncio
import contextlib
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors import failures
from bullpen.directors.failures import ActionError, LimitError, Trouble, Verdict, judge
from bullpen.directors.loop import WHOLE, Loop, request_key
from bullpen.directors.memory import locked
from bullpen.errors import BullpenError, Kind
from tests.directors import replay
from tests.directors.sample import Copy, CopyRules, copy_loop, make_directories, memory_file


class CopyWorld:
    """A file is there; another one comes, and one that cannot be copied."""

    changes: Sequence[Callable[[Path], None]] = (lambda directory: _put(directory, "b", "bad"),)

    def make(self, directory: Path) -> None:
        make_directories(directory)
        _put(directory, "a")

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        return copy_loop(directory)

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        return tried == 0

    def picture(self, directory: Path) -> object:
        memory = copy_loop(directory).memory
        out = {path.name: path.read_text() for path in (directory / "out").iterdir()}
        return out, sorted(memory.copied), memory.given_up


def _put(directory: Path, *names: str) -> None:
    for name in names:
        (directory / "in" / name).write_text(f"text of {name}")


class ForgetfulRules(CopyRules):
    """Says of everything that it was not done."""

    async def resume(self, action: Copy) -> str | None:
        return None


class ForgetfulWorld(CopyWorld):
    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        rules = ForgetfulRules(directory)
        return Loop(rules, memory_file(directory, rules), tell=print)


# ── killed ──


@pytest.mark.slow
def test_a_director_killed_at_any_step_leaves_the_world_of_one_that_was_not(tmp_path: Path) -> None:
    whole = replay.undisturbed(CopyWorld(), tmp_path / "whole")
    worlds = dict(replay.killed(CopyWorld(), tmp_path / "killed"))
    assert len(worlds) > 15  # two writes and an act, each before and after, for every file
    assert {name: world for name, world in worlds.items() if world != whole} == {}


def test_the_harness_sees_what_is_done_twice(tmp_path: Path) -> None:
    whole = replay.undisturbed(ForgetfulWorld(), tmp_path / "whole")
    worlds = replay.killed(ForgetfulWorld(), tmp_path / "killed")
    assert any(world != whole for _, world in worlds)


@pytest.mark.storm
@pytest.mark.parametrize("again", range(1, 8))
def test_a_director_killed_twice_leaves_the_world_of_one_that_was_not(
    tmp_path: Path, again: int
) -> None:
    whole = replay.undisturbed(CopyWorld(), tmp_path / "whole")
    worlds = dict(replay.killed(CopyWorld(), tmp_path / "killed", (again,)))
    assert {name: world for name, world in worlds.items() if world != whole} == {}


# ── failures ──


class Clock:
    """A clock that stands, and what was told meanwhile."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.told: list[tuple[str, str]] = []

    def now(self) -> float:
        return self.time

    def tell(self, level: str, message: str, fields: dict[str, object]) -> None:
        self.told.append((level, f"{message} {fields.get('about', '')}".strip()))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop(tmp_path: Path, clock: Clock) -> Loop[Any, Any, Any, Any]:
    make_directories(tmp_path)
    rules = CopyRules(tmp_path)
    return Loop(rules, memory_file(tmp_path, rules), tell=clock.tell, now=clock.now)


def test_what_fails_for_good_is_given_up_once_and_holds_up_nothing_else(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], clock: Clock
) -> None:
    _put(tmp_path, "bad", "c")
    asyncio.run(loop.step())
    assert loop.memory.copied == ("c",)
    assert loop.memory.given_up == {"bad": "bad is bad"}
    assert asyncio.run(loop.step()) == 0
    assert clock.told == [("error", "gives up bad")]


def test_what_needs_a_person_is_said_once_also_by_the_next_process(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], clock: Clock
) -> None:
    _put(tmp_path, "locked")
    for _ in range(3):
        asyncio.run(loop.step())
        clock.time += failures.MOST_SECONDS
    again = Loop(loop.rules, loop._file, tell=clock.tell, now=clock.now)
    asyncio.run(again.step())
    assert clock.told == [("error", "needs a person locked")]
    (tmp_path / "out" / "unlocked").touch()
    clock.time += failures.MOST_SECONDS
    asyncio.run(again.step())
    assert again.memory.copied == ("locked",)
    assert clock.told[1:] == [("info", "succeeds now locked")]


def test_the_next_process_says_in_its_log_what_holds_it_up(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], clock: Clock
) -> None:
    _put(tmp_path, "locked", "bad")
    asyncio.run(loop.step())
    before = [*clock.told]
    again = Loop(loop.rules, loop._file, tell=clock.tell, now=clock.now)

    async def begin() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await again.run()

    asyncio.run(begin())
    assert ("error", "needs a person locked") in before
    assert clock.told[len(before) :] == [("error", "needs a person locked")]


class LimitedRules(CopyRules):
    """Nothing can be copied before `seconds`."""

    seconds, asked = 0.0, 0

    def now(self) -> float:
        return self.seconds

    async def act(self, action: Copy) -> str:
        self.asked += 1
        if self.seconds < 3600:
            raise LimitError("enough", 3600)
        return await super().act(action)


def test_a_limit_that_one_action_meets_ends_the_round_and_holds_up_all(tmp_path: Path) -> None:
    make_directories(tmp_path)
    _put(tmp_path, "a", "b", "c")
    rules = LimitedRules(tmp_path)
    file = memory_file(tmp_path, rules)

    async def steps() -> None:
        for seconds in (0.0, 1.0, 3599.0):
            rules.seconds = seconds
            # Each time as a new process.
            await Loop(rules, file, tell=lambda *_: None, now=rules.now).step()
            assert rules.asked == 1
        rules.seconds = 3600.0
        loop = Loop(rules, file, tell=lambda *_: None, now=rules.now)
        while await loop.step():
            pass
        assert (sorted(loop.memory.copied), loop.troubles) == (["a", "b", "c"], {})

    asyncio.run(steps())
    assert all((tmp_path / "out" / name).read_text().count("\n") == 1 for name in "abc")


def test_a_world_that_is_away_is_waited_for(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], clock: Clock
) -> None:
    _put(tmp_path, "a", "away")
    for _ in range(50):  # far more often than anything else is tried
        asyncio.run(loop.step())
    assert clock.told == [("warn", "failed, and is tried again")]
    assert loop.troubles[WHOLE].reason == "the inbox is away"
    (tmp_path / "in" / "away").unlink()
    asyncio.run(loop.step())
    assert loop.memory.copied == ("a",)
    assert not loop.troubles
    assert clock.told[1:] == [("info", "goes on")]


def test_troubles_of_what_is_gone_are_forgotten(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], clock: Clock
) -> None:
    _put(tmp_path, "locked")
    asyncio.run(loop.step())
    assert set(loop.troubles) == {"locked"}
    (tmp_path / "in" / "locked").unlink()
    clock.time += failures.MOST_SECONDS
    asyncio.run(loop.step())
    assert not loop.troubles


@pytest.mark.parametrize("full_at", range(1, 5))
def test_a_full_disk_neither_loses_nor_repeats(
    tmp_path: Path, loop: Loop[Any, Any, Any, Any], full_at: int
) -> None:
    _put(tmp_path, "a", "b")
    save, writes = loop._file.save, iter(range(1, 100))

    def full(checkpoint: Any) -> None:
        if full_at <= next(writes) < full_at + 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(checkpoint)

    loop._file.save = full  # type: ignore[method-assign]
    for _ in range(6):
        asyncio.run(loop.step())
    assert sorted(loop.memory.copied) == ["a", "b"]
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        "a": "text of a\n",
        "b": "text of b\n",
    }
    assert loop._file.load().memory == loop.memory  # type: ignore[union-attr]


def test_a_memory_that_cannot_be_written_is_named_and_said_once(
    tmp_path: Path,
    loop: Loop[Any, Any, Any, Any],
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = loop._file.path
    _put(tmp_path, "a", "b")
    aside = file.parent.rename(tmp_path / "aside")
    file.parent.write_text("no directory")
    for _ in range(3):
        asyncio.run(loop.step())
        clock.time += failures.MOST_SECONDS
    assert str(file) in loop.troubles[WHOLE].reason
    assert ".new" not in loop.troubles[WHOLE].reason
    assert len(clock.told) == 1
    assert [each.message for each in caplog.records] == ["cannot write the memory"]
    file.parent.unlink()
    aside.rename(file.parent)
    asyncio.run(loop.step())
    assert sorted(loop.memory.copied) == ["a", "b"] and loop.troubles == {}


@pytest.mark.parametrize(
    ("error", "verdict", "is_given_up"),
    [
        (BullpenError("x", kind=Kind.UNAVAILABLE), Verdict.LATER, False),
        (BullpenError("x", kind=Kind.DENIED), Verdict.PERSON, False),
        (BullpenError("x", kind=Kind.COMMAND_FAILED), Verdict.AGAIN, False),
        (BullpenError("x", kind=Kind.CONFLICT), Verdict.AGAIN, False),
        (BullpenError("x", kind=Kind.INVALID), Verdict.HOPELESS, True),
        (BullpenError("x", kind=Kind.NOT_FOUND), Verdict.HOPELESS, True),
        (BullpenError("x", kind=Kind.UNSUPPORTED), Verdict.HOPELESS, True),
        (OSError(errno.ENOSPC, "full"), Verdict.LATER, False),
        (ZeroDivisionError("by nought"), Verdict.AGAIN, False),
        (ActionError("x", Verdict.PERSON), Verdict.PERSON, False),
    ],
)
def test_the_kind_of_a_failure_decides(
    error: Exception, verdict: Verdict, is_given_up: bool
) -> None:
    trouble = judge(error, None, 0.0)
    assert (trouble.verdict, trouble.is_given_up) == (verdict, is_given_up)


def test_waits_double_up_to_a_quarter_of_an_hour_and_then_it_is_given_up() -> None:
    error, trouble, waits = BullpenError("x", kind=Kind.COMMAND_FAILED), None, []
    while trouble is None or not trouble.is_given_up:
        trouble = judge(error, trouble, 0.0, give_up_after=10)
        waits.append(trouble.wait_seconds)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]


def test_the_other_side_may_ask_for_a_longer_wait() -> None:
    limited = BullpenError("x", kind=Kind.COMMAND_FAILED, details={"retry_after": 1800})
    assert judge(limited, None, 0.0).wait_seconds == 1800
    own = ActionError("x", Verdict.LATER, retry_after_seconds=3000)
    assert judge(own, None, 0.0).wait_seconds == 3000


def test_a_clock_that_is_set_back_costs_no_more_than_the_wait() -> None:
    trouble = Trouble(verdict=Verdict.LATER, reason="x", at=1_000_000.0, wait_seconds=40.0)
    assert trouble.blocks(1_000_030.0)
    assert not trouble.blocks(1_000_040.0)
    assert trouble.remaining_seconds(5.0) == 40.0


# ── the memory ──


def test_a_memory_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    make_directories(tmp_path)
    (tmp_path / "memory" / "memory.json").write_text("{")
    with pytest.raises(BullpenError, match=r"memory\.json cannot be read"):
        copy_loop(tmp_path)


def test_one_process_at_a_time_has_a_memory(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "night"),
        pytest.raises(BullpenError, match="night runs already"),
        locked(tmp_path / "night"),
    ):
        pass
    with locked(tmp_path / "night"):
        pass


def test_the_same_deed_of_the_same_director_is_the_same_request() -> None:
    one, other = Copy(key="a", subject="x", text=""), Copy(key="b", subject="x", text="")
    assert request_key("night", one) == request_key("night", one)
    keys = {request_key(name, action) for name in ("night", "day") for action in (one, other)}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)
