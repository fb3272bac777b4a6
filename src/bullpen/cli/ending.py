"""Says on standard error, to a person at a terminal, for whose end a command waits, and when those
are killed.

Used by the commands that end agents. Who is ending and how long each is given is what the hub has
recorded: whoever stops a pod or a tree names none of them, and `stop_grace` is the hub's.
"""

import contextlib
import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bullpen.cli.live_line import LiveLine
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.text import printable

SILENT_SECONDS = 1.0  # most agents have ended by then
TICK_SECONDS = 1.0
ANSWER_SECONDS = 5.0
PAGE = 1000
NEWEST = 1 << 62


@contextlib.contextmanager
def shown_endings(home: Home, names: Collection[str] | None = None) -> Iterator[None]:
    """Around calls that end agents, these or any: after a second it is said who is waited for."""
    line = LiveLine()
    if not line.is_shown:
        yield
        return
    over = threading.Event()
    given = (home, line, time.time(), names, over)
    showing = threading.Thread(target=_show, args=given, daemon=True)
    showing.start()
    try:
        yield
    finally:
        over.set()
        showing.join()
        line.wipe()


def fold_endings(
    endings: Mapping[str, float], events: Iterable[Any], began: float
) -> dict[str, float]:
    """Who is ending after these events, oldest first, and when each is killed. What was before
    the command began is another's."""
    now = dict(endings)
    for event in events:
        if event.time < began:
            continue
        if event.kind == "agent.stopping" and "grace" in event.data:
            now[event.agent] = event.time + event.data["grace"]
        elif event.kind == "agent.stopped":
            now.pop(event.agent, None)
    return now


def words(endings: Mapping[str, float], now: float) -> str:
    """One line for people; empty if nobody is waited for."""
    if not endings:
        return ""
    left = math.ceil(max(endings.values()) - now)
    killed = f"; killed in {left}s" if left > 0 else ""
    names = ", ".join(endings) if len(endings) <= 3 else f"{len(endings)} agents"
    return printable(f"waiting for {names} to end{killed}")


def _show(
    home: Home,
    line: LiveLine,
    began: float,
    names: Collection[str] | None,
    over: threading.Event,
) -> None:
    endings: dict[str, float] = {}
    after, pause = 0, SILENT_SECONDS
    hub = Hub(home, start=False, seconds=ANSWER_SECONDS)
    while not over.wait(pause):
        pause = TICK_SECONDS
        try:
            events = _read(hub, after)
        except BullpenError:
            continue  # the command itself says it, or waits for the next hub
        endings = fold_endings(endings, events, began)
        after = events[-1].id if events else after
        meant = {name: end for name, end in endings.items() if names is None or name in names}
        text = words(meant, time.time())
        if text:
            line.draw(text[: line.columns])
        else:
            line.wipe()


def _read(hub: Hub, after: int) -> list[Any]:
    """What happened after that, oldest first; at first the newest there is."""
    from bullpen.client.events import list_events  # most commands are over before

    call = list_events(after, PAGE) if after else list_events(before=NEWEST, limit=PAGE)
    events = list(hub.do(call.unchecked()).events)
    return events if after else events[::-1]
