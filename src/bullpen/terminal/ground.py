"""Whether output stands between sequences and characters, or in the middle of one. Pure."""

import re

_UNFINISHED = re.compile(rb"\x1b(?:(?P<string>[\]P_^X])[^\x07]*|\[[0-?]*[ -/]*|[ -/]*)?\Z")
_HALF_CHARACTER = re.compile(
    rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


class Ground:
    """Fed with output in pieces. In the middle of something nothing else may be written."""

    def __init__(self) -> None:
        self._begun = b""  # a sequence whose end has not come yet; of a string only its kind
        self._half = False

    @property
    def is_whole(self) -> bool:
        return not self._begun and not self._half

    def feed(self, output: bytes) -> None:
        if not self._begun and output.isascii() and b"\x1b" not in output:
            self._half = False
            return
        text = self._begun + output
        last = text.rfind(b"\x1b")
        found = _UNFINISHED.match(text, last) if last >= 0 else None
        self._begun = b""
        if found:
            self._begun = b"\x1b" + found["string"] if found["string"] else found[0]
        self._half = _HALF_CHARACTER.search(text, max(len(text) - 3, 0)) is not None
