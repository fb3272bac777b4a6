"""Starting: what the factory answers, what a program is given, what a failure leaves behind."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen.proc import start_time
from tests.holder.factory import MARK, Factory, marked
from tests.holder.programs import HEXER, RAW, python, shell
from tests.modes import mode_of
from tests.processes import alive, children_of, process_state, wait_idle
from tests.threads import meanwhile
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def said(factory: Factory, argv: list[str], **fields: Any) -> str:
    """What the program wrote until it ended."""
    holder = factory.hold(argv, **fields)
    holder.wait_gone()
    return holder.log().decode().replace("\r\n", "\n")


# Answers


def test_k6_the_factory_answers_a_ping_and_its_socket_is_private(factory: Factory) -> None:
    assert factory.ask({"do": "ping"}) == {"ok": True, "version": 1, "pid": factory.pid}
    assert mode_of(factory.socket) == 0o600


def test_k1_a_program_is_held_and_the_greeting_tells_about_it(factory: Factory) -> None:
    before = time.time()
    request = factory.request(["/bin/cat"], name="anna", rows=30, cols=100)
    reply = factory.ask(request)
    assert {key: reply[key] for key in ("ok", "version")} == {"ok": True, "version": 1}
    assert alive(reply["pid"])
    assert os.path.basename(os.readlink(f"/proc/{reply['child']}/exe")) == "cat"  # noqa: PTH119, PTH115
    assert mode_of(Path(request["socket"])) == 0o600

    client = factory.holder(request, reply).connect()
    greeting = client.seen[0].json
    assert before - 0.01 <= greeting.pop("started") <= time.time()
    assert greeting == {
        "version": 1,
        "name": "anna",
        "pid": reply["pid"],
        "child": reply["child"],
        "mode": "pty",
        "rows": 30,
        "cols": 100,
        "tag": "",
    }


def test_k6_leave_ends_the_factory_and_its_holders_stay(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    assert factory.ask({"do": "leave"})["ok"]
    assert factory.process
    assert factory.process.wait(60) == 0
    client = holder.ready()
    client.type(b"a")
    client.collect(b"61")


def test_k6_sigterm_ends_the_factory_and_its_holders_stay(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    os.kill(factory.pid, signal.SIGTERM)
    assert factory.process
    assert factory.process.wait(60) == 0
    holder.ready()


def test_k6_one_that_leaves_late_leaves_its_successor_reachable(factory: Factory) -> None:
    first = factory.process
    assert first
    factory.start()

    def is_reached() -> bool:
        with contextlib.suppress(OSError):
            return bool(factory.ask({"do": "ping"})["pid"] == factory.pid)
        return False

    wait_until(is_reached)
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(60) == 0
    assert is_reached()


def test_k6_a_factory_leaves_nothing_beside_its_socket(factory: Factory) -> None:
    assert list(factory.root.iterdir()) == [factory.socket]
    assert factory.ask({"do": "leave"})["ok"]
    assert factory.process
    factory.process.wait(60)
    # Which may be another one's by then.
    assert list(factory.root.iterdir()) == [factory.socket]


def test_k1_the_factory_killed_with_9_alone_disturbs_no_holder(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    client = holder.ready()
    factory.end()
    client.type(b"a")
    client.collect(b"61")
    other = holder.ready()
    other.type(b"b")
    other.collect(b"62")
    client.collect(b"6162")
    with socket.socket(socket.AF_UNIX) as line, pytest.raises(ConnectionRefusedError):
        line.connect(str(factory.socket))
    assert client.stop()["signal"] in {signal.SIGTERM, signal.SIGKILL}


def test_k1_killing_the_factorys_group_or_session_disturbs_no_holder(factory: Factory) -> None:
    holder = factory.hold(HEXER)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if factory.process and factory.process.poll() is None:
            os.killpg(factory.pid, number)
    assert factory.process
    factory.process.wait(60)
    client = holder.ready()
    client.type(b"a")
    client.collect(b"61")


def test_k6_a_new_factory_replaces_one_that_was_killed(factory: Factory) -> None:
    old = factory.hold(HEXER)
    factory.end()
    assert factory.socket.exists()
    factory.start()
    new = factory.hold(HEXER)
    for holder in (old, new):
        holder.ready().type(b"a")


def test_k1_a_holder_keeps_no_pipe_of_whoever_started_the_factory(bare_factory: Factory) -> None:
    bare_factory.start(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    holder = bare_factory.hold(HEXER)
    holder.ready()
    bare_factory.end()
    assert bare_factory.process
    out, _ = bare_factory.process.communicate(timeout=60)
    assert out == b""
    assert alive(holder.pid)


def test_k6_the_factory_reaps_holders_that_ended(factory: Factory) -> None:
    for holder in [factory.hold(["/bin/true"]) for _ in range(5)]:
        holder.wait_gone()
    factory.ask({"do": "ping"})
    wait_until(lambda: children_of(factory.pid) == [])


def test_k6_a_silent_or_broken_caller_does_not_keep_others_waiting(factory: Factory) -> None:
    lines = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    try:
        for number, line in enumerate(lines):
            line.connect(str(factory.socket))
            line.sendall(b'{"do": "pi'[:number])
        # One after the other, each would be waited for: ten seconds.
        assert factory.ask({"do": "ping"}, 30)["ok"]
        lines[0].close()
        lines[4].close()
        assert factory.ask({"do": "ping"})["ok"]
    finally:
        for line in lines:
            line.close()


def test_k6_a_request_in_many_pieces_is_understood(factory: Factory) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(str(factory.socket))
        for byte in b'{"do": "ping"}\n':
            line.sendall(bytes([byte]))
        assert json.loads(line.recv(1000))["ok"]


def test_k6_an_idle_factory_costs_no_cpu(factory: Factory) -> None:
    factory.hold(HEXER).ready()
    wait_idle(factory.pid)


def test_k6_many_requests_at_once_are_all_served(factory: Factory) -> None:
    requests = [factory.request(["/bin/cat"]) for _ in range(20)]
    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(factory.ask, requests))
    assert all(reply["ok"] for reply in replies)
    assert len({reply["child"] for reply in replies}) == 20


# What is known of a run


def test_k1_a_tag_is_told_in_the_greeting_and_in_both_records(factory: Factory) -> None:
    holder = factory.hold(HEXER, tag="run 7 ü")
    client = holder.connect()
    assert client.seen[0].json["tag"] == "run 7 ü"
    assert client.stop()["tag"] == "run 7 ü"
    assert holder.wait_gone()["tag"] == "run 7 ü"
    assert json.loads((holder.session / "holder.json").read_text())["tag"] == "run 7 ü"


def test_k1_a_long_name_and_tag_are_kept(factory: Factory) -> None:
    name, tag = "n" * 300_000, "t" * 300_000
    greeting = factory.hold(["/bin/cat"], name=name, tag=tag).connect().seen[0].json
    assert (greeting["name"], greeting["tag"]) == (name, tag)


def test_k1_who_holds_a_program_is_on_disk_before_the_answer(factory: Factory) -> None:
    holder = factory.hold(HEXER, tag="x")
    path = holder.session / "holder.json"
    record = json.loads(path.read_text())
    assert mode_of(path) == 0o600
    assert record == {
        "version": 1,
        "pid": holder.pid,
        "start_time": start_time(holder.pid),
        "child": holder.child,
        "child_start_time": start_time(holder.child),
        "tag": "x",
        "started": holder.connect().seen[0].json["started"],
    }


def test_k1_who_holds_a_program_is_on_disk_before_the_program_runs(factory: Factory) -> None:
    request = factory.request(shell('cat "$0"/holder.json; echo; ls "$0"'))
    request["argv"][4] = request["session"]
    (Path(request["session"]) / "exit.json").write_text("{}")
    holder = factory.holder(request, factory.ask(request))
    holder.wait_gone()
    record, *files = holder.log().decode().split("\r\n")
    assert json.loads(record)["child"] == holder.child
    assert "exit.json" not in files


def test_k5_a_program_whose_holder_cannot_be_recorded_does_not_run(factory: Factory) -> None:
    ran = factory.root / "ran"
    request = factory.request(["/bin/touch", str(ran)])
    blocked = Path(request["session"], "holder.json.new")
    blocked.mkdir()
    reply = factory.ask(request)
    assert reply["error"] == "failed", reply
    assert list(Path(request["session"]).iterdir()) == [blocked]
    wait_until(lambda: marked(factory.root) == {factory.pid})
    assert not ran.exists()


def test_k4_the_record_of_an_earlier_run_is_gone_while_the_next_one_runs(factory: Factory) -> None:
    first = factory.hold(["/bin/true"], tag="1")
    assert first.wait_gone()["tag"] == "1"
    second = factory.hold(HEXER, session=str(first.session), tag="2")
    assert not (second.session / "exit.json").exists()
    assert json.loads((second.session / "exit.json.old").read_text())["tag"] == "1"
    second.connect().stop()
    assert second.wait_gone()["tag"] == "2"


def test_k4_a_session_is_free_once_its_holder_is_killed(factory: Factory) -> None:
    code = "trap '' HUP TERM; setsid sleep 1000 & echo $! >pid.new; mv pid.new pid; read"
    holder = factory.hold(shell(code))
    note = factory.root / "pid"
    wait_until(note.exists)
    grandchild = int(note.read_text())
    # The job's shell becomes setsid, and that sleep: all in one process, as a leader of a group
    # that setsid need not fork from.
    wait_until(lambda: Path(f"/proc/{grandchild}/comm").read_text() == "sleep\n")
    assert not is_free(holder.session)
    os.kill(holder.pid, signal.SIGKILL)
    wait_until(lambda: not alive(holder.pid))
    assert is_free(holder.session)
    assert alive(grandchild)


def is_free(session: Path) -> bool:
    """Whether no holder has its lock on it."""
    descriptor = os.open(session, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_k5_one_who_only_looks_whether_a_session_is_free_is_in_nobodys_way(
    factory: Factory,
) -> None:
    session = factory.root / "looked-at"
    session.mkdir()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_free(session)

    with meanwhile(look):
        try:
            for _ in range(10):
                factory.hold(["/bin/true"], session=str(session)).wait_gone()
        finally:
            over.set()


# What the program is given


def test_k1_the_program_sees_exactly_its_environment(factory: Factory) -> None:
    env = {"A": "1", "EMPTY": "", "Ü": "ä = ö", MARK: str(factory.root)}
    text = said(factory, ["/usr/bin/env", "-0"], env=env)
    assert dict(line.split("=", 1) for line in text.rstrip("\0").split("\0")) == env


def test_k1_the_program_sees_its_directory_and_umask(factory: Factory) -> None:
    where = factory.root / "with space ü"
    where.mkdir()
    text = said(factory, shell("/bin/pwd -P; umask"), cwd=str(where), umask=0o077)
    assert text.split("\n")[:2] == [str(where), "0077"]
    assert said(factory, shell("umask")) == "0022\n"


@pytest.mark.parametrize("size", [(24, 80), (50, 132), (2, 300)])
def test_k1_the_program_has_a_terminal_of_its_own_with_the_given_size(
    factory: Factory, size: tuple[int, int]
) -> None:
    rows, cols = size
    holder = factory.hold(
        shell("stty size; tty; ps -o tty=,sid=,pgid=,tpgid= -p $$; : >/dev/tty && echo opened"),
        rows=rows,
        cols=cols,
    )
    holder.wait_gone()
    given, terminal, ids, opened = holder.log().decode().split("\r\n")[:4]
    assert given == f"{rows} {cols}"
    assert terminal.startswith("/dev/")
    short, sid, pgid, tpgid = ids.split()
    assert f"/dev/{short}" == terminal
    assert int(sid) == holder.child
    assert int(pgid) == holder.child
    assert int(tpgid) == holder.child
    assert opened == "opened"


@pytest.mark.parametrize("mode", ["pty", "pipe"])
def test_k1_the_program_inherits_no_descriptor_and_no_ignored_signal(
    factory: Factory, mode: str
) -> None:
    code = """
