"""One run of a task on pipes: started, followed to its end, stopped.

The holder has it; everything it says is in the run's log before anybody is told of it. So a run is
followed by reading that log from its beginning, and a hub that comes after a crash reads the same.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from bullpen.engines.base import Engine, Reader
from bullpen.engines.lines import Begun, Line, Outcome, Said, Spent, Used
from bullpen.errors import BullpenError, Kind
from bullpen.hub import held, holders
from bullpen.hub.factory import Factory
from bullpen.model.task_shown import Progress
from bullpen.paths import KILLED

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
class Place:
    """Where a run is, and what tells it from another."""

    directory: Path
    tag: str
    socket: Path

    def began(self) -> bool:
        """Whether its program was ever started. Asks the disk."""
        return (
            held.find_holder(self.directory, self.tag) is not None
            or held.find_exit(self.directory, self.tag) is not None
            or held.is_held(self.directory)
        )


@dataclass
class Told:
    """What a run has said so far."""

    conversation: str = ""
    texts: deque[str] = field(default_factory=deque)
    characters: int = 0
    tool: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    warnings: list[str] = field(default_factory=list)
    outcome: Outcome | None = None

    def take(self, line: Line | None) -> None:
        """One more fact."""
        match line:
            case Begun():
                self.conversation = line.conversation or self.conversation
                self.warnings += line.problems
            case Said():
                self._say(f"{NEW_LINE if line.is_line else NEW_TEXT}{line.text}")
                self.tool = ""
            case Used():
                self.tool = f"{line.tool} ({line.detail})" if line.detail else line.tool
            case Spent():
                self.input_tokens += line.input_tokens
                self.output_tokens += line.output_tokens
            case Outcome():
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

    @property
    def said(self) -> str:
        return "".join(text for text in self.texts if text != NEW_TEXT).strip("\n")

    @property
    def text(self) -> str:
        """The result; of a run without one, what was said."""
        if self.outcome is not None and self.outcome.text:
            return self.outcome.text
        return self.said

    @property
    def progress(self) -> Progress:
        return Progress(
            text=self.said,
            tool=self.tool,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


@dataclass(frozen=True)
class Ended:
    """How a run ended: `outcome` is always there, also for one that said nothing."""

    outcome: Outcome
    at: float
    code: int | None
    signal: int | None
    is_lost: bool = False


async def start(factory: Factory, request: dict[str, Any], place: Place) -> None:
    """Start it. Fine if it was started already: by a hub that was killed before it could know."""
    asked = {**request, "socket": str(place.socket), "tag": place.tag}
    try:
        await factory.hold(asked)
    except BullpenError as error:
        if error.kind is Kind.CONFLICT and await asyncio.to_thread(place.began):
            return
        raise


async def follow(place: Place, engine: Engine, told: Told, news: Callable[[], None]) -> Ended:
    """Read what it says until it is over; `news` is called whenever there is more."""
    reader = LogReader(place.directory / OUTPUT, Reader(engine))
    more = asyncio.Event()
    tries = 0
    while True:
        record = await asyncio.to_thread(held.find_exit, place.directory, place.tag)
        if record is not None or not await asyncio.to_thread(held.is_held, place.directory):
            break
        try:
            link = await holders.connect(place.socket)
            await _listen(link, place, reader, told, news, more)
            tries = 0
        except (OSError, TimeoutError):
            # Just ended, it does not answer, or its log cannot be read: none of it is death.
            await asyncio.to_thread(held.ask_to_listen, place.directory, place.tag, place.socket)
            await asyncio.sleep(ASK_AGAIN_SECONDS[min(tries, len(ASK_AGAIN_SECONDS) - 1)])
            tries += 1
    # The holder writes its record before it lets go of the directory.
    record = await asyncio.to_thread(held.find_exit, place.directory, place.tag)
    await _read(reader, told, news)
    for fact in await asyncio.to_thread(reader.last):
        told.take(fact.line)
    await _released(place)
    return await asyncio.to_thread(_ended, place, engine, told, record)


async def _listen(
    link: holders.Link,
    place: Place,
    reader: "LogReader",
    told: Told,
    news: Callable[[], None],
    more: asyncio.Event,
) -> None:
    """For as long as the connection lasts."""
    over = asyncio.Event()

    def leave(*_: object) -> None:
        over.set()
        more.set()

    if link.greeting.result().get("tag") != place.tag:
        link.close()
        raise BullpenError("another program is held under that name", kind=Kind.CONFLICT)
    link.follow(leave, leave)
    try:
        await link.listen(more.set)
        while not over.is_set():
            await _read(reader, told, news)
            wait = LINGER_SECONDS if told.outcome is not None else None
            try:
                async with asyncio.timeout(wait):
                    await more.wait()
            except TimeoutError:
                await link.ask(b"X", {"grace": 1})  # its result stands
            more.clear()
    finally:
        link.close()


async def _read(reader: "LogReader", told: Told, news: Callable[[], None]) -> None:
    while facts := await asyncio.to_thread(reader.facts):
        for fact in facts:
            told.take(fact.line)
        news()


async def stop(place: Place, grace: float) -> None:
    """Tell it to end; fine if it has ended, or ends in this moment."""
    link = await _reach(place)
    if link is None:
        return
    try:
        if link.greeting.result().get("tag") == place.tag:
            await link.ask(b"X", {"grace": grace})
    except (OSError, TimeoutError, BullpenError) as error:
        log.warning("cannot stop a run", extra={"tag": place.tag, "why": str(error)})
    finally:
        link.close()


async def end(place: Place, grace: float) -> None:
    """The same, and wait until it has ended."""
    await stop(place, grace)
    await _released(place)


async def _reach(place: Place) -> holders.Link | None:
    """A link to its holder; None if it is gone, or does not answer. One whose socket somebody
    deleted listens again when it is told to."""
    for seconds in ASK_AGAIN_SECONDS:
        try:
            return await holders.connect(place.socket)
        except TimeoutError:
            return None
        except OSError:
            if not await asyncio.to_thread(held.is_held, place.directory):
                return None
            await asyncio.to_thread(held.ask_to_listen, place.directory, place.tag, place.socket)
            await asyncio.sleep(seconds)
    return None


async def _released(place: Place) -> None:
    """The next run uses the same socket; the holder says goodbye before it leaves."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while await asyncio.to_thread(held.is_held, place.directory):
        if time.monotonic() > deadline:
            log.warning("a holder does not leave", extra={"tag": place.tag})
            return
        await asyncio.sleep(RELEASE_SECONDS)


