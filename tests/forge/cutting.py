"""Kills a director of a forge between the requests of one action, for `tests/directors/replay`.

Requests are those to the forge's API and those that git makes of it. A process dies before one is
sent, or after it was answered and before anything came of that.
"""

import itertools
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bullpen.directors.forge.checkouts import Checkouts
from bullpen.directors.forge.http import ForgeHttp
from bullpen.directors.loop import Loop
from tests.directors.replay import KILLED

Mine = Callable[[Loop[Any, Any, Any, Any]], None]
Reach = Callable[[str], None]  # at a moment, which it names
CHANGES = ("push",)  # of git


def at_moment(step: int) -> Mine:
    """Die at the so-many-th moment of all: before and after every request of an action."""
    moments = itertools.count(1)

    def reach(_: str) -> None:
        if next(moments) == step:
            os._exit(KILLED)

    return partial(_cut, reach=reach)


def at_new_moment(seen: Path, *, of_changes: bool) -> Mine:
    """Die at the first moment at which no process died yet: each comes one further than the one
    before it. `seen` keeps them; `of_changes`: only those of requests that change the forge."""
    before = seen.read_text().splitlines() if seen.exists() else []

    def reach(moment: str) -> None:
        if moment not in before and not (of_changes and "GET" in moment):
            seen.write_text("\n".join([*before, moment]))
            os._exit(KILLED)

    return partial(_cut, reach=reach)


def _cut(loop: Loop[Any, Any, Any, Any], reach: Reach) -> None:
    """In this process, which is a director's."""
    rules: Any = loop.rules
    acting: list[str] = []

    def around(act: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def call(action: Any) -> Any:
            acting.append(action.key)
            try:
                return await act(action)
            finally:
                acting.pop()

        return call

    def pass_moment(when: str, request: str) -> None:
        if acting:
            reach(f"{when} {acting[-1]}: {request}")

    rules.act = around(rules.act)
    ask, ask_git = ForgeHttp._ask, Checkouts._ask

    async def asking(self: Any, method: str, target: str, *rest: Any, **fields: Any) -> Any:
        request = f"{method} {target} {fields.get('params') or ''}"
        pass_moment("before", request)
        answer = await ask(self, method, target, *rest, **fields)
        pass_moment("after", request)
        return answer

    def asking_git(self: Any, at: Path, repository: Any, words: Any) -> Any:
        request = f"git {words[0]}" if words[0] in CHANGES else f"GET by git {words[0]}"
        pass_moment("before", request)
        done = ask_git(self, at, repository, words)
        pass_moment("after", request)
        return done

    ForgeHttp._ask = asking  # type: ignore[method-assign]
    Checkouts._ask = asking_git  # type: ignore[method-assign]
