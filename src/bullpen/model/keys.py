"""Names of keys, as `send-keys` takes them, and what a terminal sends for them. Pure."""

import re

NAMED = {
    "enter": "\r",
    "return": "\r",
    "escape": "\x1b",
    "esc": "\x1b",
    "tab": "\t",
    "btab": "\x1b[Z",
    "space": " ",
    "bspace": "\x7f",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "insert": "\x1b[2~",
    "delete": "\x1b[3~",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    **{f"f{n}": f"\x1bO{letter}" for n, letter in zip(range(1, 5), "PQRS", strict=True)},
    **{
        f"f{n}": f"\x1b[{code}~"
        for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
    },
}
CHORD = re.compile(r"(?:C-|M-)+(.+)", re.DOTALL)


def key_text(word: str) -> str:
    """What to type for one word: a key's name, a chord such as `C-c`, or the word itself."""
    named = NAMED.get(word.lower())
    if named is not None:
        return named
    chord = CHORD.fullmatch(word)
    if chord is None:
        return word
    key = NAMED.get(chord[1].lower(), chord[1])
    if len(key) > 1 and not key.startswith("\x1b"):
        return word  # `C-suite` is text
    marks = word[: -len(chord[1])]
    if "C-" in marks:
        if not re.fullmatch(r"[@A-Za-z\[\\\]^_?]", key):
            return word
        key = "\x7f" if key == "?" else chr(ord(key.upper()) & 0x1F)
    return ("\x1b" if "M-" in marks else "") + key
