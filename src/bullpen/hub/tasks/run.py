"""One run of a task on pipes: started, followed to its end, stopped.

Called by `driver` and `stream`. A holder owns the program and writes its output to the run's log
before it tells anybody. A run is followed by reading that log from its beginning: a hub that is
started after a crash reads the same.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO

from bullpen.engines.base import Observe, Reader
from bullpen.engines.lines import (
    Line,
    ModelText,
    Partial,
    RunOutcome,
    TokensSpent,
    ToolUsed,
    TurnBegun,
)
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import KILLED
from bullpen.hub.holders import files as holder_files
from bullpen.hub.holders import link as holder_link
from bullpen.hub.holders.factory import Factory
from bullpen.model.task_shown import Progress

log = logging.getLogger("bullpen.hub")

PIECE_BYTES = 1 << 20
MOST_LINE_BYTES = 64 << 20  # a longer one says nothing
MOST_TEXT_CHARACTERS = 1 << 20  # of what a run without a result has said
ERROR_BYTES = 4096
RELEASE_SECONDS = 0.01
LEAVE_SECONDS = 30.0
LINGER_SECONDS = 30.0  # a program that has said its result, and does not end
ASK_AGAIN_SECONDS = (0.02, 0.1, 0.5, 2.0)
NEW_LINE, NEW_TEXT = "\n", "\n\n"
OUTPUT, ERRORS = "output.log", "stderr.log"


@dataclass(frozen=True)
class RunRef:
    """Where a run is, and what tells it from another."""

    directory: Path
    tag: str
    socket: Path

    def began(self) -> bool:
        """Whether its program was ever started. Asks the disk."""
        return (
            holder_files.find_holder(self.directory, self.tag) is not None
            or holder_files.find_exit(self.directory, self.tag) is not None
            or holder_files.is_held(self.directory)
        )


@dataclass
class RunOutput:
    """What a run has said so far."""

    conversation: str = ""
    texts: deque[str] = field(default_factory=deque)
    characters: int = 0
    partial: StringIO = field(default_factory=StringIO)  # of the text that is being written
    tool: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    warnings: list[str] = field(default_factory=list)
    outcome: RunOutcome | None = None

    def take(self, line: Line | None) -> None:
        """One more fact."""
        match line:
            case TurnBegun():
                self.conversation = line.conversation or self.conversation
                self.warnings += line.problems
            case ModelText():
                self.partial = StringIO()
                self._say(f"{NEW_LINE if line.is_line else NEW_TEXT}{line.text}")
                self.tool = ""
            case Partial():
                self._write(line)
            case ToolUsed():
                self.tool = f"{line.tool} ({line.detail})" if line.detail else line.tool
            case TokensSpent():
                self.input_tokens += line.input_tokens
                self.output_tokens += line.output_tokens
            case RunOutcome():
                self.outcome = line
                self.conversation = line.conversation or self.conversation
                self.tool = ""
            case _:
                pass

    def _say(self, text: str) -> None:
        """The newest is kept, if it is too much."""
        self.texts.append(text[-MOST_TEXT_CHARACTERS:])
        self.characters += len(self.texts[-1])
        while self.characters > MOST_TEXT_CHARACTERS:
            self.characters -= len(self.texts.popleft())

    def _write(self, piece: Partial) -> None:
        """A text that is begun again after a failure of the API counts once."""
        if piece.is_first:
            self.partial = StringIO()
        if self.partial.tell() + len(piece.text) <= MOST_TEXT_CHARACTERS:
            self.partial.write(piece.text)

    @property
    def text_so_far(self) -> str:
        written = self.partial.getvalue()
        texts = [*self.texts, f"{NEW_TEXT}{written}" if written else ""]
        return "".join(text for text in texts if text != NEW_TEXT).strip("\n")

    @property
    def text(self) -> str:
        """The result; of a run without one, what was said."""
        if self.outcome is not None and self.outcome.text:
            return self.outcome.text
        return self.text_so_far

    @property
    def progress(self) -> Progress:
        return Progress(
            text=self.text_so_far,
            tool=self.tool,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


@dataclass(frozen=True)
class Ended:
    """How a run ended: `outcome` is always there, also for one that said nothing."""

    outcome: RunOutcome
    at: float
    code: int | None
    signal: int | None
    is_lost: bool = False
    is_killed: bool = False  # by a person, without the hub


async def start(factory: Factory, request: dict[str, Any], ref: RunRef) -> None:
    """Start it. Fine if it was started already: by a hub that was killed before it could know."""
    try:
        await factory.hold({**request, "socket": str(ref.socket), "tag": ref.tag})
    except BullpenError as error:
        if error.kind is Kind.CONFLICT and await asyncio.to_thread(ref.began):
            return
        raise


async def follow(
    ref: RunRef, engine: Observe, output: RunOutput, news: Callable[[], None]
) -> Ended:
    """Read what it says until it is over; `news` is called whenever there is more."""
    reader = LogReader(ref.directory / OUTPUT, Reader(engine))
    more = asyncio.Event()
    tries = 0
    while True:
        record = await asyncio.to_thread(holder_files.find_exit, ref.directory, ref.tag)
        if record is not None or not await asyncio.to_thread(holder_files.is_held, ref.directory):
            break
        try:
            link = await holder_link.connect(ref.socket)
            await _listen(link, ref, reader, output, news, more)
            tries = 0
        except (OSError, TimeoutError):
            # Just ended, it does not answer, or its log cannot be read: none of it is death.
            await asyncio.to_thread(holder_files.ask_to_listen, ref.directory, ref.tag, ref.socket)
            await asyncio.sleep(ASK_AGAIN_SECONDS[min(tries, len(ASK_AGAIN_SECONDS) - 1)])
            tries += 1
    # The holder writes its record before it lets go of the directory.
    record = await asyncio.to_thread(holder_files.find_exit, ref.directory, ref.tag)
    await _read(reader, output, news)
    for fact in await asyncio.to_thread(reader.last):
        output.take(fact.line)
    await _released(ref)
    return await asyncio.to_thread(_ended, ref, engine, output, record)


async def _listen(
    link: holder_link.Link,
    ref: RunRef,
    reader: "LogReader",
    output: RunOutput,
    news: Callable[[], None],
    more: asyncio.Event,
) -> None:
    """For as long as the connection lasts."""
    over = asyncio.Event()

    def leave(*_: object) -> None:
        over.set()
        more.set()

    if link.greeting.result().get("tag") != ref.tag:
        link.close()
        raise BullpenError("another program is held under that name", kind=Kind.CONFLICT)
    link.follow(leave, leave)
    try:
        await link.listen(more.set)
        while not over.is_set():
            await _read(reader, output, news)
            wait = LINGER_SECONDS if output.outcome is not None else None
            try:
                async with asyncio.timeout(wait):
                    await more.wait()
            except TimeoutError:
                await link.ask(b"X", {"grace": 1})  # its result stands
            more.clear()
    finally:
        link.close()


async def _read(reader: "LogReader", output: RunOutput, news: Callable[[], None]) -> None:
    while facts := await asyncio.to_thread(reader.facts):
        for fact in facts:
            output.take(fact.line)
        news()


async def stop(ref: RunRef, grace: float) -> None:
    """Tell it to end; fine if it has ended, or ends in this moment."""
    link = await _reach(ref)
    if link is None:
        return
    try:
        if link.greeting.result().get("tag") == ref.tag:
            await link.ask(b"X", {"grace": grace})
    except (OSError, TimeoutError, BullpenError) as error:
        log.warning("cannot stop a run", extra={"tag": ref.tag, "why": str(error)})
    finally:
        link.close()


async def end(ref: RunRef, grace: float) -> None:
    """The same, and wait until it has ended."""
    await stop(ref, grace)
    await _released(ref)


async def _reach(ref: RunRef) -> holder_link.Link | None:
    """A link to its holder; None if it is gone, or does not answer. One whose socket somebody
    deleted listens again when it is told to."""
    for seconds in ASK_AGAIN_SECONDS:
        try:
            return await holder_link.connect(ref.socket)
        except TimeoutError:
            return None
        except OSError:
            if not await asyncio.to_thread(holder_files.is_held, ref.directory):
                return None
            await asyncio.to_thread(holder_files.ask_to_listen, ref.directory, ref.tag, ref.socket)
            await asyncio.sleep(seconds)
    return None


async def _released(ref: RunRef) -> None:
    """The next run uses the same socket; the holder says goodbye before it leaves."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while await asyncio.to_thread(holder_files.is_held, ref.directory):
        if time.monotonic() > deadline:
            log.warning("a holder does not leave", extra={"tag": ref.tag})
            return
        await asyncio.sleep(RELEASE_SECONDS)


