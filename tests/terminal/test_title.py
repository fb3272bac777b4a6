"""A title is text, whoever wrote it."""

import re

import pytest

from bullpen.terminal.row import fit
from bullpen.terminal.sequence_state import SequenceState
from bullpen.terminal.title import LONGEST, clean, notification, title
from bullpen.text import width

HOSTILE = {
    "ends the title, runs a sequence": "x\x07\x1b[31mred",
    "string terminator": "x\x1b\\\x1b]0;other\x07",
    "eight-bit control": "x\x9c\x9b31m",
    "line break": "x\r\ny",
    "reading direction": "x\u202eevil\u2066",
    "surrogate": "x\udcffy",
    "line separator": "x\u2028y",
    "tags": "x\U000e0041y",
    "long": "x" * 100_000,
}
# To some terminals these would be other sequences (progress).
PARTS = {"fields": "4;1;50", "both": "x;y\x07\x1b]52;c;ZXZpbA==\x07"}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a2_a_title_cannot_drive_the_terminal(text: str) -> None:
    said = title(text)
    assert said.startswith(b"\x1b]2;")
    assert said.endswith(b"\x07")
    inner = said[4:-1].decode()
    assert inner.isprintable()
    assert len(inner) <= LONGEST


@pytest.mark.parametrize("text", (HOSTILE | PARTS).values(), ids=HOSTILE | PARTS)
def test_a2_a_notification_is_one_text_whoever_wrote_it(text: str) -> None:
    found = re.fullmatch(
        rb"\a\x1b\]9;([^;]*)\a\x1b\]777;notify;Bullpen;([^;]*)\a", notification(text)
    )
    assert found, notification(text)
    assert found[1] == found[2]
    assert found[1].decode().isprintable()
    assert len(found[1].decode()) <= LONGEST


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a2_a_status_row_is_one_row_of_text(text: str) -> None:
    row = fit(text, 40)
    assert row.isprintable()
    assert width(row) == 40


def test_a2_what_people_write_is_kept() -> None:
    assert clean("amy · coder · wörk  漢字 ✓") == "amy · coder · wörk 漢字 ✓"
    assert width(fit("漢字漢字", 5)) == 5


WHOLE = [
    b"",
    b"text",
    b"\x1b[31mred",
    b"\x1b]0;t\x07",
    b"\x1b]0;t\x1b\\",
    b"\xc3\xa4",
    b"\xf0\x9f\x9a\x80",
]
BEGUN = [
    b"\x1b",
    b"\x1b[",
    b"\x1b[31",
    b"\x1b[\t",
    b"\x1b[3\r1",
    b"\x1b]0;ti",
    b"\x1b]0;ti\x1b",
    b"\x1bPq#0",
    b"\x1b_Gabc",
    b"\x1b(",
]
BEGUN += [b"\xc3", b"\xe6\xbc", b"\xf0\x9f\x9a"]


def test_a2_a_title_is_never_put_into_the_middle_of_something() -> None:
    for output in WHOLE:
        ground = SequenceState()
        ground.feed(b"before" + output)
        assert ground.is_whole, output
    for output in BEGUN:
        ground = SequenceState()
        ground.feed(b"before" + output)
        assert not ground.is_whole, output


@pytest.mark.parametrize("output", [text for text in WHOLE if len(text) > 1])
def test_a2_nor_when_it_came_in_pieces(output: bytes) -> None:
    ground = SequenceState()
    for number in range(len(output)):
        ground.feed(output[number : number + 1])
    assert ground.is_whole
    long = SequenceState()
    long.feed(b"\x1bPq")
    for _ in range(20):
        long.feed(b"#0" * 5000)
        assert not long.is_whole
    long.feed(b"\x1b\\")
    assert long.is_whole
