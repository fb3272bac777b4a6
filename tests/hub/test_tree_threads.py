"""Threads for work on agents' trees: an agent that makes them wait holds up nobody else."""

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import hub, proc
from bullpen.errors import BullpenError, Kind
from bullpen.hub.tree_threads import TreeThreads


def test_x8_looks_at_one_agent_are_one_look() -> None:
    """And another agent is looked at meanwhile."""
    goes_on, looks = threading.Event(), []

    def look() -> int:
        looks.append(1)
        assert goes_on.wait(60)
        return len(looks)

    async def main() -> None:
        trees = TreeThreads(most=2)
        asked = [asyncio.create_task(trees.look("amy", "diff", look)) for _ in range(60)]
        assert await trees.look("bob", "diff", lambda: "bob") == "bob"
        assert not any(task.done() for task in asked)
        goes_on.set()
        assert await asyncio.gather(*asked) == [1] * 60
        assert await trees.look("amy", "diff", look) == 2, "the next look is a new one"

    asyncio.run(main())


def test_x8_in_threads_that_all_share_one_agent_holds_up_the_others() -> None:
    """An attack counts only if it works without the defence."""
    goes_on = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
        asked = [asyncio.create_task(asyncio.to_thread(goes_on.wait, 60)) for _ in range(60)]
        await asyncio.sleep(0)  # they are ahead of bob
        bob = asyncio.create_task(asyncio.to_thread(lambda: "bob"))
        assert not (await asyncio.wait({bob}, timeout=0.2))[0]
        goes_on.set()
        await asyncio.gather(*asked, bob)

    asyncio.run(main())


def test_x8_work_on_one_agent_waits_for_its_turn_and_threads_are_few() -> None:
    running, most = [0], [0]
    lock = threading.Lock()
    everybody = threading.Barrier(3)

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        everybody.wait(60)
        with lock:
            running[0] -= 1

    async def main() -> None:
        trees = TreeThreads(most=3)
        agents = [f"agent{number}" for number in range(3)]
        await asyncio.gather(*(trees.run(agent, work) for agent in agents for _ in range(4)))

    asyncio.run(main())
    assert most == [3]


def test_x8_who_waits_for_too_long_is_told_so() -> None:
    goes_on = threading.Event()

    async def main() -> None:
        trees = TreeThreads(seconds=0.01)
        with pytest.raises(BullpenError) as raised:
            await trees.look("amy", "diff", lambda: goes_on.wait(60))
        assert raised.value.kind is Kind.UNAVAILABLE
        goes_on.set()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("how", "error"), [("run", BullpenError), ("run_repeatable", asyncio.CancelledError)]
)
def test_x8_a_hub_that_leaves_ends_what_still_runs(how: str, error: type[BaseException]) -> None:
    """What is done again by the next hub has not failed."""
    begun = threading.Event()

    def work() -> None:
        begun.set()
        proc.run(["sleep", "1000"], timeout=1000)

    async def main() -> None:
        trees = TreeThreads()
        way: Callable[..., object] = getattr(trees, how)
        task = asyncio.ensure_future(way("amy", work))  # type: ignore[arg-type]
        assert await asyncio.to_thread(begun.wait, 60)
        trees.leave()
        with pytest.raises(error):
            await task

    asyncio.run(main())


def test_x8_a_start_or_an_end_waits_for_no_look_and_comes_to_its_end() -> None:
    goes_on = threading.Event()

    async def main() -> None:
        trees = TreeThreads()
        look = asyncio.create_task(trees.look("amy", "diff", lambda: goes_on.wait(60)))
        await asyncio.sleep(0)
        trees.leave()
        done = await trees.run_to_end(lambda: proc.run(["echo", "ended"], timeout=60))
        assert (done.text, look.done()) == ("ended\n", False)
        goes_on.set()
        await look

    asyncio.run(main())


def test_x8_no_step_of_a_start_or_an_end_on_a_tree_is_in_threads_that_all_share() -> None:
    steps = "ensure_tree|unlock_tree|lock_tree|take_back_tree|tidy_agent|_make_trees|find_store"
    shared = re.compile(rf"to_thread\(\s*(?:\w+\.)*(?:{steps})\b")
    files = Path(hub.__file__).parent.rglob("*.py")
    assert [file for file in files if shared.search(file.read_text())] == []


def test_x8_what_a_leaving_hub_cut_off_is_not_taken_for_a_result() -> None:
    async def main() -> None:
        trees = TreeThreads()
        trees.leave()
        assert await trees.run("amy", lambda: "done") == "done"
        with pytest.raises(asyncio.CancelledError):
            await trees.run_repeatable("amy", lambda: "cut off, and caught")

    asyncio.run(main())
