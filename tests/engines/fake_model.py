"""What the three fakes of a model API share: a server on loopback that the prompt scripts.

The language is in `script.py`. A fake knows one API: how to read a conversation (`read`), and how
to write an answer (a `Writer`). Everything else is here: finding the place in the script, holding,
refusing, cutting, recording.

    with FakeAnthropic() as model:
        ... run a CLI against model.url with the prompt "[[hold a ; say hi]]"
        model.wait_held("a"); model.release("a")
        assert model.turns[-1].session == ...
"""

import contextlib
import json
import re
import select
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.engines.script import (
    PLAIN,
    Answer,
    BadScript,
    Cut,
    Hold,
    Next,
    Say,
    Slow,
    Status,
    Step,
    Think,
    Tool,
    find_script,
    unnested,
)

INPUT_TOKENS = 100
OUTPUT_TOKENS = 10

CUT_OFF = "half an ans"  # what was said when the connection broke

_SECRET = ("authorization", "x-api-key", "x-goog-api-key", "cookie")
SECONDS = 240.0  # a real program has to start before it asks, on a busy machine
HELD_SECONDS = 600.0
_FIELD = re.compile(r"\$\w+")


@dataclass(frozen=True)
class Entry:
    """One piece of a conversation, in order: who, and the text if a person or a tool wrote it."""

    who: str  # "user", "model" or "result"
    text: str = ""


@dataclass
class ModelRequest:
    """A request as it came. `outcome` is None while it is being answered.

    Then: answered, refused, cut (both by the script), dropped (the CLI hung up), unknown (a path
    that the fake does not serve) or bad (the script is not in the language).
    """

    path: str
    headers: dict[str, str]  # names in lower case; without keys
    body: Any
    side: bool = False  # a title, a summary: what the CLI asks for by itself
    outcome: str | None = None
    status: int = 200
    usage: tuple[int, int] = (0, 0)  # tokens in and out, as the CLI counts them

    @property
    def session(self) -> str | None:
        return self.headers.get("x-claude-code-session-id") or self.headers.get("session-id")


class Dropped(Exception):
    """The CLI hung up, or the test ended."""


class Writer(ABC):
    """Writes one answer in one API's form. Nothing is sent before the first piece of content."""

    def __init__(self, wire: "Wire", body: Any, stream: bool) -> None:
        self.wire = wire
        self.body = body
        self.stream = stream
        self.usage = (0, 0)  # tokens in and out that the CLI was told of so far

    @abstractmethod
    def say(self, pieces: list[str], pause: float = 0.0, whole: bool = True) -> None: ...

    @abstractmethod
    def think(self, text: str) -> None: ...

    @abstractmethod
    def tool(self, name: str, value: dict[str, Any]) -> None: ...

    @abstractmethod
    def finish(self, called: bool) -> None: ...

    @abstractmethod
    def refuse(self, status: int, message: str, headers: dict[str, str]) -> None: ...


