"""How programs end: by themselves, stopped, killed, and what they leave running."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.holder.factory import Factory, Holder, marked
from tests.holder.programs import HEXER, RAW, python, shell
from tests.modes import mode_of
from tests.processes import alive, process_state
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

DEAF = RAW + "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; os.write(1, b'READY');"

# Starts the four kinds of processes that outlive a killed group, and notes their pids.
FAMILY = """
import os, signal, sys, time

def note(name):
    with open(os.path.join(sys.argv[1], name + ".new"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(sys.argv[1], name + ".new"), os.path.join(sys.argv[1], name + ".pid"))

def linger(name):
    for number in (1, 2, 15):
        signal.signal(number, signal.SIG_IGN)
    note(name)
    while True:
        signal.pause()

if os.fork() == 0:
    linger("deaf")
if os.fork() == 0:
    os.setsid()
    linger("session")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        linger("daemon")
    os._exit(0)
if os.fork() == 0:
    os.setpgid(0, 0)
    linger("group")
while len([name for name in os.listdir(sys.argv[1]) if name.endswith(".pid")]) < 4:
    time.sleep(0.005)
"""


def family(where: Path) -> dict[str, int]:
    wait_until(lambda: len(list(where.glob("*.pid"))) == 4)
    return {path.stem: int(path.read_text()) for path in where.glob("*.pid")}


def assert_all_gone(factory: Factory, holder: Holder, pids: dict[str, int]) -> None:
    wait_until(lambda: not alive(holder.pid))
    assert [name for name, pid in pids.items() if alive(pid)] == []
    assert marked(factory.root) == {factory.pid}


# By itself


@pytest.mark.parametrize("mode", ["pty", "pipe"])
def test_k4_the_exit_code_is_told_and_recorded(factory: Factory, mode: str) -> None:
    before = time.time()
    holder = factory.hold(shell("read x; echo last words; exit 3"), mode=mode)
    attached, idle = holder.attached(), holder.connect()
    attached.type(b"\n")
    record = attached.read_until("E").json
    assert holder.record() == record, "on disk before it is told"
    assert idle.read_until("E").json == record
    assert mode_of(holder.session / "exit.json") == 0o600
    assert before - 0.01 <= record.pop("started") <= record.pop("ended") <= time.time()
    assert record.pop("last_output").replace("\r", "").endswith("last words\n")
    assert record == {"version": 1, "code": 3, "signal": None, "tag": ""}
    attached.read_to_end()
    idle.read_to_end()
    holder.wait_gone()
    assert not holder.socket.exists()


def test_k4_the_signal_that_ended_it_is_told_and_recorded(factory: Factory) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        holder = factory.hold(shell(f"ulimit -c 0; kill -{number:d} $$"))
        record = holder.wait_gone()
        assert (record["code"], record["signal"]) == (None, number)


def test_k4_the_exit_record_is_there_before_the_socket_is_gone(factory: Factory) -> None:
    for _ in range(10):
        holder = factory.hold(shell("read x"))
        holder.attached(replay=False).type(b"\r")
        deadline = time.monotonic() + 60
        while holder.socket.exists():
            assert time.monotonic() < deadline
        assert holder.record()["code"] == 0


def test_k4_the_last_output_is_short_text(factory: Factory) -> None:
    code = "import sys; sys.stdout.buffer.write('é€😀'.encode() * 3000 + b'\\xff\\xfe end')"
    holder = factory.hold(python(code))
    text = holder.wait_gone()["last_output"]
    assert len(text) <= 2000
    assert "é€😀" in text
    assert text.endswith(" end")
    silent = factory.hold(["/bin/true"])
    assert silent.wait_gone()["last_output"] == ""


@pytest.mark.storm
def test_k3_nothing_that_was_written_before_the_end_is_lost(factory: Factory) -> None:
    for number in range(30):
        mode = ("pty", "pipe")[number % 2]
        holder = factory.hold(python("import os; os.write(1, b'x' * 3000 + b'END')"), mode=mode)
        holder.wait_gone()
        assert holder.log() == b"x" * 3000 + b"END", (number, mode)


def test_k4_a_program_that_ends_at_once_is_noticed_also_under_load(factory: Factory) -> None:
    for holder in [factory.hold(["/bin/true"]) for _ in range(40)]:
        assert holder.wait_gone()["code"] == 0


@pytest.mark.parametrize("mode", ["pty", "pipe"])
def test_k4_what_a_program_leaves_running_ends_with_it(factory: Factory, mode: str) -> None:
    where = factory.root / "pids"
    where.mkdir()
    holder = factory.hold(python(FAMILY + "sys.exit(5)", where), mode=mode)
    record = holder.wait_gone()
    assert record["code"] == 5
    assert_all_gone(factory, holder, family(where))


def test_k4_background_jobs_of_an_interactive_shell_end_with_it(factory: Factory) -> None:
    holder = factory.hold(["/bin/bash", "--norc", "-i"])
    client = holder.attached()
    client.type(b"(trap '' HUP TERM; sleep 1000) & echo JOB $!X\r")
    client.type(b"sleep 1001 & disown; echo JOB $!X\r")
    client.type(b"setsid sleep 1002 & nohup sleep 1003 >/dev/null 2>&1 & echo DO''NE\r")
    client.collect(b"DONE")
    wait_until(lambda: len(marked(factory.root)) >= 7)
    client.type(b"exit 6\r")
    assert holder.wait_gone()["code"] == 6
    assert_all_gone(factory, holder, {})


# Stopped


def test_k4_stop_ends_a_program_by_sigterm(factory: Factory) -> None:
    holder = factory.hold(
        shell("trap 'echo CLEAN; exit 0' TERM; echo READY; while :; do read x; done")
    )
    client = holder.ready()
    began = time.monotonic()
    record = client.stop(300)
    assert time.monotonic() - began < 200
    assert (record["code"], record["signal"]) == (0, None)
    assert "CLEAN" in record["last_output"]
    assert holder.wait_gone() == record


def test_k4_a_client_that_never_attached_may_stop(factory: Factory) -> None:
    holder = factory.hold(["/bin/sleep", "1000"])
    assert holder.connect().stop()["signal"] == signal.SIGTERM


def test_k4_stop_without_fields_has_a_grace(factory: Factory) -> None:
    client = factory.hold(["/bin/sleep", "1000"]).connect()
    client.send("X")
    assert client.read_until("KF").json == {"for": "X"}
    assert client.read_until("E").json["signal"] == signal.SIGTERM


def test_k4_a_program_that_ignores_sigterm_is_killed_after_the_grace(factory: Factory) -> None:
    holder = factory.hold(python(DEAF + "signal.pause()\nwhile True: signal.pause()"))
    client = holder.ready()
    client.send("X", {"grace": 600})
    assert client.read_until("K").json == {"for": "X"}, "answered at once"
    began = time.monotonic()
    record = client.stop(0.5)
    assert time.monotonic() - began > 0.4
    assert (record["code"], record["signal"]) == (None, signal.SIGKILL)


def test_k4_output_and_input_go_on_during_the_grace(factory: Factory) -> None:
    code = DEAF + "\nwhile piece := os.read(0, 10): os.write(1, piece.hex().encode())"
    client = factory.hold(python(code)).ready()
    client.send("X", {"grace": 30})
    client.type(b"a")
    client.collect(b"61")
    assert client.status()["alive"]
    assert client.stop(0)["signal"] == signal.SIGKILL, "a second stop may shorten the grace"


@pytest.mark.parametrize("mode", ["pty", "pipe"])
def test_k4_a_stopped_program_goes_on_to_end_itself(factory: Factory, mode: str) -> None:
    code = "trap 'echo CLEAN; exit 3' TERM; echo READY; while :; do sleep 0.01; done"
    holder = factory.hold(shell(code), mode=mode)
    client = holder.ready()
    os.kill(holder.child, signal.SIGSTOP)
    wait_until(lambda: process_state(holder.child) == "T")
    client.send("X", {"grace": 1000})  # it takes notice: nobody waits for the kill
    record = client.read_until("E").json
    assert (record["code"], record["signal"]) == (3, None)
    assert "CLEAN" in record["last_output"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pty", "pipe"])
@pytest.mark.parametrize("end", ["gently", "deaf"])
def test_k4_stop_leaves_no_descendant(factory: Factory, mode: str, end: str) -> None:
    where = factory.root / "pids"
    where.mkdir()
    wait = "signal.pause()" if end == "gently" else "signal.signal(15, 1)\nwhile 1: signal.pause()"
    holder = factory.hold(python(f"{FAMILY}open('up', 'w')\n{wait}", where), mode=mode)
    pids = family(where)
    wait_until((factory.root / "up").exists)
    record = holder.connect().stop(1)
    assert record["signal"] in {signal.SIGTERM, signal.SIGKILL}
    assert_all_gone(factory, holder, pids)


def test_k4_who_got_no_signal_does_not_prolong_the_grace(factory: Factory) -> None:
    code = "setsid sleep 1000 & setsid -f sleep 1001; sleep 1002 & echo READY; wait"
    holder = factory.hold(shell(code))
    client = holder.ready()
    wait_until(lambda: len(marked(factory.root)) == 6)
    began = time.monotonic()
    client.stop(300)
    assert time.monotonic() - began < 200
    assert_all_gone(factory, holder, {})


def test_k4_the_others_of_the_group_have_the_whole_grace(factory: Factory) -> None:
    code = """
bash -c 'trap "sleep 0.3; echo CLEAN >clean; exit" TERM; echo READY; while :; do sleep 0.05; done' &
wait
"""
    # With a terminal the kernel hangs up on them when its first process ends.
    holder = factory.hold(shell(code), mode="pipe")
    began = time.monotonic()
    holder.ready().stop(300)
    assert time.monotonic() - began < 200
    assert (factory.root / "clean").read_text() == "CLEAN\n"
    assert_all_gone(factory, holder, {})


def test_k4_descendants_that_go_on_forking_are_ended(factory: Factory) -> None:
    code = """
import os, signal, sys, time
until = time.monotonic() + 90
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
            time.sleep(0.002)
        os._exit(0)
open("up", "w")
signal.pause()
"""
    holder = factory.hold(python(code))
    wait_until((factory.root / "up").exists)
    began = time.monotonic()
    holder.connect().stop(0.2)
    assert time.monotonic() - began < 60
    assert_all_gone(factory, holder, {})


def test_k4_sigterm_to_the_holder_stops_the_program(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    os.kill(holder.pid, signal.SIGTERM)
    record = client.read_until("E").json
    assert holder.wait_gone() == record
    assert not alive(holder.child)


def test_b10_a_second_sigterm_does_not_hide_that_the_holder_was_told_to_end(
    factory: Factory,
) -> None:
    code = "trap 'echo HEARD' TERM; echo READY; while :; do read x; echo READ; done"
    holder = factory.hold(shell(code))
    client = holder.ready()
    os.kill(holder.pid, signal.SIGTERM)
    client.collect(b"HEARD")
    os.kill(holder.pid, signal.SIGTERM)
    client.type(b"x\r")
    client.collect(b"READ")  # by then the holder has heard the second one, too
    assert client.stop(0)["terminated"] is True


def test_b10_sigterm_to_a_holder_whose_program_is_being_stopped_is_no_end_of_its_own(
    factory: Factory,
) -> None:
    holder = factory.hold(shell("trap 'echo HEARD' TERM; echo READY; while :; do read x; done"))
    client = holder.ready()
    client.send("X", {"grace": 300})
    client.collect(b"HEARD")
    os.kill(holder.pid, signal.SIGTERM)
    assert "terminated" not in client.stop(0)


def test_k1_signals_of_a_terminal_do_not_end_a_holder(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        os.kill(holder.pid, number)
    client.type(b"a")
    client.collect(b"61")


@pytest.mark.parametrize("mode", ["pty", "pipe"])
def test_k4_a_holder_killed_with_9_takes_the_program_with_it(factory: Factory, mode: str) -> None:
    code = (
        "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\nopen('up', 'w')\n"
    )
    holder = factory.hold(python(code + "while True: signal.pause()"), mode=mode)
    wait_until((factory.root / "up").exists)
    os.kill(holder.pid, signal.SIGKILL)
    wait_until(lambda: not alive(holder.child))
    assert not (holder.session / "exit.json").exists()


def test_k4_a_program_ends_though_its_session_directory_is_gone(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    shutil.rmtree(holder.session)
    client.type(b"a")
    client.collect(b"61")
    assert client.stop()["signal"] in {signal.SIGTERM, signal.SIGKILL}
    wait_until(lambda: not alive(holder.pid))
    assert not holder.socket.exists()


def test_k4_an_old_exit_record_is_gone_or_replaced(factory: Factory) -> None:
    request = factory.request(["/bin/sleep", "1000"])
    session = Path(request["session"])
    (session / "exit.json").write_text(json.dumps({"version": 1, "code": 77}))
    holder = factory.holder(request, factory.ask(request))
    record = holder.connect().stop()
    assert holder.wait_gone() == record


def test_k4_a_client_that_reads_at_its_leisure_gets_the_end(factory: Factory) -> None:
    code = (
        RAW + "os.write(1, b'READY'); os.read(0, 1); [os.write(1, b'x' * 4000) for _ in range(250)]"
    )
    holder = factory.hold(python(code))
    client = holder.ready()
    slow = holder.connect(rcvbuf=4096)
    slow.attach(replay=False)
    client.type(b"g")
    client.read_until("E")
    for _ in range(12):
        quiet_for(0.2)  # longer in all than a client that reads nothing is waited for
        slow.buffer += slow.socket.recv(80_000)
    assert slow.read_until("E").json["code"] == 0
    assert slow.output == b"x" * 1_000_000


def test_k4_the_end_is_not_kept_waiting_by_a_client_that_does_not_read(factory: Factory) -> None:
    code = (
        RAW + "os.write(1, b'READY'); os.read(0, 1); [os.write(1, b'x' * 4000) for _ in range(500)]"
    )
    holder = factory.hold(python(code))
    slow = holder.connect(rcvbuf=4096)
    slow.attach(replay=False)
    driver = holder.ready()
    driver.type(b"g")
    driver.read_until("E")
    holder.wait_gone()


def test_k4_a_socket_that_another_took_over_is_not_removed(factory: Factory) -> None:
    first = factory.hold(HEXER)
    client = first.ready()
    first.socket.unlink()
    second = factory.hold(HEXER, socket=str(first.socket))
    client.stop()
    first.wait_gone()
    second.ready()
