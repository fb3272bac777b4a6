"""Characters that take no column of their own: accents, joiners, emoji styles. Pure.

The emulator gives each character a column. So a character with its marks is fed as one stand-in of
the right width, and replaced again in what is drawn. A mark whose character was in an earlier
piece is dropped: that character is drawn already.
"""

import functools
import re
import unicodedata

# Stand-ins: a private use plane that no icon font uses (one column each), and the unassigned
# end of an ideographic plane (two). Few, and used again in turn: a program that invents
# clusters for ever must not fill our memory.
NARROW, WIDE = 0x100000, 0x3F000
COUNT = 2048
LONGEST = 16

# Where such characters are, of those in use: all of Unicode takes a tenth of a second to look
# through. Beyond the basic plane only tags and variation selectors: there, a search for more
# than one range is slower than the emulator itself.
BLOCKS = (
    (0x0300, 0x036F),
    (0x0483, 0x0489),
    (0x0590, 0x1DFF),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x20D0, 0x20FF),
    (0x2CEF, 0x2CF1),
    (0x2DE0, 0x2DFF),
    (0x302A, 0x302D),
    (0x3099, 0x309A),
    (0xA66F, 0xABFF),
    (0xFB1E, 0xFB1E),
    (0xFE00, 0xFE0F),
    (0xFE20, 0xFE2F),
    (0xFEFF, 0xFEFF),
)
_STAND_IN = re.compile(
    f"[{chr(WIDE)}-{chr(WIDE + COUNT - 1)}{chr(NARROW)}-{chr(NARROW + COUNT - 1)}]"
)
_TAG = re.compile("[\U000e0000-\U000e01ef]")
# At its end: a sequence whose last character is a letter and stands for nothing itself.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|.)\Z", re.DOTALL)


class Clusters:
    """The stand-ins of one screen."""

    def __init__(self) -> None:
        self._stand_ins: dict[str, str] = {}
        self._meant: dict[str, str] = {}
        self._next = 0

    def pack(self, text: str) -> str:
        """The text with a stand-in for each character that has something on top of it."""
        if text.isascii():
            return text
        marks, mark_runs = _patterns()
        if not (marks.search(text) or _TAG.search(text)):
            return text
        parts: list[str] = []
        done = 0
        for run in mark_runs.finditer(text):
            base = run.start() - 1
            if base >= done and _is_base(text, base):
                parts += [text[done:base], self._stand_in(text[base : run.end()])]
            else:
                parts.append(text[done : run.start()])
            done = run.end()
        return "".join([*parts, text[done:]])

    def unpack(self, text: str) -> str:
        if not self._meant or text.isascii():
            return text
        return _STAND_IN.sub(lambda match: self._meant.get(match[0], match[0]), text)

    def _stand_in(self, cluster: str) -> str:
        cluster = unicodedata.normalize("NFC", cluster)[:LONGEST]
        if len(cluster) == 1:
            return cluster
        return self._stand_ins.get(cluster) or self._make(cluster)

    def _make(self, cluster: str) -> str:
        is_wide = unicodedata.east_asian_width(cluster[0]) in "WF"
        narrow, wide = chr(NARROW + self._next), chr(WIDE + self._next)
        for old in (narrow, wide):
            self._stand_ins.pop(self._meant.pop(old, ""), None)
        stand_in = wide if is_wide else narrow
        self._next = (self._next + 1) % COUNT
        self._stand_ins[cluster] = stand_in
        self._meant[stand_in] = cluster
        return stand_in


def _is_base(text: str, index: int) -> bool:
    if not text[index].isprintable():
        return False
    around = text[max(index - 40, 0) : index + 1]
    return not (text[index].isascii() and "\x1b" in around and _SEQUENCE.search(around))


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """One such character; and a run of them, with what a joiner in it joins."""
    codes = (code for first, last in BLOCKS for code in range(first, last + 1))
    marks = "".join(chr(code) for code in codes if _has_no_width(code))
    mark = f"(?:[{marks}]|{_TAG.pattern})"
    return re.compile(f"[{marks}]"), re.compile(rf"{mark}+(?:(?<=\u200d)[^\x00-\x9f]{mark}*)*")


def _has_no_width(code: int) -> bool:
    """Hangul's vowels and finals stand under the initial."""
    return unicodedata.category(chr(code)) in {"Mn", "Me", "Cf"} or 0x1160 <= code <= 0x11FF
