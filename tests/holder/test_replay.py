"""What a new client is shown: the modes that are on, the latest output, and no questions."""

import random
import re
from collections.abc import Callable

import pytest

from tests.holder.client import MIB
from tests.holder.feed import Feed

pytestmark = pytest.mark.slow

Feeds = Callable[..., Feed]

LINES = b"".join(b"%06d some text on a line\r\n" % number for number in range(24_000))  # 600 KB
MODES = {
    "alternate screen": (b"\x1b[?1049h", b"\x1b[?1049l"),
    "old alternate screen": (b"\x1b[?47h", b"\x1b[?47l"),
    "mouse": (b"\x1b[?1000h", b"\x1b[?1000l"),
    "mouse drag": (b"\x1b[?1002h", b"\x1b[?1002l"),
    "mouse motion": (b"\x1b[?1003h", b"\x1b[?1003l"),
    "mouse numbers": (b"\x1b[?1006h", b"\x1b[?1006l"),
    "focus": (b"\x1b[?1004h", b"\x1b[?1004l"),
    "paste": (b"\x1b[?2004h", b"\x1b[?2004l"),
    "cursor keys": (b"\x1b[?1h", b"\x1b[?1l"),
    "hidden cursor": (b"\x1b[?25l", b"\x1b[?25h"),
    "keypad": (b"\x1b=", b"\x1b>"),
    "kitty keyboard": (b"\x1b[>5u", b"\x1b[<u"),
    "modifyOtherKeys": (b"\x1b[>4;2m", b"\x1b[>4;0m"),
    "modifyOtherKeys, short": (b"\x1b[>4;1m", b"\x1b[>4m"),
}
QUERIES = {
    "CSI c": b"\x1b[c",
    "CSI 0 c": b"\x1b[0c",
    "CSI > c": b"\x1b[>c",
    "CSI = c": b"\x1b[=c",
    "CSI > 0 q": b"\x1b[>0q",
    "CSI > q": b"\x1b[>q",
    "CSI ? u": b"\x1b[?u",
    "CSI 5 n": b"\x1b[5n",
    "CSI 6 n": b"\x1b[6n",
    "CSI ? 6 n": b"\x1b[?6n",
    "CSI ? 996 n": b"\x1b[?996n",
    "OSC 10 BEL": b"\x1b]10;?\x07",
    "OSC 11 ST": b"\x1b]11;?\x1b\\",
    "OSC 4": b"\x1b]4;1;?\x1b\\",
    "OSC 52": b"\x1b]52;c;?\x07",
    "DECRQM": b"\x1b[?2026$p",
    "DECRQM ANSI": b"\x1b[4$p",
    "XTGETTCAP": b"\x1bP+q544e\x1b\\",
    "DECRQSS": b"\x1bP$qm\x1b\\",
    "CSI 18 t": b"\x1b[18t",
    "CSI 14 t": b"\x1b[14t",
    "DECID": b"\x1bZ",
    "ENQ": b"\x05",
}
SIGHTS = [  # look like questions, are none
    b"\x1b[31m",
    b"\x1b[2;5r",
    b"\x1b[>4;2m",
    b"\x1b[2 q",
    b"\x1b[5;10H",
    b"\x1b[22;0;0t",
    b"\x1b[!p",
    b"\x1b[u",
    b"\x1b]0;what now?\x07",
    b"\x1b]2;a;?b\x07",
    b"\x1b]8;;http://example.com/?q=1\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b]52;c;aGVsbG8=\x07",
    b"\x1b]10;#ffffff\x07",
    b"\x1bPq#0;2;0;0;0~-\x1b\\",
    b"\x1b[3$}",
    b"\x1b[?2026h",
]


class Terminal:
    """The modes a terminal is in after it was shown these bytes."""

    SEQUENCE = re.compile(rb"\x1b\[([?<>=]?)([0-9;]*)([$!]?[a-zA-Z])|\x1b([=>c])")
    KNOWN = frozenset({1, 25, 1000, 1002, 1003, 1004, 1006, 1049, 2004})

    def __init__(self, shown: bytes) -> None:
        self.on = {25}
        self.keypad = False
        self.other_keys = 0
        self.kitty: list[int] = []
        for found in self.SEQUENCE.finditer(shown):
            prefix, numbers, final, short = found.groups()
            values = [int(number or 0) for number in (numbers or b"").split(b";")]
            if short == b"c":
                self.__init__(b"")  # type: ignore[misc]
            elif short:
                self.keypad = short == b"="
            elif (prefix, final) == (b"?", b"h"):
                self.on |= set(values) & self.KNOWN
            elif (prefix, final) == (b"?", b"l"):
                self.on -= set(values)
            elif (prefix, final) == (b">", b"m") and values[0] == 4:
                self.other_keys = values[1] if len(values) > 1 else 0
            elif (prefix, final) == (b">", b"u"):
                self.kitty = [*self.kitty, values[0]][-8:]
            elif (prefix, final) == (b"<", b"u"):
                del self.kitty[max(0, len(self.kitty) - max(1, values[0])) :]

    @property
    def state(self) -> tuple[frozenset[int], bool, int, tuple[int, ...]]:
        return frozenset(self.on), self.keypad, self.other_keys, tuple(self.kitty)