def _ended(ref: RunRef, engine: Observe, output: RunOutput, record: dict[str, Any] | None) -> Ended:
    is_killed = output.outcome is None and (ref.directory / KILLED).exists()
    if is_killed:
        output.take(
            RunOutcome("cancelled", "", output.conversation, "it was killed · bullpen kill")
        )
    if record is None:
        holder = holder_files.find_holder(ref.directory, ref.tag)
        if holder is not None:
            holder_files.end_orphan(holder)
        lost = RunOutcome("engine_error", "", output.conversation, "its holder was killed")
        return Ended(
            output.outcome or lost,
            time.time(),
            None,
            None,
            is_lost=output.outcome is None,
            is_killed=is_killed,
        )
    ended = holder_files.parse_exit(record)
    outcome = output.outcome
    if outcome is None:
        errors = tail(ref.directory / ERRORS, ERROR_BYTES)
        outcome = engine.outcome_of_exit(ended.code, ended.signal, errors)
    return Ended(outcome, ended.at, ended.code, ended.signal, is_killed=is_killed)


def tail(path: Path, size: int) -> str:
    """The end of a file, as text; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - size))
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Fact:
    """Something a run said, and where in its log that ends; `line` None: nothing worth telling."""

    offset: int
    line: Line | None


class LogReader:
    """What the log of a run says, as far as it is written in whole lines. At its limit the holder
    puts it aside and begins another one; what it puts aside later replaces the first."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self.path = path
        self._reader = reader
        self._inode, self._position = 0, 0  # the file that is being read, and how far it is
        self._offset = 0  # behind the last whole line, of all that was read
        self._rest = b""
        self._is_too_long = False  # the line that is being read

    def facts(self) -> list[Fact]:
        """The next ones; empty when there are no more yet. Reads the disk."""
        return [fact for line in self._lines() for fact in self._facts_of(line)]

    def last(self) -> list[Fact]:
        """Of a run that is over: what it wrote without ending the line."""
        line, self._rest = self._rest, b""
        return self._facts_of(line) if line else []

    def _facts_of(self, line: bytes) -> list[Fact]:
        self._offset += len(line) + 1
        lines = () if self._is_too_long else self._reader.read(line)
        self._is_too_long = False
        return [Fact(self._offset, each) for each in lines] or [Fact(self._offset, None)]

    def _lines(self) -> list[bytes]:
        while piece := self._piece():
            self._rest += piece
            if b"\n" in piece:
                break
            if len(self._rest) > MOST_LINE_BYTES:
                self._offset += len(self._rest)
                self._rest, self._is_too_long = b"", True
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _piece(self) -> bytes:
        """What comes next, of the older file first."""
        with contextlib.ExitStack() as stack:
            # The newer is opened first: one that is put aside in this moment is both then.
            newer = _opened(stack, self.path)
            files = _opened(stack, self.path.with_name(f"{self.path.name}.1")) | newer
            inodes = list(files)
            for inode in inodes[inodes.index(self._inode) if self._inode in files else 0 :]:
                if inode != self._inode:
                    self._inode, self._position = inode, 0
                files[inode].seek(self._position)
                if piece := files[inode].read(PIECE_BYTES):
                    self._position += len(piece)
                    return piece
        return b""


def _opened(stack: contextlib.ExitStack, path: Path) -> dict[int, BinaryIO]:
    """The file by its inode; nothing if there is none."""
    try:
        file = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return {}
    return {os.fstat(file.fileno()).st_ino: file}