import os
print(sorted(os.listdir("/proc/self/fd")))
"""
    # The fourth is the directory that is being listed.
    assert said(factory, python(code), mode=mode) == "['0', '1', '2', '3']\n"
    text = said(factory, ["/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"], mode=mode)
    values = {line.split()[0]: signals(line) for line in text.splitlines()}
    assert values == {"SigBlk:": 0, "SigIgn:": 0}


def test_k1_a_factory_started_with_signals_ignored_passes_that_on_to_no_program(
    bare_factory: Factory,
) -> None:
    # A shell script that starts the hub with & has SIGINT and SIGQUIT ignored in it.
    bare_factory.start(before=("/bin/sh", "-c", 'trap "" INT QUIT HUP TERM; exec "$@"', "sh"))
    text = said(bare_factory, ["/bin/grep", "SigIgn", "/proc/self/status"])
    assert signals(text) == 0


def test_k1_a_factory_started_with_signals_blocked_passes_that_on_to_no_program(
    bare_factory: Factory,
) -> None:
    code = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2})
os.execv(sys.argv[1], sys.argv[1:])
"""
    bare_factory.start(before=tuple(python(code)))
    for mode in ("pty", "pipe"):
        text = said(bare_factory, ["/bin/grep", "SigBlk", "/proc/self/status"], mode=mode)
        assert signals(text) == 0


