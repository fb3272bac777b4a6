"""`bullpen logs`: what an agent's program wrote."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator

import click

from bullpen.cli.elsewhere import name_here
from bullpen.cli.journal import is_task_agent, write_journal
from bullpen.client.holder import connect
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home, current_home
from bullpen.terminal.follow import wait_for_output
from bullpen.terminal.log_files import LogFiles
from bullpen.terminal.plain import Plain
from bullpen.terminal.sessions import find_session, known
from bullpen.text import printable

MOST_NAMED = 8


def complete_known(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of all agents for the shell; silent when there is no home."""
    try:
        return [name for name in known(current_home()) if name.startswith(incomplete)]
    except BullpenError:
        return []


@click.command()
@click.argument("name", required=False, shell_complete=complete_known)
@click.option("-f", "--follow", is_flag=True, help="Go on until the agent's program ends.")
@click.option("-n", "--lines", "last", type=click.IntRange(0), help="Only so many, the last.")
@click.option("--raw", is_flag=True, help="Bytes as they are, with all control sequences.")
def command(name: str | None, follow: bool, last: int | None, raw: bool) -> None:
    """Print what an agent's program wrote to its terminal. Without NAME: of the only agent.

    As readable text; of programs that draw the whole screen this gives only pieces. What would
    change the order of characters is written as \\u202e. Of an agent that takes tasks it is the
    journal: when it was started, what became of its tasks; their output is in `bullpen task show`.
    """
    home = current_home()
    name = name or _only_agent(home)
    name = name_here(name, "its screen: bullpen peek")
    session = find_session(home, name)
    if is_task_agent(session):
        write_journal(session, follow=follow, last=last, raw=raw)
        return
    plain = Plain()
    with LogFiles(session) as log:
        for _ in _times(home, name, follow):
            pieces = log.read_on() if raw else _plain(log, plain, is_all=not follow)
            for piece in pieces if last is None else last_lines(pieces, last):
                sys.stdout.buffer.write(piece)
            last = None  # what comes later is all new
            sys.stdout.buffer.flush()
    if follow and not raw:
        sys.stdout.buffer.write(_safe(plain.finish()))
        sys.stdout.buffer.flush()


def _only_agent(home: Home) -> str:
    names = known(home)
    if not names:
        raise BullpenError("no agent has left a log", hint="bullpen run", kind=Kind.NOT_FOUND)
    if len(names) > 1:
        named = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        raise BullpenError("whose log?", hint=f"bullpen logs NAME · there are {named}")
    return names[0]


def _plain(log: LogFiles, plain: Plain, *, is_all: bool) -> Iterator[bytes]:
    """What was not read yet, as text; a line without an end only if nothing will follow."""
    for piece in log.read_on():
        yield _safe(plain.feed(piece))
    if is_all:
        yield _safe(plain.finish())


def last_lines(pieces: Iterable[bytes], count: int) -> list[bytes]:
    """The last so many lines; one without an end is one."""
    lines: deque[bytes] = deque(maxlen=count)
    half: list[bytes] = []
    for piece in pieces:
        begin, end, rest = piece.rpartition(b"\n")
        if end:
            lines.extend(b"".join([*half, begin, end]).splitlines(keepends=True))
            half = []
        half.append(rest)
    if any(half):
        lines.append(b"".join(half))
    return list(lines)


def _safe(text: str) -> bytes:
    return printable(text, lines=True).encode()


def _times(home: Home, name: str, follow: bool) -> Iterator[None]:
    """When to look: once, or each time that there is more."""
    if not follow:
        yield
        return
    try:
        connection = connect(home, name)
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        yield  # it has ended
        return
    with connection:
        yield from wait_for_output(connection)