class FakeModel(ABC):
    """A server on loopback; each request is answered in a thread, as the prompt says."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.mistakes: list[str] = []
        self._changed = threading.Condition()
        self._held: Counter[str] = Counter()
        self._released: set[str] = set()
        self._spent: Counter[tuple[str | None, int, Step]] = Counter()
        self.held_seconds = HELD_SECONDS  # that an answer waits at most for the test
        self._closed = False
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.fake = self
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self.close()
        assert failure or not self.mistakes, "\n".join(self.mistakes)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def turns(self) -> list[ModelRequest]:
        """The requests for an answer to a prompt: not titles, not summaries."""
        return [asked for asked in self.requests if not asked.side and asked.outcome != "unknown"]

    @property
    def usage(self) -> tuple[int, int]:
        """Tokens in and out that all answers together said they cost, also those cut off."""
        return sum(asked.usage[0] for asked in self.requests), sum(
            asked.usage[1] for asked in self.requests
        )

    def release(self, name: str = "hold") -> None:
        """Let every answer that waits in `hold NAME` go on, now and later."""
        with self._changed:
            self._released.add(name)
            self._changed.notify_all()

    def holds(self, name: str) -> bool:
        """Whether an answer has come to `hold NAME`."""
        with self._changed:
            return self._held[name] > 0

    def wait_held(self, name: str = "hold", times: int = 1, seconds: float = SECONDS) -> None:
        """Wait until so many answers have come to `hold NAME`."""
        self.wait(lambda: self._held[name] >= times, seconds)

    def wait(self, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait for a condition on what was asked; it is looked at when something changed."""
        with self._changed:
            if not self._changed.wait_for(condition, seconds):
                seen = [(asked.path, asked.outcome) for asked in self.requests]
                raise AssertionError(f"not within {seconds} s; asked: {seen}")

    @abstractmethod
    def write(self, asked: ModelRequest, wire: "Wire") -> Writer | None:
        """A writer for a request that wants an answer; None when it was answered, or is unknown."""

    @abstractmethod
    def read(self, body: Any) -> list[Entry]:
        """The conversation in a request."""

    def side(self, body: Any) -> str | None:
        """The answer to what the CLI asks for by itself; None: it is a turn, and scripted."""
        del body
        return None

    def _serve(self, asked: ModelRequest, wire: "Wire") -> None:
        with self._changed:
            self.requests.append(asked)
            self._changed.notify_all()
        outcome = "dropped"
        try:
            outcome = self._answer(asked, wire)
        except (Dropped, OSError):
            wire.hang_up()
        finally:
            with self._changed:
                asked.outcome = outcome
                self._changed.notify_all()

    def _answer(self, asked: ModelRequest, wire: "Wire") -> str:
        writer = self.write(asked, wire)
        if writer is None:
            if wire.begun:
                return "answered"
            asked.status = 404
            wire.send_json(404, {"error": {"message": f"the fake has no {asked.path}"}})
            return "unknown"
        try:
            side = self.side(asked.body)
            asked.side = side is not None
            conversation = self.read(asked.body) if side is None else []
            answer = (Say(side),) if side is not None else fill(place(conversation), conversation)
        except BadScript as error:
            asked.status = 400
            writer.refuse(400, f"bad script: {error}", {})
            return "bad"
        outcome = self._play(answer, asked, writer)
        asked.usage = writer.usage  # what it drops itself, Claude does not count
        return outcome

    def _play(self, answer: Answer, asked: ModelRequest, writer: Writer) -> str:
        seconds = 0.0
        for step in answer:
            match step:
                case Say(text):
                    pieces = text.split(" ") if seconds else [text]
                    pieces = [piece + " " for piece in pieces[:-1]] + pieces[-1:]
                    writer.say(pieces, seconds / len(pieces))
                    seconds = 0.0
                case Think(text):
                    writer.think(text)
                case Tool(name, value):
                    writer.tool(name, value)
                case Hold(name):
                    self._hold(name, writer.wire)
                case Slow(seconds):
                    pass
                case Status(code, retry_after, times):
                    if self._due(asked, step, times):
                        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
                        asked.status = code
                        writer.refuse(code, f"scripted {code}", headers)
                        return "refused"
                case Cut(times):
                    if self._due(asked, step, times):
                        writer.say([CUT_OFF], whole=False)
                        writer.wire.hang_up()
                        return "cut"
                case Next():
                    raise AssertionError("an answer ends at `next`")
        writer.finish(any(isinstance(step, Tool) for step in answer))
        return "answered"

    def _due(self, asked: ModelRequest, step: Step, times: int | None) -> bool:
        """Whether a step that happens only so many times happens once more, for this prompt."""
        users = [entry for entry in self.read(asked.body) if entry.who == "user"]
        scripts = sum(find_script(entry.text) is not None for entry in users)
        key = asked.session, scripts, step
        with self._changed:
            self._spent[key] += 1
            return times is None or self._spent[key] <= times

    def _hold(self, name: str, wire: "Wire") -> None:
        deadline = time.monotonic() + self.held_seconds
        with self._changed:
            self._held[name] += 1
            self._changed.notify_all()
            while name not in self._released:
                self._changed.wait(0.02)
                if self._closed or wire.gone() or time.monotonic() > deadline:
                    raise Dropped


