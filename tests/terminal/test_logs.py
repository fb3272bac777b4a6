"""`bullpen logs` and `bullpen record`, of agents that run and that ended."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bullpen.cli.commands.logs import last_lines
from tests.holder.client import MIB
from tests.holder.factory import Holder
from tests.holder.feed import Feed
from tests.holder.programs import shell
from tests.processes import wait_idle
from tests.terminal.person import SECONDS
from tests.terminal.stage import Stage
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

COLOURED = shell(r"printf '\033[1;31mred\033[0m w\303\266rld\r\n10%%\r100%%\n'")


def ended(stage: Stage, name: str, argv: list[str], **fields: object) -> Holder:
    holder = stage.agent(name, argv, **fields)
    holder.wait_gone()
    return holder


@contextmanager
def following(stage: Stage, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [stage.bullpen, "logs", "-f", *words], env=stage.env(), stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def read_until(process: "subprocess.Popen[bytes]", wanted: bytes) -> bytes:
    assert process.stdout
    seen = bytearray()
    deadline = time.monotonic() + SECONDS
    while seen.find(wanted, max(len(seen) - 70_000, 0)) < 0:
        assert time.monotonic() < deadline, f"no {wanted!r} in {seen[-500:]!r}"
        if select.select([process.stdout], [], [], 0.1)[0]:
            piece = os.read(process.stdout.fileno(), 65536)
            assert piece, f"it ended after {seen[-500:]!r}"
            seen += piece
    return bytes(seen)


def test_k3_logs_are_text_or_bytes(stage: Stage) -> None:
    nobody = stage.run("logs")
    assert (nobody.returncode, b"no agent has left a log" in nobody.stderr) == (4, True)
    holder = ended(stage, "amy", COLOURED)
    assert stage.run("logs").stdout == stage.run("logs", "amy").stdout
    ended(stage, "bob", COLOURED)
    several = stage.run("logs")
    assert (several.returncode, several.stderr.decode()) == (
        2,
        "error: whose log?\nhint:  bullpen logs NAME · there are amy, bob\n",
    )
    assert stage.run("logs", "amy").stdout.decode() == "red wörld\n100%\n"
    assert stage.run("logs", "amy", "--raw").stdout == holder.log()
    assert b"\x1b[1;31m" in holder.log()


@pytest.mark.parametrize(
    ("count", "lines"), [(0, b""), (1, b"half"), (2, b"3\nhalf"), (9, b"1\n2\n3\nhalf")]
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_k3_the_last_lines_are_those_that_were_asked_for(
    count: int, lines: bytes, size: int
) -> None:
    text = b"1\n2\n3\nhalf"
    pieces = [text[begin : begin + size] for begin in range(0, len(text), size)]
    assert b"".join(last_lines(pieces, count)) == lines


def test_k3_the_last_lines_of_a_log_alone_are_printed(stage: Stage) -> None:
    ended(stage, "amy", shell("seq 100; printf half"))
    assert stage.run("logs", "-n", "2", "amy").stdout == b"100\nhalf\n"
    assert stage.run("logs", "-n", "2", "-f", "amy").stdout == b"99\n100\nhalf\n"


def test_k3_both_files_of_a_rotated_log_are_printed(stage: Stage) -> None:
    holder = ended(stage, "amy", shell("seq 1 30000"), log_bytes=100_000)
    kept = holder.log("output.log.1") + holder.log()
    assert len(kept) > 100_000
    assert stage.run("logs", "amy", "--raw").stdout == kept
    assert stage.run("logs", "amy").stdout == kept.replace(b"\r\n", b"\n")


def test_k3_following_ends_with_the_program_and_misses_nothing(stage: Stage) -> None:
    # Rotated while it is followed.
    code = "echo READY; read go; seq 1 20000; echo LAST"
    stage.agent("amy", shell(code), log_bytes=2 * MIB)
    with following(stage, "amy") as process:
        read_until(process, b"READY\n")
        typist = stage.person("attach", "amy")
        typist.wait_for(b"READY")
        typist.type(b"\r")
        said = read_until(process, b"LAST\n")
        assert process.wait(SECONDS) == 0
    numbers = [line for line in said.split() if line.isdigit()]
    assert numbers == [b"%d" % number for number in range(1, 20_001)]


def test_k3_following_shows_lines_as_they_come_and_rests_between(stage: Stage) -> None:
    feed = Feed(stage.factory, **stage.fields("amy"))
    with following(stage, "amy") as process:
        for number in range(20):
            feed.say(b"line %d\r\n" % number)
            assert read_until(process, b"line %d\n" % number)
        wait_idle(process.pid)  # it does not look again and again
    feed.close()


@pytest.mark.storm
def test_k3_a_reader_that_was_too_slow_still_sees_what_comes_later(stage: Stage) -> None:
    code = (
        "stty -echo; echo READY; read go; head -c 40000000 /dev/zero | tr '\\0' x; echo; echo MARK;"
    )
    holder = stage.agent("amy", shell(code + "read go; echo LATER; read go"))
    with following(stage, "amy") as process:
        read_until(process, b"READY")
        typist = holder.attached(replay=False)
        typist.type(b"\r")
        log = holder.session / "output.log"
        wait_until(lambda: b"MARK" in log.read_bytes()[-20:])
        read_until(process, b"MARK")
        typist.type(b"\r")
        read_until(process, b"LATER")
        typist.close()


def test_k3_following_one_that_ended_prints_and_ends(stage: Stage) -> None:
    ended(stage, "amy", COLOURED)
    done = stage.run("logs", "-f", "amy")
    assert done.returncode == 0
    assert done.stdout.decode() == "red wörld\n100%\n"


def test_k3_no_such_agent_names_the_near_one(stage: Stage) -> None:
    ended(stage, "developer", COLOURED)
    ended(stage, "amy", COLOURED)
    done = stage.run("logs", "develper")
    assert done.returncode == 4
    assert done.stderr.decode() == "error: no agent called develper · did you mean developer?\n"
    far = stage.run("logs", "xyzzy")
    assert far.stderr.decode() == "error: no agent called xyzzy · known: amy, developer\n"
    for verb in ("logs", "record"):
        outside = stage.run(verb, "../sessions/amy")
        assert outside.returncode == 4


def test_k3_a_recording_is_what_was_shown_when(stage: Stage) -> None:
    feed = Feed(stage.factory, **stage.fields("amy"), rows=30, cols=100)
    begin = time.monotonic()
    feed.say(b"\xc3", b"\xb6")  # the holder has read it by then
    after_first = time.monotonic()
    quiet_for(0.2)
    before_last = time.monotonic()
    feed.say(b"\xc3", b"\xb6")
    end = time.monotonic()
    header, *events = [json.loads(line) for line in stage.run("record", "amy").stdout.splitlines()]
    assert header["version"] == 2
    assert header["title"] == "amy"
    assert abs(header["timestamp"] - time.time()) < 100
    assert [text for _, _, text in events] == ["ö", "ö"]
    between = events[1][0] - events[0][0]
    assert before_last - after_first - 0.001 < between < end - begin + 0.001
    feed.close()


def test_k3_the_recording_of_a_running_agent_knows_its_size(stage: Stage) -> None:
    holder = stage.agent("amy", shell("echo READY; read go"), rows=30, cols=100)
    wait_until(lambda: b"READY" in holder.log())
    header, *_ = [json.loads(line) for line in stage.run("record", "amy").stdout.splitlines()]
    assert (header["height"], header["width"]) == (30, 100)


def test_k3_a_recording_of_rotated_logs_has_both(stage: Stage) -> None:
    holder = ended(stage, "amy", shell("seq 1 30000"), log_bytes=100_000)
    _, *events = [json.loads(line) for line in stage.run("record", "amy").stdout.splitlines()]
    kept = holder.log("output.log.1") + holder.log()
    assert "".join(text for _, _, text in events).encode() == kept


def test_h6_the_verbs_import_nothing_heavy(stage: Stage) -> None:
    ended(stage, "amy", COLOURED)
    for words in (["attach", "amy"], ["logs", "amy"], ["record", "amy"]):
        code = (
            f"import sys; from bullpen.cli.main import run; run({words});"
            "print(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=stage.env(),
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = {name.partition(".")[0] for name in done.stderr.split()}
        assert "click" in loaded
        assert not loaded & {
            "pydantic",
            "rich",
            "fastapi",
            "ruamel",
            "asyncio",
            "subprocess",
            "avt",
        }