def _ended(place: Place, engine: Engine, told: Told, record: dict[str, Any] | None) -> Ended:
    if told.outcome is None and (place.directory / KILLED).exists():
        told.take(Outcome("cancelled", "", told.conversation, "it was killed · bullpen kill"))
    if record is None:
        found = held.find_holder(place.directory, place.tag)
        if found is not None:
            held.end_orphan(found)
        lost = Outcome("claude_error", "", told.conversation, "its holder was killed")
        return Ended(told.outcome or lost, time.time(), None, None, is_lost=told.outcome is None)
    ended = held.parse_exit(record)
    outcome = told.outcome
    if outcome is None:
        said = tail(place.directory / ERRORS, ERROR_BYTES)
        outcome = engine.outcome_of_exit(ended.code, ended.signal, said)
    return Ended(outcome, ended.at, ended.code, ended.signal)


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
        self._inode, self._place = 0, 0  # the file that is being read, and how far it is
        self._offset = 0  # behind the last whole line, of all that was read
        self._rest = b""
        self._is_too_long = False  # the line that is being read

    def facts(self) -> list[Fact]:
        """The next ones; empty when there are no more yet. Reads the disk."""
        found = []
        for line in self._lines():
            found += self._facts_of(line)
        return found

    def last(self) -> list[Fact]:
        """Of a run that is over: what it wrote without ending the line."""
        line, self._rest = self._rest, b""
        return self._facts_of(line) if line else []

    def _facts_of(self, line: bytes) -> list[Fact]:
        self._offset += len(line) + 1
        said = () if self._is_too_long else self._reader.read(line)
        self._is_too_long = False
        return [Fact(self._offset, each) for each in said] or [Fact(self._offset, None)]

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
                    self._inode, self._place = inode, 0
                files[inode].seek(self._place)
                if piece := files[inode].read(PIECE_BYTES):
                    self._place += len(piece)
                    return piece
        return b""


def _opened(stack: contextlib.ExitStack, path: Path) -> dict[int, BinaryIO]:
    """The file by its inode; nothing if there is none."""
    try:
        file = stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return {}
    return {os.fstat(file.fileno()).st_ino: file}
