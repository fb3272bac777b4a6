"""The keys that paste a prompt into a program's input line, and those that clear it. Pure."""

# What a paste cannot hold, as pictures of it: it would end the paste, or be a key.
PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
MOST_LINES = 100


def plain(text: str) -> str:
    """As a paste can hold it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(PICTURES)


def pasted(text: str) -> bytes:
    """A prompt as a paste, and Enter: line breaks in it do not send it off in pieces."""
    return b"\x1b[200~" + plain(text).encode("utf-8", "replace") + b"\x1b[201~\r"


def clearing(text: str) -> bytes:
    """The keys that take away what an earlier try left of a text in a prompt, line by line."""
    return b"\x15\x7f" * min(plain(text).count("\n") + 4, MOST_LINES)
