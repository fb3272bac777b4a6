"""Attach, type, resize, many and hostile clients."""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.holder.client import MIB, Client, ClosedError, pack
from tests.holder.factory import Factory, marked
from tests.holder.noise import file_of, noise
from tests.holder.programs import HEXER, PRINT_FILE, RAW, SIZER, SLEEPER, python, shell
from tests.modes import mode_of
from tests.processes import alive, wait_idle
from tests.threads import meanwhile
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def assert_well(client: Client) -> None:
    """The program still takes input and its output still comes."""
    client.output.clear()
    client.type(b"\x05well\x06")
    client.collect(b"0577656c6c06")


# Typing


def test_k2_what_is_typed_reaches_the_program_and_its_output_comes_back(factory: Factory) -> None:
    client = factory.hold(["/bin/cat"]).attached()
    client.type(b"hello\r")
    # The terminal's echo, then cat.
    assert client.collect(lambda out: out.count(b"\n") == 2) == b"hello\r\nhello\r\n"


def test_k2_ctrl_c_reaches_the_program_as_a_signal(factory: Factory) -> None:
    holder = factory.hold(
        shell("trap 'echo GOT; exit 9' INT; echo READY; while :; do read x; done")
    )
    client = holder.ready()
    client.type(b"\x03")
    assert client.read_until("E").json["code"] == 9
    assert b"GOT" in client.output


def test_k2_all_bytes_pass_both_ways(factory: Factory) -> None:
    client = factory.hold(HEXER).ready()
    data = bytes(range(256))
    client.type(data)
    client.collect(data.hex().encode())


def test_k2_an_empty_input_frame_is_nothing(factory: Factory) -> None:
    client = factory.hold(HEXER).ready()
    client.type(b"")
    assert_well(client)


