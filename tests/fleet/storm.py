"""Five machines at work while servers, hubs and machines are killed and cables are cut: who asks,
who writes, what is broken, and what came of it.

`python -m tests.fleet.storm TASKS MESSAGES` is a longer one than that of the suite, and prints it.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from bullpen.fleet.subjects import TASKS_STREAM
from bullpen.hot import wire
from bullpen.model.message import new_id
from tests.fleet.cluster import SERVERS, Cluster, made_cluster
from tests.fleet.mail import once, rows
from tests.hub.pen import Pen, made_pen
from tests.processes import alive
from tests.waiting import wait_until

HOSTS = ("h1", "h2", "h3", "h4", "h5")
ASKER = "h1"
AGENTS = 4  # of each machine
# Writes down that it has begun, and waits as long as somebody wants it to be found at work.
WORK = """
prompt=$(tail -n 1); echo "$prompt" >> {files}/runs; sleep 0.3
while [ -e {files}/hold ]; do touch {files}/held; sleep 0.1; done; echo done
"""
AGAIN_SECONDS = 0.05
PASSED_SECONDS = 240.0
COUNT_ENDS = """
    SELECT json_extract(data, '$.task'), COUNT(*) FROM events
    WHERE kind = 'task.state'
    AND json_extract(data, '$.state') IN ('completed', 'failed', 'cancelled')
    GROUP BY 1