def test_k2_the_replay_of_a_short_session_is_all_of_it(feed: Feeds) -> None:
    program = feed()
    assert program.replay() == b""
    program.say(b"no line break yet")
    assert program.replay() == b"no line break yet"
    program.say(b"\r\nsecond \x1b[1mline\x1b[m")
    assert program.replay() == program.written


def test_k2_live_output_goes_on_where_the_replay_ends(feed: Feeds) -> None:
    program = feed()
    program.say(b"one ", b"\x1b[3")
    client = program.holder.connect()
    shown = client.attach()
    program.say(b"1mred", b" \x1b[?", b"2004h")
    shown += client.collect(len(b"1mred \x1b[?2004h"))
    assert shown == program.written


def test_k2_modes_outlast_the_ring(feed: Feeds) -> None:
    program = feed()
    ons = [on for name, (on, _) in MODES.items() if name != "modifyOtherKeys, short"]
    program.say(*ons, LINES)
    shown = program.replay()
    head, _, rest = shown.partition(b" some text")
    for on in ons:
        assert on in head
    assert head.startswith((b"\x1b[?1049h", b"\x1b[?47h")), "the screen first, the rest is on it"
    assert b"023999 some text on a line\r\n" in rest
    assert 200_000 < len(shown) < 400_000
    program.say(*[off for _, off in MODES.values()], LINES)
    shown = program.replay()
    assert b"\x1b" not in shown
    assert re.fullmatch(rb"(\d{6} some text on a line\r\n)+", shown), "begins with a whole line"


@pytest.mark.few(5)
@pytest.mark.parametrize("what", MODES)
def test_k2_each_mode_is_restored_while_it_is_on(feed: Feeds, what: str) -> None:
    on, off = MODES[what]
    lines = LINES[:20_000]
    program = feed(ring_bytes=4096)
    program.say(on, lines)
    shown = program.replay()
    assert shown.startswith(on)
    assert shown.count(on) == 1
    program.say(off, lines)
    assert b"\x1b" not in program.replay()


@pytest.mark.few(5)
@pytest.mark.parametrize("what", MODES)
def test_k2_a_mode_is_noted_though_it_came_in_pieces(feed: Feeds, what: str) -> None:
    on, off = MODES[what]
    program = feed(ring_bytes=4096)
    lines = LINES[:8_190]
    for cut in range(1, len(on)):
        program.say(on[:cut], on[cut:], lines)
        assert program.replay().startswith(on), cut
        program.say(off[:-1], off[-1:], lines)
        assert b"\x1b" not in program.replay(), cut


def test_k2_modes_set_together_and_a_full_reset_are_understood(feed: Feeds) -> None:
    program = feed(ring_bytes=4096)
    lines = LINES[:20_000]
    program.say(b"\x1b[?1049;1000;1006h\x1b[>5u\x1b[>4;2m\x1b=\x1b[?25l", lines)
    assert Terminal(program.replay()).state == Terminal(bytes(program.written)).state
    program.say(b"\x1bc", lines)
    assert b"\x1b" not in program.replay()


def test_k2_the_keyboard_pushed_in_the_ring_is_popped_by_one_pop(feed: Feeds) -> None:
    program = feed()
    program.say(b"shell\r\n\x1b[?1049h\x1b[>5u\x1b[>4;2mtui")
    client = program.holder.connect()
    shown = client.attach()
    assert shown == program.written, "the first line belongs to the first screen"
    program.say(b"\x1b[<u")
    shown += client.collect(4)
    assert Terminal(shown).kitty == []


def test_k2_the_keyboard_of_the_first_screen_is_restored_as_well(feed: Feeds) -> None:
    program = feed(ring_bytes=4096)
    program.say(b"\x1b[>1u\x1b[?1049h\x1b[>5u", LINES[:20_000])
    assert program.replay().startswith(b"\x1b[>1u\x1b[?1049h\x1b[>5u")


