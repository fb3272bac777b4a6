"""Recognises the detach key in what a person types.

Pure: bytes in, split anywhere; out come the bytes for the program, and whether the person wants to
leave. The key arrives as a control byte or, when the program turned a keyboard protocol on, as
`CSI code;modifiers u` (kitty) or `CSI 27;modifiers;code ~` (modifyOtherKeys). In pasted text it is
no key: else the rest of the text would be typed into the person's shell.
"""

import re

SHIFT, CONTROL, LOCKS = 1, 4, 64 | 128  # kitty's modifiers; Caps Lock and Num Lock do not count
PRESS, REPEAT, RELEASE = 1, 2, 3
ESCAPE = 0x1B
PASTE_BEGINS, PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"

# Control bytes that most keyboards only give with Shift: the key as it is without it.
UNSHIFTED = {"@": "2", "^": "6", "_": "-"}

_ENCODED = rb"""
    \x1b\[27;(?P<other_modifiers>[0-9]{1,4});(?P<other_code>[0-9]{1,7})~
  | \x1b\[(?P<code>[0-9]{1,7})
          (?: : [0-9]{0,7} (?: : (?P<base>[0-9]{1,7}) )? )?
          (?: ; (?P<modifiers>[0-9]{0,4}) (?: : (?P<event>[0-9]) )? )?
          (?: ; [0-9:]{0,60} )? u
  | (?P<paste>\x1b\[200~)
"""
# The beginning of one of these, at the end of what was read.
_HALF = re.compile(rb"\x1b(?:\[[0-9:;]{0,90})?\Z")
_HALF_PASTE_END = re.compile(rb"\x1b(?:\[(?:2(?:0(?:1)?)?)?)?\Z")


class Keys:
    """The typed stream. While `waits`, bytes are held that may be half a key: after a moment
    without more input call `flush`.
    """

    def __init__(self, key: str) -> None:
        """`key` is as in the settings: `ctrl-` and a letter or one of `@ [ \\ ] ^ _`."""
        self._char = key.removeprefix("ctrl-")
        self._byte = ord(self._char.upper()) ^ 0x40
        # Every sequence begins with Escape: as a key it is known only by what does not follow.
        alone = b"" if self._byte == ESCAPE else b"(?P<raw>%s)|" % re.escape(bytes([self._byte]))
        self._pattern = re.compile(alone + _ENCODED, re.VERBOSE)
        self._unfinished = b""
        self._pasting = False

    @property
    def waits(self) -> bool:
        return bool(self._unfinished)

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """What to pass on, and whether to leave; after that key nothing is passed on."""
        typed, self._unfinished = self._unfinished + typed, b""
        passed = bytearray()
        start = 0
        while True:
            if self._pasting:
                end = typed.find(PASTE_ENDS, start)
                if end < 0:
                    break
                passed += typed[start : end + len(PASTE_ENDS)]
                start = end + len(PASTE_ENDS)
                self._pasting = False
            match = self._pattern.search(typed, start)
            if match is None:
                break
            passed += typed[start : match.start()]
            start = match.end()
            if match["paste"]:
                self._pasting = True
                passed += PASTE_BEGINS
                continue
            event = self._event(match)
            if event in (PRESS, REPEAT):
                return bytes(passed), True
            if event is None:
                passed += match[0]
            # A release is dropped: the program never saw the press.
        half = (_HALF_PASTE_END if self._pasting else _HALF).search(typed, start)
        end = half.start() if half else len(typed)
        self._unfinished = typed[end:]
        passed += typed[start:end]
        return bytes(passed), False

    def flush(self) -> tuple[bytes, bool]:
        """As `feed`, for the bytes that turned out to be all there is."""
        rest, self._unfinished = self._unfinished, b""
        if self._byte == ESCAPE and rest == b"\x1b" and not self._pasting:
            return b"", True
        return rest, False

    def _event(self, match: re.Match[bytes]) -> int | None:
        """Which event of the detach key this is; None for another key."""
        if match.re.groupindex.get("raw") and match["raw"]:
            return PRESS
        if match["other_code"]:
            is_ours = self._is_ours(int(match["other_code"]), int(match["other_modifiers"]) - 1)
            return PRESS if is_ours else None
        code, modifiers = int(match["code"]), int(match["modifiers"] or 1) - 1
        if code > 127 and match["base"]:  # another alphabet: what the key is called on its cap
            code = int(match["base"])
        return int(match["event"] or PRESS) if self._is_ours(code, modifiers) else None

    def _is_ours(self, code: int, modifiers: int) -> bool:
        pressed = modifiers & ~LOCKS
        if code == ord(self._char):
            return pressed == CONTROL or (pressed == CONTROL | SHIFT and not self._char.isalpha())
        unshifted = UNSHIFTED.get(self._char)
        return unshifted is not None and code == ord(unshifted) and pressed == CONTROL | SHIFT
