"""The sequences that restore a terminal after a program has used it. Pure.

`Undo` is fed with what was written to the terminal, in pieces of any size, and knows what that
turned on. Only that is undone: leaving an alternate screen that was never entered would move the
cursor. `EVERYTHING` is for when nobody knows what was turned on.

All output passes through it: one search per piece, and Python runs only for matches.
"""

import re

# Private modes: those that are off in a fresh terminal, and those that are on. Not here are
# those that a person may have turned on (1007, 1034, 1036, 2027: some terminals begin so).
USUALLY_OFF = frozenset({1, 5, 6, 9, 45, 66, 69, 2004, 2026, 2031, 2048})
USUALLY_OFF |= {*range(1000, 1007), 1015, 1016}
USUALLY_ON = frozenset({7, 25})
ALTERNATE = frozenset({47, 1047, 1049})
# These make the terminal send something without a key being pressed.
REPORTING = frozenset({9, 1000, 1001, 1002, 1003, 1004, 2031, 2048})
# OSC that changes something which stays, and the one that takes it back.
STRINGS = {
    b"4": b"104",  # colours
    b"10": b"110",
    b"11": b"111",
    b"12": b"112",
    b"17": b"117",
    b"19": b"119",
    b"8": b"8;;",  # a link without an end
    b"9;4": b"9;4;0",  # a progress bar in the task bar
    b"22": b"22;",  # the pointer's shape
}
TITLES = frozenset({b"0", b"1", b"2"})
KITTY_DEPTH = 99
TITLE_DEPTH = 10

# Ends a string that was cut off. What follows it is no harm in any terminal: colours,
# character set, insert mode, cursor.
ALWAYS_FIRST = b"\x1b\\"
ALWAYS_LAST = b"\x1b[m\x1b(B\x0f\x1b[4l\x1b[?25h"

_SEQUENCE = re.compile(
    rb"""\x1b(?:
        \[(?: \? (?P<modes>[0-9;]{1,60}) (?P<switch>[hl])
            | (?P<prefix>[>=<]) (?P<numbers>[0-9;]{0,60}) (?P<final>[um])
            | (?P<region>[0-9;]{0,20}) r
            | [0-9]{0,2} (?P<shape>\ q)
            | (?P<stack>2[23]) (?P<which>;[012])? (?:;[0-9]{1,2})? (?P<titles>t)
            | (?P<soft_reset>!p) )
      | \] (?P<string>9;4|[0-9]{1,4}) [;\x07\x1b]
      | (?P<short>[=>c]) )""",
    re.VERBOSE,
)
_CUT = re.compile(rb"\x1b(?:\[[?>=<!]?[0-9;]{0,60}\ ?|\][0-9;]{0,4})?\Z")


