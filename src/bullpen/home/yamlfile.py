"""Reads one YAML file into plain data, with the line of every key.

Everything wrong with a file is a `FileProblem`, not an exception: a person wants to see all of
them. `home/check.py` checks what the data mean. Imports no validation library, so that
listing is quick.

Uses the parser's events, not its nodes: the C composer recurses without a limit, and a file of
100,000 brackets would end the interpreter.
"""

import math
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
# Aliases count as often as they are used: ten lines can stand for a billion values.
MAX_VALUES = 20_000

WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Longer ones stay text: int() itself refuses more than 4,300 digits.
INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
OTHER_BASE = re.compile(r"0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")

FLOW_COLON = "found unexpected ':'"
# What the parser says -> what a person would say.
PLAIN_WORDS = {
    "mapping values are not allowed in this context": (
        "a ':' where none can be · quote the text if it holds one, and check the indentation"
    ),
    "could not find expected ':'": "this line is no `key: value`",
    "did not find expected key": "this line does not fit the block it stands in · indentation?",
    "did not find expected '-' indicator": "a list goes on with '- ' here · indentation?",
    "did not find expected ',' or ']'": "the list that begins with [ does not end with ]",
    "did not find expected ',' or '}'": "the block that begins with { does not end with }",
    "did not find expected node content": "a [ or { is not closed, or a value is missing",
    "found unexpected end of stream": "the quoted text does not end",
    "found character that cannot start any token": (
        "text that begins with @, ` or % must stand in quotes"
    ),
    "did not find expected <document start>": "there is more than one document in the file",
}
# Found out later than the mistake: the line to show is where the thing begins.
BEGINS_EARLIER = (
    "could not find expected ':'",
    "did not find expected ',' or ']'",
    "did not find expected ',' or '}'",
    "found unexpected end of stream",
)

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class FileProblem:
    """One thing wrong with a file, and where."""

    path: Path
    line: int
    key: str
    message: str

    def to_json(self) -> dict[str, object]:
        """The form that `--json` prints."""
        return {
            "file": str(self.path),
            "line": self.line,
            "key": self.key,
            "message": self.message,
        }


@dataclass(frozen=True)
class Document:
    """A file's data, the lines of its keys and entries, and what is wrong with its form."""

    path: Path
    data: Any
    line_of: dict[Where, int] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()

    def line(self, where: Where) -> int:
        """The line of a key; of the block around it if it is not there."""
        while where and where not in self.line_of:
            where = where[:-1]
        return self.line_of.get(where, 1)


