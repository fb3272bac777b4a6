"""What an agent said last, for whoever is told of its end. Reads files."""

import contextlib
import os
from pathlib import Path

from bullpen.engines import Engine
from bullpen.hub.agents.transcript import read_last_answer
from bullpen.model.agent import Agent
from bullpen.terminal.screen import Screen
from bullpen.text import printable

LOG = "output.log"
READ_BYTES = 16 << 10
MOST_CHARACTERS, MOST_LINES = 2000, 10
ROWS, COLUMNS = 40, 200


def read_last_output(engine: Engine | None, agent: Agent, session: Path) -> str:
    """Its last answer or, where it has no transcript, the end of what its terminal showed."""
    if engine is not None and agent.conversation:
        answer = read_last_answer(engine, agent, session)
        if answer:
            return answer[-MOST_CHARACTERS:]
    with contextlib.suppress(OSError), (session / LOG).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
        return last_lines(file.read())
    return ""


def last_lines(output: bytes) -> str:
    """The last lines that a terminal would show of it. Pure."""
    screen = Screen(ROWS, COLUMNS)
    screen.feed(output)
    lines = [printable(line.rstrip()) for line in screen.lines() if line.strip()]
    return "\n".join(lines[-MOST_LINES:])[-MOST_CHARACTERS:]