def signals(line: str) -> int:
    """The set in a line of /proc/self/status, without 32 and 33: they are the C library's
    own, whoever starts us may have left them ignored, and no program can change that.
    """
    return int(line.split()[1], 16) & ~(0b11 << 31)


def test_k1_files_are_private_whatever_the_umask(bare_factory: Factory) -> None:
    bare_factory.start(umask=0)
    assert mode_of(bare_factory.socket) == 0o600
    holder = bare_factory.hold(shell("echo hello; read"), umask=0)
    assert mode_of(holder.socket) == 0o600
    holder.attached().stop()
    holder.wait_gone()
    files = {path.name: mode_of(path) for path in holder.session.iterdir()}
    assert files.pop("output.timing") in {0o600, 0o644}
    assert files == {"output.log": 0o600, "exit.json": 0o600, "holder.json": 0o600}


def test_k5_a_program_is_looked_up_in_the_path_of_its_own_environment(factory: Factory) -> None:
    tools = factory.root / "tools"
    tools.mkdir()
    program = tools / "only-here"
    program.write_text('#!/bin/sh\necho "$0 $1"\n')
    program.chmod(0o755)
    assert factory.ask(factory.request(["only-here"]))["error"] == "not_found"
    env = factory.env(PATH=f"/nowhere:{tools}")
    assert said(factory, ["only-here", "x y"], env=env) == f"{program} x y\n"
    assert said(factory, ["./tools/only-here", "z"]) == "./tools/only-here z\n"


