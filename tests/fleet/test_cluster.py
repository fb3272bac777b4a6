"""L6: three servers and two machines in networks of their own. While messages and tasks travel,
servers, hubs and whole machines are killed and cables are cut: nothing that was acknowledged is
lost, nothing is there twice, and messages keep their order."""

import contextlib
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from bullpen.hot import wire
from bullpen.model.message import new_id
from tests.fleet.cluster import SERVERS, Cluster, made_cluster
from tests.fleet.mail import once, rows
from tests.hub.pen import made_pen
from tests.hub.tasks.desk import made_desk
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.storm

PROGRAM = """
prompt = prompt.splitlines()[-1]
say("done")
result("did " + prompt)
"""
MESSAGE_SECONDS, MESSAGES_OF_A_TASK = 0.05, 40
PASSED_SECONDS = 180.0


class Traffic:
    """Whoever writes on h1, one after the other, each until it is acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = once("message")
        self.h1, self.h2 = cluster.hosts["h1"], cluster.hosts["h2"]
        self.messages: list[str] = []  # acknowledged, in their order
        self.tasks: list[str] = []
        self.refused: list[tuple[int, object]] = []  # by a hub that cannot keep it just now
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(60)

    def _write(self) -> None:
        number = 0
        while not self._over.wait(MESSAGE_SECONDS):
            number += 1
            body = {"text": f"{self.name} {number:05}", "id": new_id()}
            if self._surely("/agents/h2%2Famy/messages", body):
                self.messages.append(str(body["text"]))
            if number % MESSAGES_OF_A_TASK == 0:
                body = {"prompt": f"task {number}", "fleet": True, "request": uuid.uuid4().hex}
                if answer := self._surely("/tasks", body):
                    self.tasks.append(str(answer["task_id"]))

    def _surely(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """Asked until there is an answer, and the same each time."""
        while not self._over.wait(MESSAGE_SECONDS):
            with contextlib.suppress(wire.HubError, OSError):
                status, answer = self.h1.ask("POST", path, body)
                if status < 300:
                    return answer
                self.refused.append((status, answer))
        return {}

    def arrived(self) -> list[str]:
        select = "SELECT text FROM messages WHERE recipient = 'amy' ORDER BY number"
        return [text for (text,) in rows(self.h2, select) if text.startswith(self.name)]

    def passes(self) -> None:
        """What is written from now on arrives."""
        written = len(self.messages)
        try:
            wait_until(lambda: len(self.messages) > written, PASSED_SECONDS)
            last = self.messages[-1]
            wait_until(lambda: last in self.arrived(), PASSED_SECONDS)
        except AssertionError as error:
            logs = [pen.logged()[-8:] for pen in (self.h1, self.h2)]
            counts = len(self.messages), len(self.arrived()), self._thread.is_alive()
            raise AssertionError((counts, self.refused[-3:], logs)) from error

    def ends(self, id: str) -> list[str]:
        events = self.h1.events("", "task.state")
        states = [event["state"] for event in events if event["task"] == id]
        return [state for state in states if state in ("completed", "failed", "cancelled")]

    def check(self) -> None:
        wait_until(lambda: self.messages[-1] in self.arrived(), PASSED_SECONDS)
        assert self.arrived() == self.messages
        assert all(status == 503 for status, _ in self.refused), self.refused
        wait_until(lambda: all(self.ends(id) for id in self.tasks), PASSED_SECONDS)
        assert [self.ends(id) for id in self.tasks] == [["completed"]] * len(self.tasks)
        for pen in (self.h1, self.h2):
            wait_until(
                lambda pen=pen: rows(pen, "SELECT 1 FROM fleet_outbox") == [], PASSED_SECONDS
            )


def kill_a_server(name: str) -> Callable[[Traffic], None]:
    def act(traffic: Traffic) -> None:
        traffic.cluster.kill_server(name)
        traffic.passes()  # two are enough
        traffic.cluster.start_server(name)

    return act


def kill_all_servers(traffic: Traffic) -> None:
    for name in SERVERS:
        traffic.cluster.kill_server(name)
    for name in SERVERS:
        traffic.cluster.start_server(name)


def kill_a_hub(name: str) -> Callable[[Traffic], None]:
    def act(traffic: Traffic) -> None:
        traffic.cluster.kill_hub(name)
        traffic.cluster.start_hub(name)

    return act


def kill_the_receivers_machine(traffic: Traffic) -> None:
    """The hub, and every agent and holder."""
    pids = traffic.h2.processes()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids)))
    traffic.cluster.start_hub("h2")


def cut_off_a_machine(name: str) -> Callable[[Traffic], None]:
    def act(traffic: Traffic) -> None:
        traffic.cluster.networks.cut(name)
        wait_until(lambda: not traffic.cluster.is_connected(name))
        written = len(traffic.messages)
        wait_until(lambda: len(traffic.messages) > written + 20)  # acknowledged all the same
        traffic.cluster.networks.heal(name)

    return act


def cut_off_a_server(name: str) -> Callable[[Traffic], None]:
    def act(traffic: Traffic) -> None:
        traffic.cluster.networks.cut(name)
        traffic.passes()
        traffic.cluster.networks.heal(name)

    return act


FAULTS: dict[str, list[Callable[[Traffic], None]]] = {
    "each server is killed": [kill_a_server(name) for name in SERVERS],
    "all servers are killed": [kill_all_servers],
    "each server is cut off": [cut_off_a_server(name) for name in SERVERS],
    "the writer's hub is killed": [kill_a_hub("h1")] * 3,
    "the receiver's hub is killed": [kill_a_hub("h2")] * 3,
    "the receiver's machine is killed": [kill_the_receivers_machine],
    "the writer is cut off": [cut_off_a_machine("h1")] * 2,
    "the receiver is cut off": [cut_off_a_machine("h2")] * 2,
    "a hub is killed behind a cut, and a server beside it": [
        cut_off_a_machine("h2"),
        kill_a_hub("h2"),
        kill_a_server("n1"),
    ],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        made_desk(tmp_path_factory.mktemp("cluster")) as desk,
        made_pen() as h1,
        made_cluster(h1=h1, h2=desk.pen) as made,
    ):
        desk.pen.run("/bin/cat", name="amy")
        desk.program(PROGRAM)
        desk.agent("tim", walls=False)
        yield made


@pytest.mark.parametrize("name", FAULTS, ids=[name.replace(" ", "-") for name in FAULTS])
def test_l6_nothing_acknowledged_is_lost_or_doubled(cluster: Cluster, name: str) -> None:
    traffic = Traffic(cluster)
    with traffic.going_on():
        traffic.passes()
        for fault in FAULTS[name]:
            fault(traffic)
            traffic.passes()
    traffic.check()
    assert len(traffic.messages) > 20
