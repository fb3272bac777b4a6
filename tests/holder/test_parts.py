"""The parts of a holder that need no process: requests, frames, queues, a terminal's words."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.holder.answers import cut_half_answer, without_answers
from bullpen.holder.client import QUEUE_BYTES, Client
from bullpen.holder.frames import HEADER, LIMIT, BrokenFrameError, FrameReader, frame
from bullpen.holder.log import open_file
from bullpen.holder.request import RING_MOST, StartError, parse_request
from bullpen.holder.ring import Ring, without_queries

GOOD: dict[str, object] = {
    "name": "amy",
    "socket": "/s",
    "session": "/d",
    "argv": ["sh", ""],
    "env": {"A": ""},
    "cwd": "/",
}

RIGHT: list[tuple[str, object]] = [
    ("socket", "/" + "s" * 106),
    ("rows", 1),
    ("rows", 65535),
    ("umask", 0),
    ("umask", 0o777),
    ("log_bytes", 1),
    ("ring_bytes", RING_MOST),
    ("mode", "pipe"),
    ("tag", ""),
    ("name", "\udcff"),
]
WRONG: list[tuple[str, object]] = [
    ("name", ""),
    ("name", 1),
    ("name", "a\0b"),
    ("name", "\ud800"),
    ("socket", "relative"),
    ("socket", "/" + "s" * 107),
    ("socket", "/" + "ö" * 54),
    ("session", "relative"),
    ("argv", []),
    ("argv", [""]),
    ("argv", "sh"),
    ("argv", ["sh", 1]),
    ("argv", ["sh", "a\0b"]),
    ("env", ["A"]),
    ("env", {"A=B": "c"}),
    ("env", {"": "c"}),
    ("env", {"A": 1}),
    ("env", {"A": "b\0c"}),
    ("cwd", "relative"),
    ("mode", "tty"),
    ("rows", 0),
    ("rows", 65536),
    ("rows", True),
    ("rows", 1.0),
    ("cols", 0),
    ("umask", -1),
    ("umask", 0o1000),
    ("log_bytes", 0),
    ("ring_bytes", 0),
    ("ring_bytes", RING_MOST + 1),
    ("tag", None),
]


@pytest.mark.parametrize(("field", "value"), RIGHT)
def test_a_request_at_its_limits_is_taken(field: str, value: object) -> None:
    assert getattr(parse_request({**GOOD, field: value}), field) == value


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_request_beyond_its_limits_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(StartError, match=f": {field}$") as caught:
        parse_request({**GOOD, field: value})
    assert caught.value.kind == "invalid"


@pytest.mark.parametrize("field", GOOD)
def test_a_request_without_what_it_needs_is_refused(field: str) -> None:
    with pytest.raises(StartError, match=f": {field}$"):
        parse_request({name: value for name, value in GOOD.items() if name != field})


def test_fields_of_later_versions_are_passed_over() -> None:
    assert parse_request({**GOOD, "later": 1, "do": "hold"}).name == "amy"


# ── frames ──


def test_the_largest_frame_is_read_and_one_byte_more_is_none() -> None:
    reader = FrameReader()
    assert reader.feed(frame(b"O", b"x" * LIMIT)) == [(b"O", b"x" * LIMIT)]
    with pytest.raises(BrokenFrameError):
        reader.feed(HEADER.pack(b"O", LIMIT + 1))


@pytest.mark.parametrize("size", [1, 4, 5, 6, 100])
def test_frames_come_whole_however_they_are_cut(size: int) -> None:
    sent = frame(b"A") + frame(b"I", b"hello") + frame(b"I", b"")
    reader, found = FrameReader(), []
    for start in range(0, len(sent), size):
        found += reader.feed(sent[start : start + size])
    assert found == [(b"A", b""), (b"I", b"hello"), (b"I", b"")]
    assert not reader.buffer


def test_the_largest_replay_fits_a_frame() -> None:
    ring = Ring(RING_MOST)
    every_mode = b"".join(b"\x1b[?%dh" % mode for mode in (1, 47, 1000, 1006, 1049, 2004, 2048))
    ring.write(memoryview(every_mode + b"\x1b[>1u" * 20 + b"x" * RING_MOST))
    assert len(ring.replay()) <= LIMIT


def test_what_the_ring_forgets_of_modes_is_in_the_replay() -> None:
    ring = Ring(16)
    ring.write(memoryview(b"\x1b[?2004h" + b"y" * 40 + b"\n"))
    assert ring.replay().startswith(b"\x1b[?2004h")
    assert ring.last(4) == b"yyy\n"


def test_k3_the_log_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        os.close(open_file(str(tmp_path / "output.log")))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "output.log").stat().st_mode) == 0o600


# ── a client that does not read ──


@pytest.fixture
def line() -> Iterator[tuple[Client, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Client(os.dup(ours.fileno())), theirs
    ours.close()
    theirs.close()


def test_a_slow_client_gets_the_end_of_its_frame_the_answers_and_why(
    line: tuple[Client, socket.socket],
) -> None:
    client, theirs = line
    client.live = True
    output, answer = frame(b"O", b"o" * LIMIT), frame(b"K", b"{}")
    client.send(output)
    assert client.sent, "the first is half sent"
    client.send(answer)
    while not client.is_slow:
        client.send(output)
    assert client.queued > QUEUE_BYTES
    client.drop()
    assert not client.live
    assert client.queue[0] is output, "half of it is sent"
    assert client.queued == sum(map(len, client.queue)) - client.sent
    reader, found = FrameReader(), []
    theirs.setblocking(False)
    while client.queue:
        client.flush()
        found += reader.feed(theirs.recv(1 << 20))
    while len(found) < 3:
        found += reader.feed(theirs.recv(1 << 20))
    os.close(client.descriptor)
    assert [kind for kind, _ in found] == [b"O", b"K", b"D"]
    assert found[0][1] == b"o" * LIMIT


# ── a terminal's answers, and questions to it ──

ANSWERS = {
    "attributes": b"\x1b[?62;22c",
    "cursor": b"\x1b[12;40R",
    "status": b"\x1b[0n",
    "mode": b"\x1b[?2026;2$y",
    "keyboard": b"\x1b[?1u",
    "size": b"\x1b[4;600;800t",
    "graphics": b"\x1b[?1;0;256S",
    "colour": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    "colour, old end": b"\x1b]10;rgb:ffff/ffff/ffff\x07",
    "version": b"\x1bP>|xterm(370)\x1b\\",
    "capability": b"\x1bP1+r544e=78\x1b\\",
}


@pytest.mark.parametrize("which", ANSWERS)
def test_an_answer_of_the_terminal_is_told_from_keys(which: str) -> None:
    answer = ANSWERS[which]
    assert without_answers(b"a" + answer + b"\x1b[A") == b"a\x1b[A"
    for cut in range(3, len(answer)):
        typed, half = cut_half_answer(without_answers(b"a" + answer[:cut]))
        assert (typed, half) == (b"a", answer[:cut]), cut


@pytest.mark.parametrize("key", [b"\x1b", b"\x1b[", b"\x1b[A", b"\x1bOP", b"\x1b[3~", b"\x1b[1;5C"])
def test_a_key_is_no_answer(key: bytes) -> None:
    assert cut_half_answer(without_answers(key)) == (key, b"")


QUESTIONS = {
    "attributes": b"\x1b[c",
    "second attributes": b"\x1b[>0c",
    "version": b"\x1b[>q",
    "keyboard": b"\x1b[?u",
    "cursor": b"\x1b[6n",
    "mode": b"\x1b[?2026$p",
    "size": b"\x1b[14t",
    "graphics": b"\x1b[?1;1;0S",
    "parameters": b"\x1b[x",
    "colour": b"\x1b]11;?\x07",
    "clipboard": b"\x1b]52;c;?\x1b\\",
    "capability": b"\x1bP+q544e\x1b\\",
    "who": b"\x1bZ",
    "enquiry": b"\x05",
}


@pytest.mark.parametrize("which", QUESTIONS)
def test_a_question_to_the_terminal_is_not_asked_again(which: str) -> None:
    shown = b"\x1b[31mred\x1b[0m"
    assert without_queries(shown + QUESTIONS[which] + shown) == shown + shown
