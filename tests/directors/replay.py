"""Replays what happens in a director's world, and kills the director at any step of it.

A `World` says what there is at first, what happens then, how its director is made, and what of it
counts at the end. `undisturbed` is the world after a run that was never killed; `killed` yields one
world for every step at which the director can die: before and after each write of its memory, each
action and each resumption. Equal pictures mean that nothing was lost and nothing was done twice.

The director is a forked process that ends by `os._exit`: what it had not written is gone.
"""

import asyncio
import itertools
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from bullpen.directors.loop import Loop

KILLED = 77
MOST_ROUNDS = 200
MOST_DEATHS = 10_000

Mine = Callable[[Loop[Any, Any, Any, Any]], None]  # makes the process die somewhere


class World(Protocol):
    """What a director works on; everything of it outlives the director."""

    changes: Sequence[Callable[[Path], None]]  # what happens, one after the other

    def make(self, directory: Path) -> None:
        """As it is before the director's first look."""

    def loop(self, directory: Path) -> Loop[Any, Any, Any, Any]:
        """A director as a new process has it. Called in that process."""

    def is_quiet(self, loop: Loop[Any, Any, Any, Any], tried: int) -> bool:
        """Whether the director has done what there is to do, after a round with so many actions."""

    def picture(self, directory: Path) -> object:
        """What of the world counts."""


def undisturbed(world: World, directory: Path) -> object:
    """The world after everything has happened, and the director was never killed."""
    return _replay(world, directory, None, ())[0]


def killed(
    world: World,
    base: Path,
    again: Sequence[int] = (),
    only: int | None = None,
    at: Callable[[int], Mine] | None = None,
) -> Iterator[tuple[str, object]]:
    """For each step: its name and the world after the director was killed there and started
    again; `again`: the following processes die, too, at their so-many-th step; `only`: those steps
    alone that follow that change (0: the beginning); `at`: dies at other steps than the usual."""
    for change in range(len(world.changes) + 1) if only is None else (only,):
        for step in itertools.count(1):
            name = f"after change {change}, step {step}"
            directory = base / f"{change}-{step}"
            picture, was_hit = _replay(world, directory, change, (step, *again), at)
            if not was_hit:
                break
            yield name, picture


def killed_until_done(
    world: World, directory: Path, make_mine: Callable[[], Mine]
) -> tuple[object, int]:
    """The world after everything has happened, and processes of the director were killed as each
    `make_mine` has it, until one was not; and how many were."""
    directory.mkdir(parents=True)
    world.make(directory)
    deaths = 0
    for change in (None, *world.changes):
        if change is not None:
            change(directory)
        while _run(world, directory, make_mine()):
            deaths += 1
            assert deaths < MOST_DEATHS, "the director does not come to rest"
    return world.picture(directory), deaths


def killed_always(world: World, directory: Path) -> tuple[object, int]:
    """The world after everything has happened, and every process of the director was killed after
    its first action, in turns before and after what came of it was written; and how many were."""
    turns = itertools.count()
    return killed_until_done(
        world,
        directory,
        lambda: partial(_die_after_action, is_written=next(turns) % 2 == 0),
    )


def _replay(
    world: World,
    directory: Path,
    at: int | None,
    steps: Sequence[int],
    make_mine: Callable[[int], Mine] | None = None,
) -> tuple[object, bool]:
    directory.mkdir(parents=True)
    world.make(directory)
    was_hit = False
    for number, change in enumerate((None, *world.changes)):
        if change is not None:
            change(directory)
        for step in steps if number == at else ():
            mine = make_mine(step) if make_mine else partial(_mine, step=step)
            if _run(world, directory, mine) == KILLED:
                was_hit = True
        assert _run(world, directory, None) == 0
    return world.picture(directory), was_hit


def _run(world: World, directory: Path, mine: Mine | None) -> int:
    """One process of the director, from its start until there is nothing to do."""
    pid = os.fork()
    if pid == 0:
        _live(world, directory, mine)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, KILLED), f"the director ended with {code}"
    return code


def _live(world: World, directory: Path, mine: Mine | None) -> NoReturn:
    code = 1
    try:
        signal.alarm(120)
        asyncio.run(_work(world, directory, mine))
        code = 0
    except BaseException:  # noqa: BLE001 - of a process that is not the test's
        traceback.print_exc()
    finally:
        os._exit(code)


async def _work(world: World, directory: Path, mine: Mine | None) -> None:
    loop = world.loop(directory)
    if mine is not None:
        mine(loop)
    for _ in range(MOST_ROUNDS):
        if world.is_quiet(loop, await loop.step()):
            return
    raise AssertionError("the director does not come to rest")


def _mine(loop: Loop[Any, Any, Any, Any], step: int) -> None:
    """Let the process die at its so-many-th step."""
    steps = itertools.count(1)

    def reach() -> None:
        if next(steps) == step:
            os._exit(KILLED)

    save = loop._file.save

    def saving(checkpoint: Any) -> None:
        reach()
        save(checkpoint)
        reach()

    def around(function: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def call(action: Any) -> Any:
            reach()
            outcome = await function(action)
            reach()
            return outcome

        return call

    loop._file.save = saving  # type: ignore[method-assign]
    rules: Any = loop.rules
    rules.act, rules.resume = around(rules.act), around(rules.resume)


def _die_after_action(loop: Loop[Any, Any, Any, Any], is_written: bool) -> None:
    """Let the process die after its first action, done or failed; `is_written`: when that is on
    disk, else before."""
    rules: Any = loop.rules
    act, keep = rules.act, loop._keep

    async def act_and_die(action: Any) -> Any:
        try:
            return await act(action)
        finally:
            if not is_written:
                os._exit(KILLED)
            loop._keep = keep_and_die  # type: ignore[method-assign]

    async def keep_and_die(**changes: Any) -> None:
        try:
            await keep(**changes)
        finally:
            os._exit(KILLED)

    rules.act = act_and_die
