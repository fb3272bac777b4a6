"""`bullpen list -w`: the list, drawn again and again, with a bell when an agent begins to wait for
a person. Starts the hub once; later it waits for one that is down.
"""

import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bullpen.cli import output
from bullpen.client.call import Call
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.terminal.attach_settings import attach_settings
from bullpen.terminal.title import notification

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentList, AgentWithUsage

LOOK_AGAIN_SECONDS = 1.0
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen, no cursor
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch_text(hub: Hub, call: "Call[Any]", verb: str) -> None:
    """The text of another call than the list's, drawn again and again, until Ctrl-C."""
    hubs = itertools.chain([hub], itertools.repeat(Hub(hub.home, start=False)))
    watch_screen(lambda: _text(next(hubs), call), verb)


def watch_screen(make_text: Callable[[], str], verb: str) -> None:
    """Any text, made and drawn again and again, until Ctrl-C."""
    _refuse_pipe(verb)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.write(ENTER)
    try:
        while True:
            try:
                _draw(make_text())
            except BullpenError as error:
                _draw(f"{output.printable(error.message)}\n")
            time.sleep(LOOK_AGAIN_SECONDS)
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(LEAVE)


def _refuse_pipe(verb: str) -> None:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        raise BullpenError(
            f"{verb} -w needs a terminal that can draw",
            hint=f"bullpen {verb}",
            kind=Kind.UNSUPPORTED,
        )


def watch_list(hub: Hub, call: "Call[AgentList]") -> None:
    """Until Ctrl-C."""
    _refuse_pipe("list")
    text, waiting = _look(hub, call)
    has_bell = attach_settings(hub.home).bell
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the screen is put right then, too
    hub = Hub(hub.home, start=False)
    sys.stdout.write(ENTER)
    try:
        while True:
            _draw(text)
            time.sleep(LOOK_AGAIN_SECONDS)
            try:
                text, now_waiting = _look(hub, call)
            except BullpenError as error:
                text, now_waiting = f"{output.printable(error.message)}\n", waiting
            if has_bell:
                _ring(began_to_wait(waiting, now_waiting))
            waiting = now_waiting
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(LEAVE)


def began_to_wait(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What to say of those who wait for something else than before."""
    return [f"{name}: {words}" for name, words in now.items() if before.get(name) != words]


def drawn(text: str, columns: int, rows: int) -> str:
    """The text as a screen of so many rows; what does not fit is counted."""
    lines = text.splitlines()
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"… {len(lines) - rows + 1} more lines"[:columns]]
    return HOME + "\r\n".join(f"{line}{REST_OF_LINE}" for line in lines) + REST_OF_SCREEN


def _look(hub: Hub, call: "Call[AgentList]") -> tuple[str, dict[str, str]]:
    """The text, and who waits for what."""
    text = _text(hub, call)
    return text, _waiting(hub.do(call).agents)


def _text(hub: Hub, call: "Call[Any]") -> str:
    colour = int(output.has_colours(sys.stdout))
    return hub.do(call.as_text(colour=colour, columns=output.terminal_columns()))


def _waiting(agents: "Iterable[AgentWithUsage]") -> dict[str, str]:
    return {agent.name: agent.words for agent in agents if agent.state.state == "blocked"}


def _draw(text: str) -> None:
    columns, rows = shutil.get_terminal_size()
    sys.stdout.write(drawn(text, columns, rows))
    sys.stdout.flush()


def _ring(waiting: Sequence[str]) -> None:
    """The bell and a notification, if anybody began to wait."""
    if waiting:
        sys.stdout.write(notification(", ".join(waiting)).decode())