class Undo:
    """What is switched away from its usual state."""

    def __init__(self) -> None:
        self._cut = b""  # a sequence whose end has not come yet
        self.titled = False  # the program set a title since somebody last looked
        self._reset()

    def _reset(self) -> None:
        self._on: set[int] = set()
        self._off: set[int] = set()
        self._alternate = 0
        self._keypad = self._other_keys = self._region = self._shape = False
        # How deep each screen's stack of keyboard flags is; whether its lowest was changed.
        self._pushed = {False: 0, True: 0}
        self._flags_set = {False: False, True: False}
        self._strings: set[bytes] = set()
        self._titles: list[bytes] = []  # that the terminal keeps for later

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is shown."""
        return bool(self._alternate)

    @property
    def reports(self) -> bool:
        """Whether the terminal sends more than keys."""
        return bool(self._on & REPORTING or any(self._pushed.values()))

    def feed(self, written: bytes) -> None:
        if not self._cut and b"\x1b" not in written:
            return
        text = self._cut + written
        for match in _SEQUENCE.finditer(text):
            self._note(match)
        cut = _CUT.search(text, max(len(text) - 80, 0))
        self._cut = cut[0] if cut else b""

    def _note(self, match: re.Match[bytes]) -> None:
        kind = match.lastgroup
        if kind == "switch":
            for text in match["modes"].split(b";"):
                self._switch(int(text or 0), match["switch"] == b"h")
        elif kind == "final":
            self._keyboard(match["prefix"], match["numbers"], match["final"])
        elif kind == "region":
            self._region = match["region"] not in (b"", b";")
        elif kind == "shape":
            self._shape = True
        elif kind == "titles":
            self._keep_title(match["stack"] == b"22", match["which"] or b";0")
        elif kind == "string":
            self.titled = self.titled or match["string"] in TITLES
            if match["string"] in STRINGS:
                self._strings.add(match["string"])
        elif kind == "soft_reset":
            self._region = self._keypad = False
            self._on -= {1, 6}
            self._off.discard(25)
        else:
            self._note_short(match["short"])

    def _note_short(self, letter: bytes) -> None:
        if letter == b"c":
            self._reset()
        else:
            self._keypad = letter == b"="

    def _switch(self, mode: int, on: bool) -> None:
        if mode in ALTERNATE:
            self._alternate = mode if on else 0
        elif mode in USUALLY_OFF:
            (self._on.add if on else self._on.discard)(mode)
        elif mode in USUALLY_ON:
            (self._off.discard if on else self._off.add)(mode)

    def _keyboard(self, prefix: bytes, numbers: bytes, final: bytes) -> None:
        first, _, second = numbers.partition(b";")
        if final == b"m":
            if prefix == b">" and first == b"4":
                self._other_keys = second.strip(b"0;") != b""
        elif prefix == b">":
            self._pushed[self.alternate] = min(self._pushed[self.alternate] + 1, KITTY_DEPTH)
        elif prefix == b"<":
            left = self._pushed[self.alternate] - max(int(first or 1), 1)
            self._pushed[self.alternate] = max(left, 0)
        elif not self._pushed[self.alternate]:
            self._flags_set[self.alternate] = True

    def _keep_title(self, push: bool, which: bytes) -> None:
        if push:
            self._titles.append(which)
            del self._titles[:-TITLE_DEPTH]
        else:
            del self._titles[-1:]

    def sequences(self) -> bytes:
        """What to write; what belongs to the alternate screen before that is left."""
        parts = [ALWAYS_FIRST]
        parts += [b"\x1b[?%dl" % mode for mode in sorted(self._on)]
        parts += [b"\x1b[?%dh" % mode for mode in sorted(self._off - {25})]
        if self._keypad:
            parts.append(b"\x1b>")
        if self._other_keys:
            parts.append(b"\x1b[>4m")
        if self._region:
            # It moves the cursor, which matters on the screen that stays.
            parts.append(b"\x1b[r" if self._alternate else b"\x1b7\x1b[r\x1b8")
        if self._shape:
            parts.append(b"\x1b[0 q")
        parts += [b"\x1b]%s\x1b\\" % STRINGS[kind] for kind in sorted(self._strings)]
        if self._alternate:
            parts += [self._pops(True), b"\x1b[?%dl" % self._alternate]
        parts += [b"\x1b[23%st" % which for which in reversed(self._titles)]
        parts += [self._pops(False), ALWAYS_LAST]
        return b"".join(parts)

    def _pops(self, alternate: bool) -> bytes:
        pushed = self._pushed[alternate]
        popped = b"\x1b[<%du" % pushed if pushed else b""
        return popped + (b"\x1b[=0u" if self._flags_set[alternate] else b"")


def _everything() -> bytes:
    keyboard = b"\x1b[<%du\x1b[=0u" % KITTY_DEPTH
    return b"".join(
        [
            ALWAYS_FIRST,
            *(b"\x1b[?%dl" % mode for mode in sorted(USUALLY_OFF - {6})),
            b"\x1b[?7h\x1b>\x1b[>4m",
            keyboard,
            # The cursor is saved first: leaving a screen that was not entered restores it.
            *(b"\x1b7\x1b[?%dl" % mode for mode in sorted(ALTERNATE)),
            keyboard,
            b"\x1b[!p\x1b7\x1b[r\x1b8",  # the first leaves the cursor where it is, `?6l` would not
            b"\x1b[0 q",
            *(b"\x1b]%s\x1b\\" % STRINGS[kind] for kind in (b"4", b"10", b"11", b"12", b"8")),
            b"\x1b[23;2t" * 2,  # ours, and one of the program's
            ALWAYS_LAST,
        ]
    )


EVERYTHING = _everything()
