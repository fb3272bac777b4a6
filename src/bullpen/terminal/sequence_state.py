"""Whether output ends between escape sequences and characters, or inside one. Pure."""

import re

# A terminal obeys them in the middle of a sequence, which goes on behind them.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x18, 0x1A, 0x1B})
_WITHIN = rb"\x00-\x17\x19\x1c-\x1f\x7f"
_UNFINISHED = re.compile(
    rb"\x1b[%(c)s]*(?:(?P<string>[\]P_^X])[^\x07]*|\[[0-?%(c)s]*[ -/%(c)s]*|[ -/%(c)s]*)?\Z"
    % {b"c": _WITHIN}
)
_HALF_CHARACTER = re.compile(
    rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


class SequenceState:
    """Fed with output in pieces. Inside a sequence or character nothing else may be written."""

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
        match = _UNFINISHED.match(text, last) if last >= 0 else None
        self._begun = b""
        if match:
            self._begun = (
                b"\x1b" + match["string"]
                if match["string"]
                else match[0].translate(None, _CONTROLS)
            )
        self._half = _HALF_CHARACTER.search(text, max(len(text) - 3, 0)) is not None