SLOW_READER = (
    RAW
    + """
import hashlib, select
os.write(1, b"READY")
while not os.path.exists(sys.argv[1]):
    os.write(1, b".")
    select.select([], [], [], 0.01)
count, total = 0, hashlib.sha256()
while count < int(sys.argv[2]):
    piece = os.read(0, 700)
    count += len(piece)
    total.update(piece)
os.write(1, b"<%d %s>" % (count, total.hexdigest().encode()))
os.read(0, 1)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("size", [200_000, 900_000])
def test_k2_much_input_to_a_program_that_reads_late_is_complete(
    factory: Factory, size: int
) -> None:
    import hashlib

    gate = factory.root / "gate"
    holder = factory.hold(python(SLOW_READER, gate, str(size)))
    typist, watcher = holder.ready(), holder.attached()
    data = random.Random(2).randbytes(size)

    def type_it() -> None:
        for start in range(0, size, 30_000):
            typist.type(data[start : start + 30_000])

    with meanwhile(type_it):
        watcher.collect(20)
        assert watcher.status()["alive"], "answers while the input waits"
        watcher.collect(len(watcher.output) + 20)
        gate.write_text("")
        want = f"<{size} {hashlib.sha256(data).hexdigest()}>".encode()
        watcher.collect(want)


def test_k2_input_that_waits_for_the_program_costs_no_cpu(factory: Factory) -> None:
    holder = factory.hold(python(RAW + "os.write(1, b'READY'); signal.pause()"))
    client = holder.ready()
    client.type(b"x" * 100_000)
    client.status()
    wait_idle(holder.pid, 1)
    assert client.stop()["signal"] == signal.SIGTERM


def test_k2_a_client_that_does_not_attach_gets_no_output_and_may_not_type(
    factory: Factory,
) -> None:
    holder = factory.hold(HEXER)
    client, other = holder.ready(), holder.connect()
    other.type(b"n")
    failed = other.read_until("F").json
    assert failed["for"] == "I"
    assert failed["message"]
    client.type(b"a")
    assert client.collect(b"61") == b"61"
    other.status()
    assert {frame.type for frame in other.seen} == {"H", "F", "S"}


def test_k2_a_read_only_client_sees_and_may_not_type(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client, other = holder.ready(), holder.attached(read_only=True)
    other.type(b"n")
    assert other.read_until("F").json["for"] == "I"
    client.type(b"a")
    client.collect(b"61")
    assert other.collect(b"61") == b"61"
    other.attach(read_only=False)
    other.type(b"b")
    client.collect(b"6162")


# Status, signals, mistakes


def test_k2_status_tells_the_facts(factory: Factory) -> None:
    holder = factory.hold(HEXER, rows=30, cols=90)
    client = holder.ready()
    holder.connect()
    before = time.time()
    client.type(b"abc")
    client.collect(b"616263")
    status = client.status()
    assert status["child"] == holder.child
    assert status["alive"] is True
    assert (status["rows"], status["cols"]) == (30, 90)
    assert status["clients"] == 2
    assert status["bytes"] == len(b"READY 616263")
    assert before - 0.01 <= status["last_input"] <= time.time()
    assert before - 0.01 <= status["last_output"] <= time.time()
    assert status["started"] == holder.connect().seen[0].json["started"]


def test_k2_a_signal_reaches_the_programs_whole_group(factory: Factory) -> None:
    code = """
trap 'echo PARENT' USR1
bash -c "trap 'echo CHILD; exit' USR1; echo READY; while :; do read -t 1 x </dev/tty; done" &
while :; do wait; done
"""
    client = factory.hold(shell(code)).ready()
    client.send("G", {"signal": int(signal.SIGUSR1)})
    assert client.read_until("K").json == {"for": "G"}
    client.collect(lambda out: b"PARENT" in out and b"CHILD" in out)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("G", b'{"signal": 0}'),
        ("G", b'{"signal": -9}'),
        ("G", b'{"signal": 1000}'),
        ("G", b'{"signal": "x"}'),
        ("G", b'{"signal": null}'),
        ("G", b"{}"),
        ("G", b"\xff"),
        ("R", b'{"rows": 0, "cols": 80}'),
        ("R", b'{"rows": 70000, "cols": 80}'),
        ("R", b'{"rows": 24}'),
        ("R", b'{"rows": "a", "cols": []}'),
        ("R", b'{"rows": 1e400, "cols": 80}'),
        ("R", b"[]"),
        ("A", b"{"),
        ("A", b'{"rows": -1, "cols": 1}'),
        ("A", b"[" * 100_000),
        ("X", b'{"grace": -1}'),
        ("X", b'{"grace": "soon"}'),
        ("X", b'{"grace": NaN}'),
        ("X", b'{"grace": 1e999}'),
        ("X", b"[" * 100_000),
        ("C", b""),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_k2_a_request_that_cannot_be_met_fails_and_the_connection_stays(
    factory: Factory, type_: str, payload: bytes
) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    client.send(type_, payload)
    assert client.read_until("FK").json["for"] == type_
    assert client.seen[-1].type == "F"
    assert client.status()["alive"]
    assert_well(holder.attached())


def test_k4_a_very_long_grace_is_no_harm(factory: Factory) -> None:
    holder = factory.hold(
        python(RAW + "signal.signal(15, signal.SIG_IGN); os.write(1, b'READY'); os.read(0, 1)")
    )
    client = holder.attached(replay=False)
    wait_until(lambda: holder.log() == b"READY")
    for grace in (1e308, 1e15, 1e7):
        client.send("X", {"grace": grace})
        assert client.read_until("KF")
    assert client.status()["alive"]
    client.type(b"q")
    assert client.read_until("E").json["code"] == 0


# Frames


def test_k2_frames_that_come_byte_by_byte_are_understood(factory: Factory) -> None:
    client = factory.hold(HEXER).ready()
    data = pack("S") + pack("I", b"ab") + pack("Z", b"later") + pack("I", b"c") + pack("S")
    for byte in data:
        client.send_raw(bytes([byte]))
    client.collect(lambda out: out == b"616263" and [f.type for f in client.seen].count("S") == 2)


def test_k2_many_frames_in_one_piece_are_understood(factory: Factory) -> None:
    client = factory.hold(HEXER).ready()
    client.send_raw(b"".join(pack("I", bytes([byte])) for byte in range(200)) + pack("S"))
    client.collect(bytes(range(200)).hex().encode())


def test_k2_frame_types_of_a_later_version_are_passed_over(factory: Factory) -> None:
    client = factory.hold(HEXER).ready()
    for type_, payload in [("Z", b""), ("z", b"x" * 1000), ("\0", b"{}"), ("O", b"no"), ("a", b"")]:
        client.send(type_, payload)
    client.send("W", b"x" * MIB)
    assert client.status()["alive"]
    assert "F" not in {frame.type for frame in client.seen}
    assert_well(client)


def test_k2_a_frame_of_the_largest_size_is_taken(factory: Factory) -> None:
    holder = factory.hold(["/bin/cat"], mode="pipe")
    client, watcher = holder.connect(), holder.attached()
    with meanwhile(lambda: client.send("I", b"x" * MIB)):
        watcher.collect(MIB)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"I" + struct.pack(">I", MIB + 1),
        b"Z\xff\xff\xff\xff",
        b"A" + struct.pack(">I", 1 << 31) + b"{}",
        b"\x00" * 4 + b"\x01" * 100,
    ],
    ids=repr,
)
def test_k2_a_broken_frame_closes_that_connection_and_no_other(
    factory: Factory, data: bytes
) -> None:
    holder = factory.hold(HEXER)
    client, bad = holder.ready(), holder.connect()
    bad.send_raw(data)
    with pytest.raises(ClosedError):
        for _ in range(10):
            assert bad.next().type == "F"
    assert_well(client)
    wait_until(lambda: client.status()["clients"] == 1)


@pytest.mark.parametrize("data", [b"", b"I", b"I\0\0", pack("I", b"abcdef")[:-1], pack("A", b"{")])
def test_k2_a_client_that_leaves_in_the_middle_does_no_harm(factory: Factory, data: bytes) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    for _ in range(20):
        bad = holder.connect()
        bad.send("A", b"")
        bad.send_raw(data)
        bad.close()
    assert_well(client)
    wait_until(lambda: client.status()["clients"] == 1)
    assert client.output == b"0577656c6c06", "nothing of the half frame was typed"


def test_k2_random_garbage_does_no_harm(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    rng = random.Random(4)
    for _ in range(100):
        bad = holder.connect()
        data = bytearray(rng.randbytes(rng.randrange(1, 400)))
        data[0] = rng.choice(b"AIRSCZ")
        data[1:4] = b"\0\0\0"
        try:
            bad.send_raw(bytes(data))
        except BrokenPipeError:
            pass
        finally:
            bad.close()
    client.stop(0)
    assert holder.wait_gone()["signal"] in {signal.SIGTERM, signal.SIGKILL}


# Many clients, slow clients


def test_k2_many_clients_see_the_same_and_all_may_type(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    clients = [holder.ready(replay=number == 0) if not number else holder.attached(replay=False)
               for number in range(30)]  # fmt: skip
    for number, client in enumerate(clients):
        client.type(bytes([number]))
        clients[0].collect(2 * (number + 1))
    want = bytes(range(30)).hex().encode()
    for client in clients:
        assert client.collect(60) == want
    assert clients[0].status()["clients"] == 30


def test_k2_more_clients_than_descriptors_do_no_harm(bare_factory: Factory) -> None:
    bare_factory.start(before=("/bin/sh", "-c", 'ulimit -n 40; exec "$@"', "sh"))
    holder = bare_factory.hold(HEXER)
    client = holder.ready()
    more = []
    for _ in range(60):
        one = Client(holder.socket)
        holder.clients.append(one)
        more.append(one)
    assert_well(client)
    wait_idle(holder.pid, 20)
    for one in more:
        one.close()
    wait_until(lambda: client.status()["clients"] == 1)
    holder.connect()


@pytest.mark.storm
def test_k2_a_client_that_never_reads_stalls_nobody_and_comes_back(factory: Factory) -> None:
    data = noise(20_000_000)
    holder = factory.hold(python(PRINT_FILE + "os.read(0, 1)", file_of(factory, data)))
    driver = holder.ready()
    slow = holder.connect(rcvbuf=4096)
    slow.attach(replay=False)
    driver.type(b"g")
    # Whoever falls behind by much is dropped as well, and is back by attaching again.
    wait_until(lambda: (holder.session / "output.log").stat().st_size == len(data) + 5, 60)
    slow.send("A", {"replay": True})
    dropped = slow.read_until("D")
    assert dropped.json == {"reason": "slow"}
    assert slow.read_until("K").json == {"for": "A"}
    replay = slow.read_until("P").payload
    assert replay.endswith(data[-100_000:])
    slow.output.clear()
    slow.type(b"q")
    slow.read_until("E")
    assert holder.log() == b"READY" + data


def test_k2_a_client_that_only_asks_and_never_reads_costs_no_memory(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client, bad = holder.ready(), holder.connect(rcvbuf=4096)
    bad.socket.settimeout(0.3)
    sent = 0
    with contextlib.suppress(TimeoutError):
        for _ in range(400):
            bad.socket.sendall(pack("S") * 1000)
            sent += 1
    assert sent < 400, "two million bytes of questions were taken"
    assert_well(client)
    bad.close()
    wait_until(lambda: client.status()["clients"] == 1)


def test_k2_a_client_that_reads_gets_all_while_another_does_not(factory: Factory) -> None:
    data = noise(5_000_000)
    holder = factory.hold(python(PRINT_FILE, file_of(factory, data)))
    driver = holder.ready()
    slow = holder.connect(rcvbuf=4096)
    slow.attach(replay=False)
    driver.type(b"g")
    driver.read_until("E", 60)
    assert "D" not in {frame.type for frame in driver.seen}
    assert driver.output == data


def test_k2_a_dropped_client_still_gets_its_answers_and_the_end(factory: Factory) -> None:
    data = noise(12_000_000)
    holder = factory.hold(python(PRINT_FILE + "os.read(0, 1)", file_of(factory, data)))
    driver = holder.ready()
    slow = holder.connect(rcvbuf=4096)
    slow.attach(replay=False)
    driver.type(b"g")
    slow.send("R", {"rows": 33, "cols": 99})
    wait_until(lambda: driver.status()["bytes"] == len(data) + 5)
    slow.send("S")
    slow.read_until("D")
    status = slow.read_until("S").json
    assert (status["rows"], status["cols"]) == (33, 99)
    after = len(slow.seen)
    driver.type(b"q")
    assert slow.read_until("E").json["code"] == 0
    assert {frame.type for frame in slow.seen[after:]} == {"E"}


@pytest.mark.storm
def test_k2_slow_clients_that_leave_abruptly_do_no_harm(factory: Factory) -> None:
    data = noise(30_000_000)
    holder = factory.hold(python(PRINT_FILE, file_of(factory, data)))
    driver = holder.ready()
    driver.close()
    starter = holder.attached(replay=False)
    starter.type(b"g")
    starter.close()
    for number in range(300):
        if not alive(holder.pid):
            break
        try:
            client = Client(holder.socket, 4096 << (number % 4))
            client.send("A", {"replay": bool(number % 2)})
            for _ in range(number % 5):
                client.next()
        except (OSError, ClosedError):
            break
        finally:
            client.close()
    assert holder.wait_gone(60)["code"] == 0
    assert holder.log() == b"READY" + data


@pytest.mark.storm
def test_k2_replay_and_live_output_meet_without_gap_or_repetition(factory: Factory) -> None:
    data = noise(6_000_000)
    program = python(PRINT_FILE + "os.read(0, 1)", file_of(factory, data))
    holder = factory.hold(program, ring_bytes=50_000)
    driver = holder.ready()
    driver.type(b"g")
    clients = []
    for number in range(12):
        driver.collect(500_000 * number)
        client = holder.connect()
        clients.append((client, client.attach()))
    assert driver.collect(len(data)) == data
    for client, replay in clients:
        if not replay.endswith(data[-100:]):
            client.collect(data[-100:])
        shown = replay + client.output
        assert (b"READY" + data).endswith(shown)
        assert len(shown) > 40_000


# A socket that was deleted


def test_k2_a_deleted_socket_is_made_again_at_sigusr1(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    holder.socket.unlink()
    os.kill(holder.pid, signal.SIGUSR1)
    wait_until(holder.socket.exists)
    assert mode_of(holder.socket) == 0o600
    wait_until(lambda: answers(holder.socket))
    other = holder.ready()
    other.type(b"a")
    client.collect(b"61")
    client.type(b"b")
    assert other.collect(b"6162") == client.collect(b"6162")
    other.stop()
    holder.wait_gone()
    assert not holder.socket.exists()


def answers(path: Path) -> bool:
    try:
        Client(path).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    return True


def test_k2_who_waits_at_a_deleted_socket_is_served_at_sigusr1(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    holder.ready()
    os.kill(holder.pid, signal.SIGSTOP)
    waiting = Client(holder.socket)
    holder.clients.append(waiting)
    holder.socket.unlink()
    os.kill(holder.pid, signal.SIGUSR1)
    os.kill(holder.pid, signal.SIGCONT)
    assert waiting.next().type == "H"


def test_k2_sigusr1_changes_nothing_while_the_path_is_taken(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    before = holder.socket.stat().st_ino
    os.kill(holder.pid, signal.SIGUSR1)
    assert_well(client)
    assert holder.socket.stat().st_ino == before
    holder.socket.unlink()
    holder.socket.write_text("in the way")
    os.kill(holder.pid, signal.SIGUSR1)
    assert_well(client)
    assert holder.socket.read_text() == "in the way"


def test_k2_sigusr1_without_a_place_for_the_socket_does_no_harm(factory: Factory) -> None:
    place = factory.root / "sockets"
    place.mkdir()
    holder = factory.hold(HEXER, socket=str(place / "h"))
    client = holder.ready()
    shutil.rmtree(place)
    os.kill(holder.pid, signal.SIGUSR1)
    assert_well(client)
    place.mkdir()
    os.kill(holder.pid, signal.SIGUSR1)
    wait_until(lambda: answers(holder.socket))


# Sizes


def test_k2_a_resize_reaches_the_program(factory: Factory) -> None:
    client = factory.hold(SIZER).ready()
    client.send("R", {"rows": 40, "cols": 100})
    assert client.read_until("K").json == {"for": "R"}
    client.collect(b"<40 100>")
    status = client.status()
    assert (status["rows"], status["cols"]) == (40, 100)


def test_k2_the_size_of_the_client_that_was_last_active_counts(factory: Factory) -> None:
    holder = factory.hold(SIZER)

    def settled(rows: int, cols: int) -> None:
        """The program was told last that it has this size."""
        first.collect(lambda out: out.endswith(b"<%d %d>" % (rows, cols)))
        status = first.status()
        assert (status["rows"], status["cols"]) == (rows, cols)

    first = holder.ready(rows=30, cols=90)
    second = holder.attached(rows=40, cols=100)
    settled(40, 100)
    first.type(b"x")
    settled(30, 90)
    second.send("R", {"rows": 41, "cols": 101})
    settled(41, 101)
    first.send("S")
    settled(41, 101)
    third = holder.attached()
    settled(41, 101)
    third.close()
    wait_until(lambda: first.status()["clients"] == 2)
    settled(41, 101)
    second.close()
    settled(30, 90)
    first.close()
    greeting = holder.connect().seen[0].json
    assert (greeting["rows"], greeting["cols"]) == (30, 90), "it stays when all have left"


def test_a1_who_shows_another_size_is_told_of_a_change_and_shown_all_again(
    factory: Factory,
) -> None:
    holder = factory.hold(SIZER)
    large = holder.ready(rows=50, cols=160, sizes=True)
    watcher = holder.attached(read_only=True, sizes=True)
    older = holder.attached(read_only=True)
    small = holder.attached(rows=24, cols=80, sizes=True)
    for client in (large, watcher):
        assert client.read_until("Z").json == {"rows": 24, "cols": 80}
        assert b"READY" in client.read_until("P").payload
    small.close()
    for client in (large, watcher):
        assert client.read_until("Z").json == {"rows": 50, "cols": 160}
        client.read_until("P")
    large.send("R", {"rows": 40, "cols": 100})
    assert watcher.read_until("Z").json == {"rows": 40, "cols": 100}
    older.collect(b"<40 100>")
    large.collect(b"<40 100>")
    assert large.status()["rows"] == 40
    resized = next(n for n, each in enumerate(large.seen) if each.json_or_none == {"for": "R"})
    assert "Z" not in {each.type for each in large.seen[resized:]}, "its own change"
    assert {each.type for each in older.seen} <= {"H", "K", "P", "O"}


@pytest.mark.parametrize("key", [b"\x1a", b"\x1b[122;5u"], ids=["plain", "kitty"])
def test_a1_a_program_that_sleeps_at_ctrl_z_is_woken(factory: Factory, key: bytes) -> None:
    client = factory.hold(SLEEPER).ready()
    assert client.status()["continued"] is None
    for _ in range(2):
        client.output.clear()
        client.type(key)
        client.collect(b"BACK")
    assert client.status()["continued"] > client.status()["started"]


def test_a1_a_shells_own_jobs_stay_stopped(factory: Factory) -> None:
    client = factory.hold(["/bin/bash", "--norc", "-i"]).attached()
    client.type(b"sh -c 'echo RE\"\"ADY; exec sleep 1000'\r")
    client.collect(b"READY\r\n")
    client.type(b"\x1a")
    client.collect(b"Stopped")
    client.type(b"jobs; echo DO''NE\r")
    client.collect(b"DONE\r\n")
    assert client.output.count(b"Stopped") == 2
    assert client.status()["continued"] is None


def test_k2_an_attach_nudges_the_program_to_repaint(factory: Factory) -> None:
    holder = factory.hold(SIZER, rows=30, cols=90)
    client = holder.ready()
    client.status()
    holder.attached(rows=30, cols=90)
    client.collect(lambda out: out.endswith(b"<30 90>"))


def test_k2_an_attach_that_only_looks_does_not_change_the_size(factory: Factory) -> None:
    holder = factory.hold(SIZER, rows=30, cols=90)
    client = holder.ready(nudge=False)
    for read_only in (True, False):
        assert holder.connect().attach(read_only=read_only, nudge=False).endswith(b"READY")
    client.send("R", {"rows": 31, "cols": 91})
    assert client.collect(b"<31 91>") == b"<31 91>", "told of no other size before"


def test_k2_a_read_only_attach_nudges_too(factory: Factory) -> None:
    holder = factory.hold(SIZER, rows=30, cols=90)
    client = holder.ready(nudge=False)
    holder.attached(read_only=True)
    # On a busy machine it may learn of both sizes, the nudge and the one of before, at once.
    client.collect(lambda out: out.endswith(b"<30 90>"))


def test_k2_an_attach_without_replay_does_not_disturb_the_program(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    client.type(b"a")
    client.collect(b"61")
    other = holder.connect()
    assert other.attach(replay=False) == b""
    client.type(b"b")
    assert other.collect(b"62") == b"62"
    assert "P" not in {frame.type for frame in other.seen}


# Answers to the program's questions

ANSWERS = {
    "CSI c": b"\x1b[?1;2c",
    "CSI > c": b"\x1b[>41;354;0c",
    "CSI > 0 q": b"\x1bP>|xterm(354)\x1b\\",
    "CSI ? u": b"\x1b[?5u",
    "CSI 6 n": b"\x1b[5;10R",
    "CSI 5 n": b"\x1b[0n",
    "OSC 10": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "OSC 11 BEL": b"\x1b]11;rgb:0000/0000/0000\x07",
    "OSC 4": b"\x1b]4;1;rgb:cdcd/0000/0000\x1b\\",
    "DECRQM": b"\x1b[?2026;2$y",
    "XTGETTCAP": b"\x1bP1+r544e=787465726d\x1b\\",
    "XTGETTCAP no": b"\x1bP0+r544e\x1b\\",
    "DECRQSS": b"\x1bP1$r0m\x1b\\",
    "CSI 18 t": b"\x1b[8;24;80t",
}


@pytest.mark.few(5)
@pytest.mark.parametrize("what", ANSWERS)
def test_k2_only_the_last_active_clients_answer_reaches_the_program(
    factory: Factory, what: str
) -> None:
    answer = ANSWERS[what]
    holder = factory.hold(HEXER)
    first, second = holder.ready(), holder.attached()
    first.type(answer)
    first.status()
    second.type(answer)
    second.type(b"z")
    second.collect(lambda out: out.endswith(b"7a"))
    assert second.output == answer.hex().encode() + b"7a"


def test_k2_an_answer_in_two_pieces_is_still_an_answer(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    first, second = holder.ready(), holder.attached()
    for answer in ANSWERS.values():
        first.type(answer[:4])
        first.type(answer[4:])
    first.status()
    second.type(b"z")
    second.collect(lambda out: out.endswith(b"7a"))
    assert second.output == b"7a"


def test_k2_hostile_typing_holds_nobody_up(factory: Factory) -> None:
    holder = factory.hold(["/bin/cat"])
    first, second = holder.attached(), holder.attached()
    for piece in (b"\x1b]" + b"1;" * 100_000, b"\x1b[" + b"1;" * 100_000, b"\x1b]1" * 50_000):
        first.type(piece)
        second.send("A", {"replay": False})
        second.read_until("K")


TYPED = {
    "letters": b"hello",
    "escape alone": b"\x1b",
    "alt": b"\x1bx",
    "arrows": b"\x1b[A\x1bOB\x1b[1;5C",
    "function keys": b"\x1bOP\x1b[15~\x1b[24;2~",
    "kitty keys": b"\x1b[97;5u\x1b[92;5u\x1b[13;2:1u",
    "other keys": b"\x1b[27;5;92~",
    "mouse": b"\x1b[<0;10;5M\x1b[<0;10;5m",
    "focus": b"\x1b[I\x1b[O",
    "paste": b"\x1b[200~two\nlines\x1b[201~",
    "controls": bytes(range(1, 27)),
    "utf-8": "äöü€😀".encode(),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("what", TYPED)
def test_k2_ordinary_typing_of_every_client_reaches_the_program(
    factory: Factory, what: str
) -> None:
    typed = TYPED[what]
    holder = factory.hold(HEXER)
    first, second = holder.ready(), holder.attached()
    for client in (first, second, first):
        client.type(typed)
        client.status()
    second.collect(3 * 2 * len(typed))
    assert second.output == 3 * typed.hex().encode()


def test_k2_an_answer_does_not_make_its_client_the_active_one(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    first, second = holder.ready(rows=30, cols=90), holder.attached(rows=40, cols=100)
    first.type(b"\x1b[?1;2c")
    status = first.status()
    assert (status["rows"], status["cols"]) == (40, 100)
    first.type(b"\x1b[?1;2cabcd")
    second.collect(b"61626364")
    assert second.output == b"61626364"


def test_k2_when_the_active_client_leaves_another_answers(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    first, watcher = holder.ready(), holder.attached(read_only=True)
    second = holder.attached()
    second.close()
    wait_until(lambda: watcher.status()["clients"] == 2)
    first.type(b"\x1b[?1;2c")
    watcher.collect(b"\x1b[?1;2c".hex().encode())


# Pipes


def test_k1_pipes_carry_input_output_and_errors_apart(factory: Factory) -> None:
    code = "read x; echo out $x; echo err $x >&2; cat; echo end; exit 4"
    holder = factory.hold(shell(code), mode="pipe")
    client = holder.connect()
    assert client.seen[0].json["mode"] == "pipe"
    client.attach()
    client.type(b"one\n")
    client.collect(b"out one\n")
    client.type(b"two\nthree")
    client.send("C")
    assert client.read_until("E").json["code"] == 4
    assert {"for": "C"} in [frame.json for frame in client.seen if frame.type == "K"]
    assert client.output == b"out one\ntwo\nthreeend\n"
    assert client.errors == b"err one\n"
    assert holder.log() == client.output
    assert holder.log("stderr.log") == client.errors


def test_k1_pipes_are_no_terminal_and_the_program_leads_a_group(factory: Factory) -> None:
    code = """
import os
print([os.isatty(number) for number in range(3)], os.getpid() == os.getpgid(0))
try:
    os.open("/dev/tty", os.O_RDWR)
except OSError:
    print("no terminal")
"""
    holder = factory.hold(python(code), mode="pipe")
    holder.wait_gone()
    assert holder.log() == b"[False, False, False] True\nno terminal\n"


def test_k1_any_client_may_write_to_a_pipe_unless_it_is_read_only(factory: Factory) -> None:
    holder = factory.hold(["/bin/cat"], mode="pipe")
    first, second, third = holder.connect(), holder.attached(), holder.attached(read_only=True)
    first.type(b"1")
    second.collect(b"1")
    third.type(b"3")
    assert third.read_until("F").json["for"] == "I"
    second.type(b"\x1b[?1;2c")
    second.collect(b"1\x1b[?1;2c")


def test_k1_input_that_waits_is_written_before_the_pipe_is_closed(factory: Factory) -> None:
    gate = factory.root / "gate"
    os.mkfifo(gate)
    holder = factory.hold(shell('read x <"$1"; cat >copy', gate), mode="pipe")
    client = holder.connect()
    data = noise(1_500_000)

    def send() -> None:
        for start in range(0, len(data), 100_000):
            client.type(data[start : start + 100_000])
        client.send("C")

    with meanwhile(send):
        assert holder.connect().status()["alive"]
        gate.write_text("go\n")
    holder.wait_gone()
    assert (factory.root / "copy").read_bytes() == data


def test_k1_a_program_that_closed_its_input_is_not_disturbed_by_more(factory: Factory) -> None:
    holder = factory.hold(shell("exec 0<&-; echo READY; sleep 100"), mode="pipe")
    client = holder.ready()
    for _ in range(3):
        client.type(b"x" * 100_000)
    assert client.status()["alive"]
    client.send("C")
    client.read_until("KF")
    assert client.status()["alive"]
    client.type(b"late")
    assert client.status()["alive"]


def test_k3_output_to_pipes_is_complete_though_nobody_is_attached(factory: Factory) -> None:
    code = """
import sys
for number in range(60_000):
    sys.stdout.write("%06d out\\n" % number)
    sys.stderr.write("%06d err\\n" % number)
"""
    holder = factory.hold(python(code), mode="pipe")
    holder.wait_gone()
    for name, word in (("output.log", "out"), ("stderr.log", "err")):
        assert holder.log(name) == b"".join(
            b"%06d %s\n" % (n, word.encode()) for n in range(60_000)
        )
    assert holder.record()["last_output"].endswith("059999 out\n")


def test_k1_replay_of_a_pipe_is_its_latest_output(factory: Factory) -> None:
    holder = factory.hold(shell("echo one; echo two; sleep 100"), mode="pipe")
    client = holder.connect()
    wait_until(lambda: client.status()["bytes"] == 8)
    assert client.attach() == b"one\ntwo\n"


# Costs


IDLE = {
    "waiting": (HEXER, "pty"),
    "with its terminal closed": (
        python("import os, signal; [os.close(n) for n in range(3)]; signal.pause()"),
        "pty",
    ),
    "with its pipes closed": (
        python("import os, signal; [os.close(n) for n in range(3)]; signal.pause()"),
        "pipe",
    ),
    "stopped": (python("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"), "pty"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", IDLE)
def test_k1_a_holder_with_nothing_to_do_costs_no_cpu(factory: Factory, what: str) -> None:
    argv, mode = IDLE[what]
    holder = factory.hold(argv, mode=mode)
    wait_until(lambda: Path(f"/proc/{holder.child}/stat").read_text().split()[2] in "ST")
    client = holder.connect()
    client.close()
    wait_idle(holder.pid)
    assert alive(holder.child)


def test_k6_a_holder_takes_little_memory(factory: Factory) -> None:
    def private(pid: int) -> int:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    size = 256 * 1024
    code = f"yes 'some text' | head -c {2 * size}; echo; echo DONE; exec sleep 1000"
    holders = [factory.hold(shell(code)) for _ in range(5)]
    for holder in holders:
        client = holder.connect()
        wait_until(lambda client=client: client.status()["bytes"] > 2 * size)  # type: ignore[misc]
    # With the ring. It is 1.1 MB in CPython 3.11, the status that was asked for included.
    assert min(private(holder.pid) for holder in holders) < 1_500, "kilobytes"


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["half closed", "silent", "slow"])
def test_k1_an_odd_client_costs_no_cpu(factory: Factory, behaviour: str) -> None:
    data = noise(2_000_000)
    holder = factory.hold(python(PRINT_FILE + "signal.pause()", file_of(factory, data)))
    client = holder.ready()
    other = holder.connect(rcvbuf=4096)
    if behaviour == "slow":
        other.attach(replay=False)
    elif behaviour == "half closed":
        other.socket.shutdown(1)
    client.type(b"g")
    client.collect(len(data))
    client.status()
    wait_idle(holder.pid, 1)


def test_k1_a_program_may_close_its_terminal_and_open_it_again(factory: Factory) -> None:
    code = """
import os, sys, time
for number in range(3):
    os.close(number)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
terminal = os.open("/dev/tty", os.O_RDWR)
os.write(terminal, b"BACK")
os.read(terminal, 1)
"""
    gate = factory.root / "gate"
    holder = factory.hold(python(code, gate))
    client = holder.attached()
    wait_until(lambda: os.listdir(f"/proc/{holder.child}/fd") == [])  # noqa: PTH208
    client.status()
    gate.write_text("")
    client.collect(b"BACK")


def test_k1_a_factory_without_standard_descriptors_works(bare_factory: Factory) -> None:
    bare_factory.start(before=("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"))
    assert bare_factory.ask(bare_factory.request(["/no/such"]))["error"] == "not_found"
    client = bare_factory.hold(HEXER).ready()
    assert_well(client)
    holder = bare_factory.hold(shell("cat; echo err >&2"), mode="pipe")
    client = holder.attached()
    client.type(b"in")
    client.send("C")
    client.read_until("E")
    assert (client.output, client.errors) == (b"in", b"err\n")


def test_k1_a_holder_imports_nothing_of_the_hub() -> None:
    from bullpen import holder

    code = "import sys; sys.path.insert(0, sys.argv[1]); import bullpen.holder.factory; import json"
    code += "; print(json.dumps(sorted(n for n in sys.modules if n.startswith('bullpen'))))"
    root = Path(holder.__file__).parents[2]
    done = subprocess.run(python(code, root), capture_output=True, check=True, timeout=60)
    names = json.loads(done.stdout)
    assert all(name == "bullpen" or name.startswith("bullpen.holder") for name in names), names


def test_k1_nothing_is_left_of_a_session_that_ended(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    holder.ready().stop()
    holder.wait_gone()
    assert not holder.socket.exists()
    wait_until(lambda: marked(factory.root) == {factory.pid})
    assert {path.name for path in holder.session.iterdir()} == {
        "output.log",
        "output.timing",
        "exit.json",
        "holder.json",
    }
