"""Too many connections, too many bytes, and requests that are none: no caller costs the hub its
descriptors or its memory, and the others are answered all the while."""

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from bullpen.home.paths import HUB
from bullpen.hub.http.guard import AGENT_REQUESTS
from tests.hub.http.http import Where, ask, connect, raw
from tests.hub.pen import Pen, change_hub
from tests.hub.raw_requests import Fuzz
from tests.waiting import wait_until

MIB = 1 << 20
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))"
HALF_OPEN = {
    "nothing is sent": b"",
    "half a head": b"POST /agents HTTP/1.1\r\nHost: x\r\n",
    "a body that never comes": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    "answered and kept open": b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def port_of(pen: Pen) -> int:
    return int(json.loads((pen.root / "hub.json").read_text())["port"])


def token_of(pen: Pen, name: str) -> str:
    """As its program has it; one that has just been executed has no variables yet."""
    environ = Path(f"/proc/{pen.program(name)}/environ")
    wait_until(lambda: b"BULLPEN_TOKEN=" in environ.read_bytes())
    variables = environ.read_bytes().split(b"\0")
    return dict(each.split(b"=", 1) for each in variables if each)[b"BULLPEN_TOKEN"].decode()


def answers_all(pen: Pen) -> bool:
    """Whether the owner's `list` works, and who connects to the port is answered."""
    return pen.cli("list").code == 0 and ask(port_of(pen), "GET", "/status").status == 200


@pytest.mark.slow
@pytest.mark.parametrize("how", HALF_OPEN)
@pytest.mark.few(1)
def test_x8_more_connections_than_descriptors_leave_the_owner_answered(pen: Pen, how: str) -> None:
    change_hub(pen, FEW_FILES)
    with contextlib.ExitStack() as stack:
        for number in range(400):  # the hub has 256 descriptors
            talk = stack.enter_context(connect(port_of(pen)))
            with contextlib.suppress(ConnectionError):
                talk.sendall(HALF_OPEN[how])
            assert number % 100 or answers_all(pen)
        assert answers_all(pen)
        pen.run(name="amy")
    pen.stop("amy")
    wait_until(lambda: descriptors(pen.pid) < 100)


@pytest.mark.slow
def test_x8_without_limits_of_connections_the_owner_is_not_answered(pen: Pen) -> None:
    """An attack counts only if it works without the defence."""
    everybody = "from bullpen.component import connection, http_server as served"
    everybody += "; connection.HEAD_SECONDS = 600"
    everybody += "; served.HttpServer._has_room = lambda *_: True"
    change_hub(pen, f"{FEW_FILES}\n{everybody}")
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(port_of(pen)))
        # They stand in the queue of the listener until the hub has come round to taking them.
        wait_until(lambda: not pen.answers())
    wait_until(pen.answers)


@pytest.mark.slow
def test_x8_one_agent_cannot_take_the_place_of_everybody_at_the_port(pen: Pen) -> None:
    change_hub(pen, "from bullpen.hub.http import guard; guard.AGENT_REQUESTS = 8")
    pen.run(name="amy")
    pen.run(name="bob")
    amy, bob = ({"Authorization": f"Bearer {token_of(pen, name)}"} for name in ("amy", "bob"))
    port, stream = port_of(pen), "GET /events/stream HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n"
    asked = stream.format(f"Authorization: {amy['Authorization']}").encode()
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            talk = stack.enter_context(connect(port))
            talk.sendall(asked)
            assert b" 200 " in talk.recv(1 << 12)
        refused = ask(port, "GET", "/agents", amy)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert ask(port, "GET", "/agents", bob).status == 200
    wait_until(lambda: ask(port, "GET", "/agents", amy).status == 200)


