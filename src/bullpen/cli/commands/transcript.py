"""`bullpen transcript`: what was said and done in an agent's conversation."""

import time
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import click

from bullpen.cli import output
from bullpen.cli.commands.logs import complete_known
from bullpen.cli.connect import connect_for
from bullpen.cli.tasks import ids as task_ids
from bullpen.client import tasks
from bullpen.client.agents import get_agent
from bullpen.client.hub import Hub
from bullpen.client.transcripts import get_transcript
from bullpen.errors import BullpenError, Kind
from bullpen.text import LEAST_COLUMNS, printable, wrapped

if TYPE_CHECKING:
    from bullpen.model.transcript import Entry

POLL_SECONDS = 0.5
RESULT_LINES = 4
MARKS = {"prompt": "›", "answer": "●", "tool": "·", "result": " "}
INDENT = " " * 11


@click.command()
@click.argument("name", shell_complete=complete_known)
@click.option("-f", "--follow", is_flag=True, help="Go on until the agent or the task ends.")
@click.option("-n", "--last", type=click.IntRange(1), help="Only so many entries, the last.")
@click.option("--full", is_flag=True, help="Results of tools whole, not their first lines.")
@output.json_option
def command(name: str, follow: bool, last: int | None, full: bool, as_json: bool) -> None:
    """Print what was said and done in an agent's conversation, or in that of a task.

    NAME is an agent or a task's id; of an agent that takes tasks it is the latest task. › is what
    it was told, ● what it said, · a tool that it used. As the agent's program wrote it down.
    """
    hub, name = connect_for(name)
    agent, task = _find(hub, name)
    pages = Pages(hub, agent, task or (_latest(hub, agent) if follow else ""))
    entries = list(deque(pages.read_or_wait() if follow else pages.read(), last))
    if as_json and not follow:
        output.write_json({"entries": entries})
        return
    for entry in chain(entries, pages.follow() if follow else ()):
        if as_json:
            output.write_json_line(entry)
        else:
            output.write(_text(entry, full, output.terminal_columns()))


class Pages:
    """The pages of one transcript, read once each; an entry that comes again is passed over."""

    def __init__(self, hub: Hub, agent: str, task: str) -> None:
        self._hub = hub
        self._agent = agent
        self._task = task
        self._offset = 0
        self._conversation = ""
        self._seen: set[tuple[str, str, str]] = set()

    def read(self) -> "Iterator[Entry]":
        """All that is there and was not read yet."""
        more = True
        while more:
            page = self._hub.do(get_transcript(self._agent, self._task, self._offset))
            if self._offset and page.conversation != self._conversation:
                self._offset = 0  # it was cleared: another one goes on
                continue
            self._offset, more = page.offset, page.more
            self._conversation = page.conversation
            yield from filter(self._is_new, page.entries)

    def read_or_wait(self) -> "Iterator[Entry]":
        """The same; nothing while it has yet to begin."""
        try:
            yield from self.read()
        except BullpenError as error:
            if error.kind is not Kind.NOT_FOUND or not self._goes_on():
                raise

    def follow(self) -> "Iterator[Entry]":
        """What comes, until the agent or the task has ended."""
        goes_on = True
        while goes_on:
            time.sleep(POLL_SECONDS)
            goes_on = self._goes_on()
            yield from self.read_or_wait() if goes_on else self.read()

    def _goes_on(self) -> bool:
        """Whether there will be more."""
        if self._task:
            return self._hub.do(tasks.get_task(self._task, self._agent)).completed_at is None
        agent = self._hub.do(get_agent(self._agent))
        return agent.running and bool(agent.state_files)  # else it writes none

    def _is_new(self, entry: "Entry") -> bool:
        key = (entry.kind, entry.key, entry.call)
        is_new = not entry.key or key not in self._seen
        self._seen.add(key)
        return is_new


def _find(hub: Hub, name: str) -> tuple[str, str]:
    """The agent, and the task if one is meant."""
    if not task_ids.WHOLE.fullmatch(name):
        return name, ""
    agent = hub.do(tasks.get_task(name, task_ids.whose())).agent
    if not agent:
        raise BullpenError(f"nobody has begun {name} yet", hint="bullpen tasks", kind=Kind.CONFLICT)
    return agent, name


def _latest(hub: Hub, agent: str) -> str:
    """The task that is followed of an agent that takes some."""
    if not hub.do(get_agent(agent)).takes_tasks:
        return ""
    latest = hub.do(tasks.list_history(agent, limit=1)).items
    return latest[0].task_id if latest else ""


def _text(entry: "Entry", full: bool, columns: int) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(entry.at)) if entry.at else " " * 8
    text = f"{entry.tool}  {entry.text}".rstrip() if entry.kind == "tool" else entry.text
    lines = printable(text.strip(), lines=True).split("\n")
    if entry.kind == "result":
        clock = " " * 8
        if not full and len(lines) > RESULT_LINES:
            lines = [*lines[:RESULT_LINES], f"… {len(lines) - RESULT_LINES} more lines · --full"]
    room = columns and max(columns - len(INDENT), LEAST_COLUMNS)
    lines = [part for line in lines for part in wrapped(line, room)]
    return f"{clock} {MARKS[entry.kind]} " + f"\n{INDENT}".join(lines)
