"""Entries of transcripts, made of what engines write: bounded texts, times as numbers. Pure."""

from datetime import datetime

from bullpen.engines import parse
from bullpen.model.transcript import RESULT_CHARACTERS, TEXT_CHARACTERS, Entry


def prompt(text: object, at: float, key: str = "") -> Entry:
    """What the agent was told."""
    return Entry(kind="prompt", at=at, text=_cut(text, TEXT_CHARACTERS), key=key)


def answer(text: object, at: float, key: str = "") -> Entry:
    """What the agent said."""
    return Entry(kind="answer", at=at, text=_cut(text, TEXT_CHARACTERS), key=key)


def tool(name: object, detail: str, at: float, key: str = "") -> Entry:
    """A tool that it used, and on what."""
    return Entry(kind="tool", at=at, text=detail, tool=parse.text(name), key=key)


def result(text: object, at: float, key: str = "") -> Entry:
    """What came of a tool."""
    return Entry(kind="result", at=at, text=_cut(text, RESULT_CHARACTERS), key=key)


def moment(value: object) -> float:
    """A time as these programs write it; 0 for whatever else it is."""
    try:
        return datetime.fromisoformat(parse.text(value)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _cut(value: object, most: int) -> str:
    text = parse.text(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