@pytest.mark.slow
@pytest.mark.parametrize("without", ["screen", "kitty"])  # each screen has a keyboard of its own
def test_k2_a_terminal_that_is_shown_the_replay_is_in_the_programs_modes(
    feed: Feeds, without: str
) -> None:
    rng = random.Random(7)
    program = feed(ring_bytes=3000)
    names = [name for name in MODES if without not in name and name != "old alternate screen"]
    pieces = [piece for name in names for piece in MODES[name]]
    pieces += [
        b"text \xc3\xa4 ",
        b"line\r\n" * 20,
        b"\x1b[31m",
        b"\x1b[?1000;1006h",
        *QUERIES.values(),
    ]
    for _ in range(60):
        text = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 60)))
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(3))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        program.say(*filter(None, parts))
        shown = program.replay()
        assert Terminal(shown).state == Terminal(bytes(program.written)).state
        for query in QUERIES.values():
            assert query not in shown


@pytest.mark.few(5)
@pytest.mark.parametrize("what", QUERIES)
def test_k2_a_question_is_in_the_live_output_and_in_no_replay(feed: Feeds, what: str) -> None:
    query = QUERIES[what]
    program = feed()
    program.say(b"before " + query + b" after")
    assert program.replay() == b"before  after"
    for cut in range(1, len(query)):
        program.say(query[:cut], query[cut:])
    assert program.replay() == b"before  after"


def test_k2_a_question_that_is_cut_by_the_rings_start_is_not_asked_or_shown(feed: Feeds) -> None:
    program = feed(ring_bytes=1000)
    for query in QUERIES.values():
        for more in range(990, 1004):
            program.say(b"x\n" * 1500 + query + b"y" * (more - 4) + b"\nend\n")
            shown = program.replay()
            # A lone end of a string is no harm.
            assert re.fullmatch(rb"(\x1b\\)?[xy\n]*end\n", shown), (query, more, shown[:40])


@pytest.mark.few(5)
@pytest.mark.parametrize("sight", SIGHTS, ids=repr)
def test_k2_what_is_no_question_is_replayed(feed: Feeds, sight: bytes) -> None:
    program = feed()
    program.say(b"before " + sight + b" after")
    assert program.replay() == program.written


def test_k2_no_sequence_is_cut_in_half_by_the_rings_start(feed: Feeds) -> None:
    program = feed(ring_bytes=1000)
    whole = b"\x1b[38;2;100;150;200mword \x1b]8;;http://example.com/\x1b\\link\x1b]8;;\x1b\\ "
    for number in range(40):
        program.say(whole * 50 + b"." * number)
        shown = program.replay()
        assert re.match(rb"\x1b\[38;2;100;150;200m|\x1b\]8;;(http|\x1b)|\x1b\\", shown), shown[:60]


def test_k2_text_is_whole_where_the_ring_begins_at_a_line(feed: Feeds) -> None:
    program = feed(ring_bytes=1000)
    program.say("äöü€😀\r\n".encode() * 500)
    shown = program.replay()
    assert len(shown) > 500
    shown.decode()


def test_k2_a_ring_without_any_line_break_is_still_shown(feed: Feeds) -> None:
    program = feed(ring_bytes=1000)
    program.say(b"x" * 5000)
    assert len(program.replay()) > 500


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "hostile",
    [
        b"\x1b[?" + b"9" * 5000 + b"h",
        b"\x1b[>" + b"9" * 5000 + b"u",
        b"\x1b[<99999999999u",
        b"\x1b[>4;" + b"9" * 5000 + b"m",
        b"\x1b[?" + b";" * 5000 + b"h",
        b"\x1b]" + b"0" * 50_000 + b"\x07",
        b"\x1b[>1u" * 3000,
        b"\x1b" * 20_000,
        b"\x1b[" * 10_000,
        b"\x1bP+q" * 5_000,
        b"\x1b]0;" * 5_000,
        b"\x1b[?1;" * 5_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_k2_hostile_output_does_not_harm_the_holder(feed: Feeds, hostile: bytes) -> None:
    program = feed(ring_bytes=8000)
    program.say(hostile, b"\nafter\n" * 100)
    assert program.replay().endswith(b"after\n")
    program.say(LINES[:40_000])
    shown = program.replay()
    assert len(shown) < 8000 + 64 * 1024 + 1000
    assert program.watcher.status()["alive"]


def test_k2_a_replay_is_made_quickly_whatever_is_in_the_ring(feed: Feeds) -> None:
    program = feed()
    program.say(b"\x1b]1;" * 60_000)
    client = program.holder.connect()
    client.send("A", {})
    client.read_until("P")


def test_k2_the_largest_ring_fits_a_frame(feed: Feeds) -> None:
    program = feed(ring_bytes=1_000_000)
    program.say(*[on for on, _ in MODES.values()], LINES, LINES)
    assert 900_000 < len(program.replay()) <= MIB
