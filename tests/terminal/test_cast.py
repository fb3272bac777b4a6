"""Recordings: what was written, when, as asciinema reads it."""

import json
from io import BytesIO

from bullpen.terminal.cast import Header, cast, events

HEADER = Header(rows=24, cols=80, started=1_700_000_000.5, title="amy")


def lines_of(log: bytes, timing: bytes) -> list[object]:
    return [json.loads(line) for line in cast(HEADER, events(BytesIO(log).read, BytesIO(timing)))]


def test_k3_the_header_says_size_and_time() -> None:
    (header,) = lines_of(b"", b"")
    assert header == {
        "version": 2,
        "width": 80,
        "height": 24,
        "timestamp": 1_700_000_000,
        "title": "amy",
    }
    assert "timestamp" not in json.loads(Header(1, 2, None, "x").to_line())


def test_k3_pieces_come_at_their_time() -> None:
    assert lines_of(b"oneTWO!", b"0.500000 3\n1.250000 4\n")[1:] == [
        [0.5, "o", "one"],
        [1.75, "o", "TWO!"],
    ]


def test_k3_a_character_split_between_pieces_is_whole_in_the_second() -> None:
    log = "aä漢🚀b".encode()
    timing = b"0.1 1\n" * len(log)
    said = lines_of(log, timing)[1:]
    assert "".join(text for _, _, text in said) == "aä漢🚀b"  # type: ignore[misc]
    assert [text for _, _, text in said] == ["a", "ä", "漢", "🚀", "b"]  # type: ignore[misc]
    assert said[-1][0] == 1.1  # type: ignore[index]


def test_k3_control_sequences_are_kept_and_escaped() -> None:
    (_, line) = cast(HEADER, [(0.0, b"\x1b[31mred\x07\xc2\x9b")])
    assert json.loads(line)[2] == "\x1b[31mred\x07\x9b"
    assert line.isascii()
    assert "\x1b" not in line


def test_k3_bytes_that_are_no_text_are_replaced() -> None:
    assert lines_of(b"a\xffb\xc3", b"0 4\n")[1:] == [[0.0, "o", "a\ufffdb"], [0.0, "o", "\ufffd"]]


def test_k3_what_is_being_written_is_recorded_up_to_where_it_is_whole() -> None:
    # More log than timing, less log than timing, a line that is not finished.
    assert lines_of(b"onetwo", b"0.1 3\n")[1:] == [[0.1, "o", "one"]]
    assert lines_of(b"one", b"0.1 3\n0.1 3\n")[1:] == [[0.1, "o", "one"]]
    assert lines_of(b"onetwo", b"0.1 3\n0.1 ")[1:] == [[0.1, "o", "one"]]
    assert lines_of(b"onetwo", b"garbage\n")[1:] == []
