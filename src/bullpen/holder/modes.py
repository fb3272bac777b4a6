"""The terminal modes that a program has turned on.

Fed with output in order, in pieces of any size. `sequences` brings a fresh terminal to the same
modes: only those that it needs for input and for the right screen.
"""

import re
from mmap import mmap

# Private modes that are off in a fresh terminal, and those that are on.
USUALLY_OFF = frozenset({1, 9, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049})
USUALLY_OFF |= {66, 1007, 2004, 2027, 2031, 2048}
USUALLY_ON = frozenset({7, 25})
ALTERNATE = (47, 1047, 1049)
KITTY_DEPTH = 8

_SEQUENCE = re.compile(
    # CSI with a prefix, or a short one. Bounded: int() refuses thousands of digits.
    rb"\x1b(?:\[(?:([?>=<])([0-9;]{0,60})([a-z])|(!p))|([=>c]))"
)
_CUT = re.compile(rb"\x1b(?:\[[?>=<!]?[0-9;]{0,60})?\Z")
_LONGEST_CUT = 63


class Modes:
    """What is switched away from its usual state."""

    def __init__(self) -> None:
        self.seen = False
        self.cut = b""  # a sequence whose end has not come yet
        self.reset()

    def reset(self) -> None:
        self.switched: dict[int, bool] = {}
        self.keypad = False
        self.other_keys = 0
        # Each screen has a stack of keyboard flags of its own.
        self.kitty: dict[bool, list[int]] = {False: [], True: []}

    def copy(self) -> "Modes":
        twin = Modes()
        twin.__dict__.update(self.__dict__)
        twin.switched = dict(self.switched)
        twin.kitty = {screen: list(flags) for screen, flags in self.kitty.items()}
        return twin

    @property
    def alternate(self) -> bool:
        return any(self.switched.get(mode) for mode in ALTERNATE)

    def feed(self, output: bytes | mmap, start: int, end: int) -> None:
        """What stands there in `output` was printed."""
        self.seen = self.seen or start < end
        # Most of what programs print has no sequence in it; this looks ten times faster.
        if not self.cut and output.find(b"\x1b", start, end) < 0:
            return
        text = self.cut + output[start:end]
        for match in _SEQUENCE.finditer(text):
            prefix, numbers, final, soft_reset, short = match.groups()
            if soft_reset:
                self.switched.pop(1, None)
                self.switched.pop(25, None)
                self.keypad = False
            elif short == b"c":
                self.reset()
            elif short:
                self.keypad = short == b"="
            else:
                self._switch(prefix, [int(n or 0) for n in numbers.split(b";")], final)
        cut = _CUT.search(text, max(len(text) - _LONGEST_CUT, 0))
        self.cut = cut[0] if cut else b""

    def _switch(self, prefix: bytes, numbers: list[int], final: bytes) -> None:
        if prefix == b"?" and final in b"hl":
            for mode in numbers:
                usual = mode in USUALLY_ON
                if usual or mode in USUALLY_OFF:
                    self.switched.pop(mode, None)
                    if (final == b"h") != usual:
                        self.switched[mode] = not usual
        elif prefix == b">" and final == b"m" and numbers[0] == 4:
            self.other_keys = numbers[1] if len(numbers) > 1 else 0
        elif final == b"u":
            self._keyboard(prefix, numbers)

    def _keyboard(self, prefix: bytes, numbers: list[int]) -> None:
        stack = self.kitty[self.alternate]
        if prefix == b">":
            stack.append(numbers[0])
            del stack[:-KITTY_DEPTH]
        elif prefix == b"<":
            del stack[max(len(stack) - max(numbers[0], 1), 0) :]
        elif prefix == b"=":
            how = numbers[1] if len(numbers) > 1 else 1
            old = stack.pop() if stack else 0
            new = {1: numbers[0], 2: old | numbers[0], 3: old & ~numbers[0]}.get(how, old)
            stack.append(new)

    def sequences(self) -> bytes:
        """What to send to a fresh terminal; the screen first, for the rest may belong to it."""
        switched = sorted(self.switched.items(), key=lambda item: item[0] not in ALTERNATE)
        parts = [b"\x1b[>%du" % flags for flags in self.kitty[False] if self.alternate]
        parts += [b"\x1b[?%d%c" % (mode, b"h" if on else b"l") for mode, on in switched]
        if self.keypad:
            parts.append(b"\x1b=")
        if self.other_keys:
            parts.append(b"\x1b[>4;%dm" % self.other_keys)
        parts += [b"\x1b[>%du" % flags for flags in self.kitty[self.alternate]]
        return b"".join(parts)