# ── bytes ──


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory(pid: int, field: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


@contextlib.contextmanager
def uploads(
    where: Where, count: int, path: str, token: str, size: int, quiet_seconds: float = 1.0
) -> Iterator[int]:
    """So many bodies at once, each but for its last byte, as far as the hub takes them: until it
    has taken nothing for so long. How many bytes it took."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    data = memoryview(f"{head}Content-Length: {size}\r\n\r\n".encode() + b'"' + b"x" * (size - 2))
    sent = 0
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as waiting:
        left = {stack.enter_context(connect(where)): data for _ in range(count)}
        for talk in left:
            talk.setblocking(False)
            waiting.register(talk, selectors.EVENT_WRITE)
        while left and (ready := waiting.select(quiet_seconds)):
            for key, _ in ready:
                talk = key.fileobj
                assert isinstance(talk, socket.socket)
                try:
                    number = talk.send(left[talk])
                except ConnectionError:
                    number = len(left[talk])
                sent += number
                left[talk] = left[talk][number:]
                if not left[talk]:
                    waiting.unregister(talk)
                    del left[talk]
        yield sent


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/agents/amy/hooks", "/v1/logs"])
@pytest.mark.parametrize(
    "count", [40, pytest.param(300, marks=pytest.mark.storm)], ids=["40", "300"]
)
@pytest.mark.few(1)
def test_x8_many_large_bodies_of_one_agent_cost_little_memory(
    pen: Pen, path: str, count: int
) -> None:
    pen.run(name="amy")
    token, port, before = token_of(pen, "amy"), port_of(pen), memory(pen.pid)
    with uploads(port, count, path, token, 7 * MIB):
        # Of 280 MiB at least.
        assert memory(pen.pid) - before < 150 * MIB
        # Others are answered, and so is she if it is not much.
        assert answers_all(pen)
        small = ask(port, "POST", "/agents/amy/hooks", body={"hook_event_name": "X"}, token=token)
        assert small.status == 200 or count > AGENT_REQUESTS
    assert memory(pen.pid, "VmHWM") - before < 200 * MIB
    # What is free goes back to the system: without that it is some 50 MiB, sometimes more.
    wait_until(lambda: memory(pen.pid) - before < 32 * MIB)


@pytest.mark.slow
def test_x8_without_a_budget_of_bytes_all_bodies_are_in_memory(pen: Pen) -> None:
    """An attack counts only if it works without the defence."""
    unlimited = "from bullpen.component import budget"
    change_hub(pen, f"{unlimited}\nasync def take(*_): pass\nbudget.RequestBudget.take = take")
    pen.run(name="amy")
    token, port, before = token_of(pen, "amy"), port_of(pen), memory(pen.pid)
    with uploads(port, 25, "/agents/amy/hooks", token, 7 * MIB, quiet_seconds=60.0):
        wait_until(lambda: memory(pen.pid) - before > 150 * MIB)


@pytest.mark.slow
def test_x8_bodies_that_fit_one_after_the_other_are_all_taken(pen: Pen) -> None:
    """Eight of 7 MiB are more than one agent may have at once; those that wait are not lost."""
    pen.run(name="amy")
    token, body = token_of(pen, "amy"), b'"' + b"x" * (7 * MIB) + b'"'
    head = (
        f"POST /agents/amy/hooks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    )
    data = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(connect(port_of(pen))) for _ in range(8)]
        for talk in talks:
            talk.sendall(data)
            talk.settimeout(60)
        assert {talk.recv(13) for talk in talks} == {b"HTTP/1.1 200 "}


@pytest.mark.slow
def test_b6_the_body_of_a_request_without_a_token_is_not_read(pen: Pen) -> None:
    pen.run(name="amy")
    port, before = port_of(pen), memory(pen.pid)
    head = b"POST /agents/amy/hooks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"
    assert raw(port, head, one=True).startswith(b"HTTP/1.1 401 ")  # before any of it has come
    with uploads(port, 40, "/agents/amy/hooks", "", 7 * MIB):
        assert memory(pen.pid) - before < 64 * MIB
        assert answers_all(pen)


# ── requests that are none ──


class Witness(threading.Thread):
    """Somebody else, who asks all the while; what was not answered well is in `problems`."""

    def __init__(self, pen: Pen, token: str) -> None:
        super().__init__(daemon=True)
        self.doors = ((pen.home.socket(HUB), "/status", ""), (port_of(pen), "/agents", token))
        self.answers = 0
        self.problems: list[str] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(0.005):
            for where, path, token in self.doors:
                try:
                    answer = ask(where, "GET", path, token=token)
                except (OSError, HTTPException) as error:
                    self.problems.append(f"{path}: {error!r}")
                    continue
                self.answers += 1
                if answer.status != 200:
                    self.problems.append(f"{path}: {answer}")

    def result(self) -> list[str]:
        self.is_over.set()
        self.join(60)
        return self.problems


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds", [3, pytest.param(60, marks=pytest.mark.storm)], ids=["short", "long"]
)
def test_x8_what_is_no_request_disturbs_nobody_and_leaves_nothing(pen: Pen, seconds: int) -> None:
    pen.run(name="amy")
    pen.run(name="bob")
    hub, tokens = pen.pid, [token_of(pen, name) for name in ("amy", "bob")]
    doors = (port_of(pen), pen.session("amy") / "api" / "hub.sock", pen.home.socket(HUB))
    Fuzz(0, doors, (tokens[0],)).play(20)  # what is loaded with the first requests stays loaded
    before = descriptors(hub), memory(hub)
    witness = Witness(pen, tokens[1])
    witness.start()
    deadline = time.monotonic() + seconds
    for seed in range(1, 100_000):
        with contextlib.closing(Fuzz(seed, doors, (tokens[0],))) as fuzz:
            fuzz.play(50)
        assert pen.pid == hub and not witness.problems, f"seed {seed}: {witness.problems}"
        if time.monotonic() > deadline:
            break
    assert witness.result() == []
    assert witness.answers > 0
    assert pen.logged("a request failed") == []
    wait_until(lambda: descriptors(hub) <= before[0] + 8)
    wait_until(lambda: memory(hub) < before[1] + 100 * MIB)
    assert {name for name, agent in pen.agents().items() if agent["running"]} == {"amy", "bob"}
