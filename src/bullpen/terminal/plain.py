"""A program's output as plain text: no sequences, lines as they looked. Pure.

Fed with bytes in pieces. Within a line it follows carriage returns, backspaces, short moves and
erasing. A move to another line begins a new one, so the output of a full-screen program comes out
in the order in which it was drawn.
"""

import codecs
import re

LONGEST_STRING = 1 << 20
LONGEST_LINE = 1 << 16  # without an end; more is a program that draws
WIDEST = 2000  # columns; a move beyond is not filled with blanks

_STRING = re.compile(r"\x1b[\]P_^X][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b\x9c]*\x1b?|[ -/]*)?\Z")
# Everything but text, once colours and the end of the line are gone.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    r"""\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])
      | (?P<nothing>\x1b[ -/]*[0-~]? | [\x00-\x07\x0e-\x1f\x7f-\x9f])
      | (?P<move>[\x08\x0b\x0c\r])
      | (?P<text>[^\x00-\x08\x0b-\x1f\x7f-\x9f]+)""",
    re.VERBOSE,
)
_NEW_LINE = frozenset("ABEFHdefST")  # finals that leave the line
_SIDEWAYS = frozenset("CDGaj`")


class Plain:
    """Output in, whole lines out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, output: bytes) -> str:
        """The lines that are finished, each with its end."""
        text = self._rest + self._decoder.decode(output)
        begun = _BEGUN.search(text, max(text.rfind("\x1b", 0, -1), 0) if "\x1b" in text else 0)
        tail = ""
        if begun and len(begun[0]) < LONGEST_STRING:
            text, tail = text[: begun.start()], begun[0]
        if "\x1b" in text:
            text = _COLOUR.sub("", _STRING.sub("", text))
        lines = text.split("\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = ""
        self._rest = rest + tail
        return "".join(map(_finished, lines))

    def finish(self) -> str:
        """The last line, if it has no end."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        rest = _BEGUN.sub("", rest)
        return _finished(rest) if rest else ""


def _finished(line: str) -> str:
    line = line.removesuffix("\r")
    if not _CONTROL.search(line):
        return line + "\n"
    return "".join(f"{text}\n" for text in shown_lines(line))


def shown_lines(line: str) -> list[str]:
    """What one line of output, with all that is in it, looked like in the end."""
    lines: list[list[str]] = []
    cells: list[str] = []
    column = 0
    for token in _TOKEN.finditer(line):
        if token["text"]:
            text = token["text"]
            cells += " " * (column - len(cells))
            cells[column : column + len(text)] = text
            column += len(text)
        elif token["move"]:
            column = max(column - 1, 0) if token["move"] == "\b" else 0
        elif final := token["final"]:
            numbers = token["numbers"]
            if final in _NEW_LINE or (final == "J" and numbers == "2"):
                lines.append(cells)
                cells, column = [], 0
            elif final in _SIDEWAYS:
                column = min(_moved(column, final, numbers), WIDEST)
            elif final in "KPX@" or (final == "J" and numbers in ("", "0")):
                cells = _edited(cells, column, final, numbers)
    lines.append(cells)
    texts = ["".join(cells).rstrip() for cells in lines]
    return [text for text in texts if text] or [""]


def _moved(column: int, final: str, numbers: str) -> int:
    count = _number(numbers)
    if final in "G`":
        return count - 1
    return max(column - count, 0) if final in "Dj" else column + count


def _edited(cells: list[str], column: int, final: str, numbers: str) -> list[str]:
    count = _number(numbers)
    if final in "KJ":
        if numbers == "1":
            return [" "] * min(column + 1, len(cells)) + cells[column + 1 :]
        return [] if numbers == "2" else cells[:column]
    if final == "P":
        return cells[:column] + cells[column + count :]
    if final == "@":
        return cells[:column] + [" "] * count + cells[column:]
    erased = cells[column : column + count]
    return cells[:column] + [" "] * len(erased) + cells[column + count :]


def _number(numbers: str) -> int:
    first = numbers.partition(";")[0]
    return max(int(first), 1) if first.isdecimal() and len(first) < 5 else 1