def place(conversation: list[Entry]) -> Answer:
    """What to answer now: the script of the last prompt, after the answers given since."""
    given = 0
    after = Entry("")
    for entry in reversed(conversation):
        # Claude keeps the whole blocks of an answer that was cut off, and asks for the rest.
        if entry.who == "model" and after.who != "model" and "cut off mid-stream" not in after.text:
            given += 1
        after = entry
        if entry.who == "user":
            answers = find_script(entry.text)
            if answers is not None:
                return answers[given] if given < len(answers) else (Say(PLAIN),)
            # An interrupted prompt is not taken up again by a later one that has no script.
            if "[Request interrupted" in entry.text:
                break
    return (Say(PLAIN),)


def fill(answer: Answer, conversation: list[Entry]) -> Answer:
    """With what tools said before in the place of `$NAME`."""
    return tuple(
        replace(
            step, input={key: _filled(value, conversation) for key, value in step.input.items()}
        )
        if isinstance(step, Tool)
        else step
        for step in answer
    )


def _filled(value: Any, conversation: list[Entry]) -> Any:
    if not isinstance(value, str) or not _FIELD.fullmatch(value):
        return unnested(value)
    for entry in reversed(conversation):
        if entry.who == "result":
            with contextlib.suppress(ValueError):
                said = json.loads(entry.text)
                if isinstance(said, dict) and value[1:] in said:
                    return said[value[1:]]
    raise BadScript(f"no tool said {value}")


class Wire:
    """The connection of one request."""

    def __init__(self, handler: "_Handler") -> None:
        self._handler = handler
        self.begun = False

    def begin(self, status: int, kind: str, headers: dict[str, str] | None = None) -> None:
        """The head of an answer that ends when the connection does."""
        self.begun = True
        handler = self._handler
        handler.close_connection = True
        handler.send_response(status)
        for name, value in {"content-type": kind, "connection": "close", **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()

    def send(self, data: bytes) -> None:
        self._handler.wfile.write(data)

    def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.begin(
            status, "application/json", {"content-length": str(len(data)), **(headers or {})}
        )
        self.send(data)

    def send_event(self, value: Any, name: str = "") -> None:
        """A server-sent event; the first one begins the stream."""
        if not self.begun:
            self.begin(200, "text/event-stream")
        head = f"event: {name}\n" if name else ""
        self.send(f"{head}data: {json.dumps(value)}\n\n".encode())

    def gone(self) -> bool:
        """Whether the CLI hung up."""
        connection = self._handler.connection
        if not select.select([connection], [], [], 0)[0]:
            return False
        with contextlib.suppress(OSError):
            return connection.recv(1, socket.MSG_PEEK) == b""
        return True

    def hang_up(self) -> None:
        """Break the connection: a reset, not an orderly end."""
        linger = b"\x01\0\0\0\0\0\0\0"
        with contextlib.suppress(OSError):
            self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._handler.connection.close()
        self._handler.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    fake: FakeModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A CLI that was killed is no news; a mistake in a fake fails the test."""
        if not isinstance(sys.exception(), OSError):
            self.fake.mistakes.append(traceback.format_exc())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Tests read `requests`."""

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(data) if data.startswith(b"{") else data.decode("latin-1")
        asked = ModelRequest(
            self.path, {k: v for k, v in headers.items() if k not in _SECRET}, body
        )
        self.server.fake._serve(asked, Wire(self))

    do_GET = do_HEAD = do_PUT = do_POST
