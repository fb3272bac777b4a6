"""The detach key among what is typed, in every form, split anywhere; all else untouched."""

import itertools

import pytest

from bullpen.terminal.keys import Keys

BACKSLASH = {
    "control byte": b"\x1c",
    "kitty": b"\x1b[92;5u",
    "kitty, press": b"\x1b[92;5:1u",
    "kitty, repeat": b"\x1b[92;5:2u",
    "kitty, num lock": b"\x1b[92;133u",
    "kitty, caps lock and num lock": b"\x1b[92;197:1u",
    "kitty, alternate keys": b"\x1b[92:124;5u",
    "kitty, shifted and base layout": b"\x1b[92:124:92;5:1u",
    "kitty, with text": b"\x1b[92;5;28u",
    "kitty, shift too": b"\x1b[92;6u",
    "modifyOtherKeys": b"\x1b[27;5;92~",
}
# A release alone is no press: kept from the program, which never saw the press.
RELEASES = [b"\x1b[92;5:3u", b"\x1b[92;133:3u"]
OTHER_INPUT = {
    "text": b"hello w\xc3\xb6rld",
    "control bytes": bytes(set(range(27)) | {0x1D, 0x1E, 0x1F, 0x7F}),
    "escape and text": b"\x1bx",
    "arrow": b"\x1b[A",
    "function key": b"\x1b[15;5~",
    "kitty backslash without control": b"\x1b[92;1u",
    "kitty alt-backslash": b"\x1b[92;3u",
    "kitty control-alt-backslash": b"\x1b[92;7u",
    "kitty control-a": b"\x1b[97;5u",
    "kitty release of control-a": b"\x1b[97;5:3u",
    "modifyOtherKeys control-a": b"\x1b[27;5;97~",
    "mouse": b"\x1b[<0;92;5M",
    "old mouse": b"\x1b[M !!",
    "focus": b"\x1b[I\x1b[O",
    "cursor position": b"\x1b[92;5R",
    "device attributes": b"\x1b[?62;c",
    "paste": b"\x1b[200~some text\x1b[201~",
    "empty kitty": b"\x1b[u",
    "long numbers": b"\x1b[" + b"9" * 200 + b"u",
}


def typed(keys: Keys, *pieces: bytes) -> tuple[bytes, bool]:
    """What gets through, and whether one of the pieces leaves."""
    passed = b""
    for piece in pieces:
        more, leave = keys.feed(piece)
        passed += more
        if leave:
            return passed, True
    more, leave = keys.flush()
    return passed + more, leave


@pytest.mark.parametrize("key", BACKSLASH.values(), ids=BACKSLASH)
def test_a1_the_detach_key_is_recognised_in_every_form(key: bytes) -> None:
    assert typed(Keys("ctrl-\\"), b"abc" + key + b"rest") == (b"abc", True)


@pytest.mark.parametrize("key", BACKSLASH.values(), ids=BACKSLASH)
def test_a1_the_detach_key_may_be_split_anywhere(key: bytes) -> None:
    for cuts in itertools.combinations(range(1, len(key)), min(2, len(key) - 1)):
        ends = [0, *cuts, len(key)]
        pieces = [key[begin:end] for begin, end in itertools.pairwise(ends)]
        assert typed(Keys("ctrl-\\"), *pieces) == (b"", True), pieces


@pytest.mark.parametrize("release", RELEASES)
def test_a1_a_release_of_the_detach_key_does_not_reach_the_program(release: bytes) -> None:
    assert typed(Keys("ctrl-\\"), b"a" + release + b"b") == (b"ab", False)
    press = BACKSLASH["kitty, press"]
    assert typed(Keys("ctrl-\\"), press + release) == (b"", True)


@pytest.mark.parametrize("data", OTHER_INPUT.values(), ids=OTHER_INPUT)
def test_a1_other_input_passes_whole_and_in_any_pieces(data: bytes) -> None:
    assert typed(Keys("ctrl-\\"), data) == (data, False)
    assert typed(Keys("ctrl-\\"), *(data[n : n + 1] for n in range(len(data)))) == (data, False)


@pytest.mark.parametrize("data", OTHER_INPUT.values(), ids=OTHER_INPUT)
def test_a1_whole_keys_are_never_held_back(data: bytes) -> None:
    keys = Keys("ctrl-\\")
    if data != OTHER_INPUT["long numbers"]:
        assert keys.feed(data) == (data, False)
        assert not keys.waits


def test_a1_a_lone_escape_waits_for_the_timer_only() -> None:
    keys = Keys("ctrl-\\")
    assert keys.feed(b"\x1b") == (b"", False)
    assert keys.waits
    assert keys.flush() == (b"\x1b", False)
    assert not keys.waits
    assert keys.feed(b"x") == (b"x", False)


def test_a1_escape_and_the_key_leave_and_the_escape_is_typed() -> None:
    keys = Keys("ctrl-\\")
    assert keys.feed(b"\x1b") == (b"", False)
    assert keys.feed(b"\x1c") == (b"\x1b", True)


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_a1_pasted_text_cannot_leave(pieces: int) -> None:
    # Else the rest of it, a command perhaps, would be typed into the person's shell.
    paste = b"\x1b[200~evil\x1c\nrm -rf ~\n\x1b[92;5u\x1b[27;5;92~\x1b[201~"
    cut = [
        paste[n : n + len(paste) // pieces + 1]
        for n in range(0, len(paste), len(paste) // pieces + 1)
    ]
    assert typed(Keys("ctrl-\\"), *cut) == (paste, False)
    assert typed(Keys("ctrl-\\"), *cut, b"\x1c") == (paste, True)


@pytest.mark.parametrize(
    ("key", "leaves", "stays"),
    [
        ("ctrl-a", [b"\x01", b"\x1b[97;5u", b"\x1b[27;5;97~"], [b"\x1c", b"a", b"\x1b[97;6u"]),
        ("ctrl-]", [b"\x1d", b"\x1b[93;5u", b"\x1b[27;5;93~"], [b"\x1c", b"]"]),
        ("ctrl-@", [b"\0", b"\x1b[64;5u", b"\x1b[50;6u", b"\x1b[27;6;64~"], [b"2", b"\x1b[50;5u"]),
        ("ctrl-^", [b"\x1e", b"\x1b[54;6u", b"\x1b[94;5u"], [b"6"]),
        ("ctrl-_", [b"\x1f", b"\x1b[45;6u", b"\x1b[95;5u"], [b"-"]),
        ("ctrl-i", [b"\t", b"\x1b[105;5u"], [b" ", b"i"]),
        ("ctrl-[", [b"\x1b", b"\x1b[91;5u"], [b"\x1b[A", b"\x1bx", b"["]),
    ],
)
def test_a1_any_configured_key(key: str, leaves: list[bytes], stays: list[bytes]) -> None:
    for data in leaves:
        assert typed(Keys(key), data) == (b"", True), data
    for data in stays:
        assert typed(Keys(key), data) == (data, False), data


def test_a1_a_key_of_another_alphabet_is_known_by_its_place() -> None:
    assert typed(Keys("ctrl-a"), b"\x1b[1092::97;5u") == (b"", True)
    assert typed(Keys("ctrl-a"), b"\x1b[98::97;5u") == (b"\x1b[98::97;5u", False)