def test_k1_words_are_passed_as_they_are(factory: Factory) -> None:
    words = ["", " ", "ä\n'\"$(id)", "*", "-x", "\\", "x" * 100_000]
    code = "import json, sys; json.dump(sys.argv[1:], open('words.json', 'w'))"
    factory.hold(python(code, *words)).wait_gone()
    assert json.loads((factory.root / "words.json").read_text()) == words


# Failures

Spoil = Callable[[Path], dict[str, Any]]


def not_executable(root: Path) -> dict[str, Any]:
    (root / "plain").write_text("#!/bin/sh\n")
    (root / "plain").chmod(0o644)
    return {"argv": [str(root / "plain")]}


def bad_interpreter(root: Path) -> dict[str, Any]:
    (root / "script").write_text("#!/no/such/shell\n")
    (root / "script").chmod(0o755)
    return {"argv": [str(root / "script")]}


def no_format(root: Path) -> dict[str, Any]:
    (root / "noise").write_bytes(b"\x01\x02\x03\x04 no program")
    (root / "noise").chmod(0o755)
    return {"argv": [str(root / "noise")]}


SPOILT: dict[str, tuple[Spoil, str]] = {
    "no such program": (lambda _: {"argv": ["/no/such/program"]}, "not_found"),
    "no such name": (lambda _: {"argv": ["no-such-program"]}, "not_found"),
    "not executable": (not_executable, "denied"),
    "a directory": (lambda root: {"argv": [str(root)]}, "denied"),
    "no interpreter": (bad_interpreter, "not_found"),
    "no format": (no_format, "failed"),
    "too long": (lambda _: {"argv": ["/bin/true", "x" * 200_000]}, "failed"),
    "no cwd": (lambda root: {"cwd": str(root / "none")}, "not_found"),
    "cwd is a file": (lambda _: {"cwd": "/etc/passwd"}, "not_found failed invalid"),
    "no session": (lambda root: {"session": str(root / "none")}, "not_found"),
    "session is a file": (lambda _: {"session": "/etc/passwd"}, "not_found failed invalid"),
    "no directory for the socket": (lambda root: {"socket": str(root / "no/h")}, "not_found"),
    "socket path too long": (
        lambda root: {"socket": str(root / ("h" * 150))},
        "invalid failed",
    ),
    "argv empty": (lambda _: {"argv": []}, "invalid"),
    "argv with an empty program": (lambda _: {"argv": [""]}, "invalid not_found"),
    "argv with NUL": (lambda _: {"argv": ["/bin/true", "a\0b"]}, "invalid"),
    "argv is text": (lambda _: {"argv": "/bin/true"}, "invalid"),
    "argv with a number": (lambda _: {"argv": ["/bin/true", 1]}, "invalid"),
    "argv with half a surrogate": (lambda _: {"argv": ["/bin/true", "\ud800"]}, "invalid"),
    "env with NUL": (lambda _: {"env": {"A": "a\0b"}}, "invalid"),
    "env with = in a name": (lambda _: {"env": {"A=B": "c"}}, "invalid"),
    "env with an empty name": (lambda _: {"env": {"": "c"}}, "invalid"),
    "env with a number": (lambda _: {"env": {"A": 1}}, "invalid"),
    "env is a list": (lambda _: {"env": ["A=1"]}, "invalid"),
    "relative cwd": (lambda _: {"cwd": "."}, "invalid"),
    "relative socket": (lambda _: {"socket": "h"}, "invalid"),
    "relative session": (lambda _: {"session": "s1"}, "invalid"),
    "cwd with NUL": (lambda _: {"cwd": "/tmp\0"}, "invalid"),
    "socket with NUL": (lambda root: {"socket": str(root / "h\0x")}, "invalid"),
    "unknown mode": (lambda _: {"mode": "tty"}, "invalid"),
    "no rows": (lambda _: {"rows": 0}, "invalid"),
    "negative columns": (lambda _: {"cols": -1}, "invalid"),
    "too many rows": (lambda _: {"rows": 65536}, "invalid"),
    "rows as text": (lambda _: {"rows": "24"}, "invalid"),
    "umask as text": (lambda _: {"umask": "022"}, "invalid"),
    "negative log_bytes": (lambda _: {"log_bytes": -1}, "invalid"),
    "ring_bytes as text": (lambda _: {"ring_bytes": "x"}, "invalid"),
    "name is a number": (lambda _: {"name": 3}, "invalid"),
    "tag is a number": (lambda _: {"tag": 3}, "invalid"),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("what", SPOILT)
def test_k5_a_start_that_fails_says_why_and_leaves_nothing(factory: Factory, what: str) -> None:
    spoil, kinds = SPOILT[what]
    request = {**factory.request(["/bin/cat"]), **spoil(factory.root)}
    before = set(factory.root.iterdir())
    reply = factory.ask(request)
    assert reply["ok"] is False, reply
    assert reply["error"] in kinds.split(), reply
    assert reply["message"]
    assert set(factory.root.iterdir()) == before, "a socket or a file is left"
    assert list((factory.root / "s1").iterdir()) == []
    wait_until(lambda: marked(factory.root) == {factory.pid})
    assert factory.ask({"do": "ping"})["ok"]


@pytest.mark.parametrize("field", ["name", "socket", "session", "argv", "env", "cwd"])
def test_k5_a_required_field_that_is_missing_is_named(factory: Factory, field: str) -> None:
    request = factory.request(["/bin/cat"])
    del request[field]
    reply = factory.ask(request)
    assert reply["error"] == "invalid"
    assert field in reply["message"]


def test_k5_a_field_of_a_later_version_is_passed_over(factory: Factory) -> None:
    factory.hold(HEXER, colour="blue", deep={"a": [1]}).ready()


def test_k5_a_start_that_fails_leaves_the_factory_no_children(factory: Factory) -> None:
    for _ in range(10):
        assert factory.ask(factory.request(["/no/such"]))["error"] == "not_found"
    wait_until(lambda: factory.ask({"do": "ping"})["ok"] and children_of(factory.pid) == [])


def test_k5_a_failing_start_in_an_old_session_keeps_what_is_there(factory: Factory) -> None:
    request = factory.request(["/no/such"])
    session = Path(request["session"])
    (session / "exit.json").write_text("{}")
    (session / "holder.json").write_text("[]")
    (session / "output.log").write_text("old")
    assert factory.ask(request)["error"] == "not_found"
    assert (session / "exit.json").read_text() == "{}"
    assert (session / "holder.json").read_text() == "[]"
    assert not list(session.glob("*.old")) + list(session.glob("*.new"))
    assert (session / "output.log").read_text() == "old"


@pytest.mark.parametrize("name", ["output.log", "output.timing", "stderr.log"])
def test_k5_a_log_that_cannot_be_opened_leaves_nothing(factory: Factory, name: str) -> None:
    request = factory.request(["/bin/cat"], mode="pipe")
    (Path(request["session"]) / name).mkdir()
    reply = factory.ask(request)
    assert reply["error"] == "failed", reply
    assert [path.name for path in Path(request["session"]).iterdir()] == [name]
    assert not Path(request["socket"]).exists()
    wait_until(lambda: marked(factory.root) == {factory.pid})


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{\n",
        b"nonsense\n",
        b"[]\n",
        b"3\n",
        b"null\n",
        b"{}\n",
        b'{"do": "dance"}\n',
        b'{"do": ["hold"]}\n',
        b'{"do": {}}\n',
        b'{"do": "hold"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"do": "hold", "rows": ' + b"9" * 10_000 + b"}\n",
        b'{"do": NaN}\n',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_k5_a_request_that_makes_no_sense_is_invalid(factory: Factory, line: bytes) -> None:
    reply = factory.ask(line)
    assert (reply["ok"], reply["error"]) == (False, "invalid")
    assert marked(factory.root) == {factory.pid}
    assert factory.ask({"do": "ping"})["pid"] == factory.pid


def test_k5_an_oversized_request_is_refused(factory: Factory) -> None:
    reply = factory.ask_raw(b"x" * (64 << 20))
    assert reply == b"" or json.loads(reply)["error"] == "invalid"
    assert factory.ask({"do": "ping"})["ok"]


def test_k5_a_request_with_a_large_environment_is_served(factory: Factory) -> None:
    env = {f"NAME{number}": "x" * 1000 for number in range(500)}
    text = said(factory, ["/usr/bin/env", "-0"], env={**env, MARK: str(factory.root)})
    assert text.count("\0") == 501


# Sockets that are there already


def test_k5_a_second_holder_on_a_live_socket_is_refused(factory: Factory) -> None:
    first = factory.hold(HEXER)
    client = first.ready()
    request = factory.request(["/bin/cat"], socket=str(first.socket))
    reply = factory.ask(request)
    assert (reply["ok"], reply["error"]) == (False, "exists")
    assert list(Path(request["session"]).iterdir()) == []
    client.type(b"a")
    client.collect(b"61")
    first.ready().type(b"b")
    client.collect(b"6162")


def test_k5_a_second_holder_in_a_live_session_is_refused(factory: Factory) -> None:
    first = factory.hold(HEXER)
    client = first.ready()
    request = factory.request(["/bin/cat"], session=str(first.session))
    reply = factory.ask(request)
    assert (reply["ok"], reply["error"]) == (False, "exists")
    assert not Path(request["socket"]).exists()
    client.type(b"a")
    client.collect(b"61")
    assert first.log() == b"READY 61"


def test_k5_of_many_starts_on_one_socket_one_wins(factory: Factory) -> None:
    requests = [factory.request(["/bin/cat"], socket=str(factory.root / "h")) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(factory.ask, requests))
    assert sorted(reply.get("error", "") for reply in replies) == ["", *["exists"] * 7]
    (at,) = [number for number, reply in enumerate(replies) if reply["ok"]]
    holder = factory.holder(requests[at], replies[at])
    holder.connect()
    wait_until(lambda: marked(factory.root) == {factory.pid, holder.pid, holder.child})


def test_k5_a_failing_start_on_a_live_socket_does_not_remove_it(factory: Factory) -> None:
    first = factory.hold(HEXER)
    assert not factory.ask(factory.request(["/no/such"], socket=str(first.socket)))["ok"]
    first.ready()


def test_k5_the_stale_socket_of_a_dead_holder_is_replaced(factory: Factory) -> None:
    first = factory.hold(HEXER)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not alive(first.pid))
    assert first.socket.exists()
    second = factory.hold(HEXER, socket=str(first.socket))
    second.ready()


def test_k5_a_file_that_is_no_socket_is_not_replaced(factory: Factory) -> None:
    path = factory.root / "precious"
    path.write_text("text")
    reply = factory.ask(factory.request(["/bin/cat"], socket=str(path)))
    assert not reply["ok"]
    assert path.read_text() == "text"


def test_k5_a_program_that_ends_at_once_was_started(factory: Factory) -> None:
    for _ in range(10):
        holder = factory.hold(python(RAW + "os.write(1, b'x'); os._exit(7)"))
        assert holder.wait_gone()["code"] == 7
        assert process_state(holder.child) == "X", "reaped"