def read(path: Path) -> Document:
    """The file's document; a file that cannot be read has no data and one problem."""
    try:
        # A pipe or a device with a role's name would hold us for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            return _unreadable(path, "is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")
    if len(raw) > MAX_BYTES:
        return _unreadable(path, "is larger than 1 MiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unreadable(path, f"is not UTF-8: byte 0x{raw[error.start]:02x}", line)
    return parse(path, text)


def parse(path: Path, text: str) -> Document:
    """The document in the text; `path` is only named in problems."""
    document = _parse(path, text, pure=False)
    if any(problem.message == FLOW_COLON for problem in document.problems):
        # `[Bash(git add:*)]` is right by YAML 1.2 but not for the C parser (libyaml 0.2.5).
        return _parse(path, text, pure=True)
    return document


def _parse(path: Path, text: str, pure: bool) -> Document:
    builder = _Builder(path)
    try:
        data = builder.document(YAML(typ="safe", pure=pure).parse(text))
    except _StopReadingError as stop:
        return Document(path, None, builder.line_of, (*builder.problems, stop.problem))
    except MarkedYAMLError as error:
        problem = _syntax_problem(path, text, error)
        return Document(path, None, builder.line_of, (*builder.problems, problem))
    except (YAMLError, UnicodeEncodeError):
        # Characters that YAML does not allow; neither error tells the line.
        character = re.search(
            r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text
        )
        line = text.count("\n", 0, character.start()) + 1 if character else 1
        code = f" U+{ord(character.group()):04X}" if character else ""
        return _unreadable(path, f"holds a character that YAML does not allow:{code}", line)
    return Document(path, data, builder.line_of, tuple(builder.problems))


def dotted(where: Where) -> str:
    """`permissions.allow.2`, as messages write it."""
    return ".".join(str(step) for step in where)


class _StopReadingError(Exception):
    def __init__(self, problem: FileProblem) -> None:
        self.problem = problem


class _Builder:
    """Turns the events of one file into data. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_of: dict[Where, int] = {}
        self.problems: list[FileProblem] = []
        self.values = 0
        self.anchors: dict[str, tuple[Any, int]] = {}

    def document(self, events: Iterator[Event]) -> Any:
        data: Any = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._stop(event, (), "there is more than one document in the file")
                first = next(events)
                self.line_of[()] = _line(first)
                data = self._value(first, events, ())
        return data

    def _value(self, event: Event, events: Iterator[Event], where: Where) -> Any:
        if isinstance(event, AliasEvent):
            return self._alias(event, where)
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        if event.tag is not None:
            self._report(event, where, f"tag {event.tag}: tags have no meaning here")
        before = self.values
        self._count(event, where, 1)
        value: Any
        if isinstance(event, ScalarEvent):
            value = self._scalar(event, where)
        elif len(where) >= MAX_DEPTH:
            raise self._stop(event, where[:1], f"is nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, SequenceStartEvent):
            value = self._sequence(events, where)
        else:
            value = self._mapping(events, where)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values - before)
        return value

    def _sequence(self, events: Iterator[Event], where: Where) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            inner = (*where, len(items))
            self.line_of[inner] = _line(event)
            items.append(self._value(event, events, inner))
        return items

    def _mapping(self, events: Iterator[Event], where: Where) -> dict[str, Any]:
        block: dict[str, Any] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._key(event, events, where)
            inner = (*where, key)
            if key in block:
                first = self.line_of[inner]
                self._report(event, inner, f"is there twice · first in line {first}")
            else:
                self.line_of[inner] = _line(event)
            block.setdefault(key, self._value(next(events), events, inner))
        return block

    def _key(self, event: Event, events: Iterator[Event], where: Where) -> str:
        if not isinstance(event, ScalarEvent):
            raise self._stop(event, where, "a key must be plain text")
        if event.value == "<<" and not event.style:
            raise self._stop(event, where, "merge keys (<<) are not supported · write the keys out")
        if not isinstance(self._value(event, events, where), str):
            self._report(event, (*where, event.value), "a key must be text · quote it")
        return str(event.value)

    def _alias(self, event: AliasEvent, where: Where) -> Any:
        if event.anchor not in self.anchors:
            raise self._stop(event, where, f"*{event.anchor} refers to nothing before it")
        value, size = self.anchors[event.anchor]
        self._count(event, where, size)
        return value

    def _scalar(self, event: ScalarEvent, where: Where) -> Any:
        if "\0" in event.value:
            self._report(event, where, "holds a NUL character")
        return event.value if event.style else _resolve(event.value)

    def _count(self, event: Event, where: Where, values: int) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise self._stop(event, where, f"the file holds more than {MAX_VALUES} values")

    def _report(self, event: Event, where: Where, message: str) -> None:
        self.problems.append(FileProblem(self.path, _line(event), dotted(where), message))

    def _stop(self, event: Event, where: Where, message: str) -> _StopReadingError:
        return _StopReadingError(FileProblem(self.path, _line(event), dotted(where), message))


def _resolve(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema; what JSON cannot hold stays text."""
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _unreadable(path: Path, message: str, line: int = 1) -> Document:
    return Document(path, None, problems=(FileProblem(path, line, "", message),))


def _syntax_problem(path: Path, text: str, error: MarkedYAMLError) -> FileProblem:
    complaint = str(error.problem or error.context)
    mark = error.problem_mark or error.context_mark
    if complaint in BEGINS_EARLIER and error.context_mark is not None:
        mark = error.context_mark
    lines = text.splitlines()
    number = min(mark.line, max(len(lines) - 1, 0))
    indentation = re.match(r"\s*", lines[number]) if lines else None
    message = PLAIN_WORDS.get(complaint, complaint)
    if "tab character" in complaint or (indentation and "\t" in indentation.group()):
        message = "a tab in the indentation · indent with spaces"
    return FileProblem(path, number + 1, "", message)