"""


class Sender:
    """Somebody who sends one thing after the other, each until it is acknowledged, as far as it is
    allowed to."""

    def __init__(self, pen: Pen, path: str, make: Callable[[int], dict[str, object]]) -> None:
        self.acknowledged: list[tuple[dict[str, object], dict[str, object]]] = []
        self.refused: list[tuple[int, object]] = []  # by a hub that cannot keep it just now
        self.may = 0  # so many
        self._pen = pen
        self._path = path
        self._make = make
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def allow(self, count: int) -> None:
        self.may = max(self.may, count)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)

    @property
    def is_through(self) -> bool:
        return len(self.acknowledged) >= self.may

    def _send(self) -> None:
        while not self._over.is_set():
            if self.is_through:
                self._over.wait(AGAIN_SECONDS)
                continue
            body = self._make(len(self.acknowledged))
            while not self._over.is_set():
                with contextlib.suppress(wire.HubError, OSError):
                    status, answer = self._pen.ask("POST", self._path, body)
                    if status < 300:
                        self.acknowledged.append((body, answer))
                        break
                    self.refused.append((status, answer))
                self._over.wait(AGAIN_SECONDS)


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    tasks: int  # acknowledged
    ended_once: int
    begun_again: int  # of them, because a machine was dead or thought to be
    messages: int  # acknowledged
    arrived_once: int  # and in their order
    seconds: float


class Storm:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.hosts = cluster.hosts
        self.asker = Sender(self.hosts[ASKER], "/tasks", _task)
        self._name = once("message")
        # Each machine writes to the next one.
        names = list(self.hosts)
        self.receivers = dict(zip(names, (*names[1:], names[0]), strict=True))
        self.writers = {
            host: Sender(self.hosts[host], f"/agents/{to}%2Famy/messages", self._message)
            for host, to in self.receivers.items()
        }

    def run(
        self,
        tasks: int,
        messages: int,
        faults: "Mapping[str, Fault] | None" = None,
        told: Callable[[str], None] = str,
    ) -> Outcome:
        """One fault after the other, each while its share of them is under way."""
        faults = faults or FAULTS
        senders = [self.asker, *self.writers.values()]
        begun = time.monotonic()
        what = "nothing"
        for sender in senders:
            sender.start()
        try:
            for number, (what, fault) in enumerate(faults.items(), 1):
                self.asker.allow(tasks * number // len(faults))
                for writer in self.writers.values():
                    writer.allow(messages * number // len(faults) // len(self.writers))
                told(f"{time.monotonic() - begun:4.0f} s: {what}")
                fault(self)
                self.passes()
            wait_until(lambda: all(sender.is_through for sender in senders), PASSED_SECONDS)
            self._wait_for_all()
        except AssertionError as error:
            shown = json.dumps(self._state(), indent=1, default=str)
            raise AssertionError(f"{what}, and then: {error}\n{shown}") from error
        finally:
            for sender in senders:
                sender.stop()
        for sender in senders:
            assert all(status == 503 for status, _ in sender.refused), sender.refused
        return self._outcome(time.monotonic() - begun)

    def passes(self) -> None:
        """What is written from now on arrives, whoever writes."""
        last = {}
        for host, writer in self.writers.items():
            count = len(writer.acknowledged) + 1
            writer.allow(count)
            wait_until(
                lambda writer=writer, count=count: len(writer.acknowledged) >= count, PASSED_SECONDS
            )
            last[host] = self.written(host)[-1]
        for host, text in last.items():
            to = self.receivers[host]
            wait_until(lambda to=to, text=text: text in self.arrived(to), PASSED_SECONDS)

    @contextlib.contextmanager
    def at_work(self, host: str) -> Iterator[None]:
        """An agent of that machine is at a task; as many are asked for as it needs."""
        hold, held = (files_of(self.hosts[host]) / name for name in ("hold", "held"))
        hold.touch()

        def is_held() -> bool:
            if self.asker.is_through:
                self.asker.allow(self.asker.may + 1)
            return held.exists()

        wait_until(is_held, PASSED_SECONDS)
        yield
        hold.unlink()

    # ── what is there ──

    def task_ids(self) -> list[str]:
        return [str(answer["task_id"]) for _, answer in self.asker.acknowledged]

    def ends(self) -> Counter[str]:
        """How often the asker has recorded an end of each task."""
        return Counter(dict(rows(self.hosts[ASKER], COUNT_ENDS)))

    def runs(self, host: str) -> list[str]:
        """The tasks that were begun there."""
        file = files_of(self.hosts[host]) / "runs"
        return file.read_text().splitlines() if file.exists() else []

    def written(self, host: str) -> list[str]:
        return [str(body["text"]) for body, _ in self.writers[host].acknowledged]

    def arrived(self, host: str) -> list[str]:
        """In their order, with every doubled one."""
        select = "SELECT text FROM messages WHERE recipient = 'amy' ORDER BY number"
        return [text for (text,) in rows(self.hosts[host], select) if text.startswith(self._name)]

    def _message(self, number: int) -> dict[str, object]:
        return {"text": f"{self._name} {number:05}", "id": new_id()}

    def _wait_for_all(self) -> None:
        wait_until(lambda: self.ends().keys() >= {*self.task_ids()}, PASSED_SECONDS)
        for host, to in self.receivers.items():
            last = self.written(host)[-1]
            wait_until(lambda to=to, last=last: last in self.arrived(to), PASSED_SECONDS)
        for pen in self.hosts.values():
            for table in ("fleet_outbox", "fleet_leases"):
                select = f"SELECT 1 FROM {table}"
                wait_until(lambda pen=pen, select=select: not rows(pen, select), PASSED_SECONDS)

    def _state(self) -> dict[str, object]:
        """What there is of everything, for whoever has to find out why it is not enough."""
        shown: dict[str, object] = {
            "tasks": (len(self.task_ids()), self.asker.may, len(self.ends())),
            "not ended": sorted({*self.task_ids()} - self.ends().keys())[:20],
        }
        for host, pen in self.hosts.items():
            shown[host] = {
                "written": len(self.written(host)),
                "arrived": len(self.arrived(self.receivers[host])),
                "begun": len(self.runs(host)),
                "leases": [json.loads(data) for _, data in rows(pen, "SELECT * FROM fleet_leases")],
                "connected": self.cluster.is_connected(host),
                "log": pen.logged()[-12:],
            }
        return shown

    def _outcome(self, seconds: float) -> Outcome:
        ids, ends = self.task_ids(), self.ends()
        begun = Counter(task for host in self.hosts for task in self.runs(host))
        pairs = [(self.written(host), self.arrived(to)) for host, to in self.receivers.items()]
        return Outcome(
            tasks=len(ids),
            ended_once=sum(ends[id] == 1 for id in ids),
            begun_again=sum(count > 1 for count in begun.values()),
            messages=sum(len(written) for written, _ in pairs),
            arrived_once=sum(len(written) for written, arrived in pairs if written == arrived),
            seconds=seconds,
        )


Fault: TypeAlias = Callable[[Storm], None]


def files_of(pen: Pen) -> Path:
    """Where its programs have theirs."""
    return pen.root.parent


def _task(number: int) -> dict[str, object]:
    return {"prompt": f"task {number:05}", "fleet": True, "request": uuid.uuid4().hex}


# ── faults ──


def kill_the_leader(storm: Storm) -> None:
    _kill_a_server(storm, storm.cluster.leader(TASKS_STREAM))


def kill_a_follower(storm: Storm) -> None:
    leader = storm.cluster.leader(TASKS_STREAM)
    _kill_a_server(storm, next(name for name in SERVERS if name != leader))


def _kill_a_server(storm: Storm, name: str) -> None:
    storm.cluster.kill_server(name)
    storm.passes()  # two are enough
    storm.cluster.start_server(name)


def kill_all_servers(storm: Storm) -> None:
    for name in SERVERS:
        storm.cluster.kill_server(name)
    for name in SERVERS:
        storm.cluster.start_server(name)


def cut_off_the_leader(storm: Storm) -> None:
    leader = storm.cluster.leader(TASKS_STREAM)
    storm.cluster.networks.cut(leader)
    storm.passes()
    storm.cluster.networks.heal(leader)


def kill_the_askers_hub(storm: Storm) -> None:
    storm.cluster.kill_hub(ASKER)
    storm.cluster.start_hub(ASKER)


def kill_two_hubs_at_work(storm: Storm) -> None:
    with storm.at_work("h2"), storm.at_work("h5"):
        storm.cluster.kill_hub("h2")
        storm.cluster.kill_hub("h5")
    for host in ("h2", "h5"):
        storm.cluster.start_hub(host)


def kill_a_machine_at_work(storm: Storm) -> None:
    """The hub, every holder, and what they run."""
    with storm.at_work("h3"):
        pids = storm.hosts["h3"].processes()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, pids)))
    storm.cluster.start_hub("h3")


def cut_off_the_asker(storm: Storm) -> None:
    storm.cluster.networks.cut(ASKER)
    wait_until(lambda: not storm.cluster.is_connected(ASKER))
    storm.cluster.networks.heal(ASKER)


def cut_off_a_machine_at_work(storm: Storm) -> None:
    """Until others have taken over what it had; what it then says of that is refused."""
    with storm.at_work("h4"):
        storm.cluster.networks.cut("h4")
    wait_until(lambda: storm.ends().keys() >= {*storm.task_ids()}, PASSED_SECONDS)
    storm.cluster.networks.heal("h4")


def kill_the_leader_and_a_hub_at_work_behind_a_cut(storm: Storm) -> None:
    """At once, and what was written meanwhile arrives when all of it is whole again."""
    leader = storm.cluster.leader(TASKS_STREAM)
    with storm.at_work("h2"):
        storm.cluster.networks.cut(ASKER)
        storm.cluster.kill_server(leader)
        storm.cluster.kill_hub("h2")
    wait_until(lambda: not storm.cluster.is_connected(ASKER), PASSED_SECONDS)
    storm.cluster.networks.heal(ASKER)
    storm.cluster.start_hub("h2")
    storm.passes()
    storm.cluster.start_server(leader)


FAULTS: dict[str, Fault] = {
    "the leader is killed": kill_the_leader,
    "two hubs at work are killed": kill_two_hubs_at_work,
    "a follower is killed": kill_a_follower,
    "a machine at work is killed": kill_a_machine_at_work,
    "the leader is cut off": cut_off_the_leader,
    "the asker's hub is killed": kill_the_askers_hub,
    "all servers are killed": kill_all_servers,
    "the asker is cut off": cut_off_the_asker,
    "a machine at work is cut off": cut_off_a_machine_at_work,
}


# Each kind of part dies once, in a minute.
FEW: dict[str, Fault] = {
    "a machine at work is killed": kill_a_machine_at_work,  # others take over half a minute later
    "the leader and a hub at work are killed, the asker is cut off": (
        kill_the_leader_and_a_hub_at_work_behind_a_cut
    ),
    "a follower is killed": kill_a_follower,
}


# ── all of it ──


@contextlib.contextmanager
def made_storm(
    hosts: Sequence[str] = HOSTS, agents: int = AGENTS, *, has_networks: bool = True
) -> Iterator[Storm]:
    """Everything runs, and nothing is broken yet."""
    with contextlib.ExitStack() as stack:
        pens = {host: stack.enter_context(made_pen()) for host in hosts}
        cluster = stack.enter_context(made_cluster(has_networks=has_networks, **pens))
        for pen in pens.values():
            program = ["sh", "-c", WORK.format(files=files_of(pen))]
            box = {"enabled": False}
            pen.role("worker", agent_type="command", command=program, sandbox=box)
            pen.run("/bin/cat", name="amy")
            for number in range(agents):
                pen.run(name=f"worker{number}", role="worker", kind="headless", words=[])
        yield Storm(cluster)


if __name__ == "__main__":
    with made_storm() as made:
        tasks, messages = map(int, sys.argv[1:])
        outcome = made.run(tasks, messages, told=lambda line: print(line, flush=True))
    print(json.dumps(asdict(outcome), indent=1))
