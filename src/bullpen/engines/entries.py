"""Entries of transcripts, made of what engines write: bounded texts, times as numbers. Pure."""

import json
from datetime import datetime
from typing import Any

from bullpen.engines import parse
from bullpen.model.transcript import RESULT_CHARACTERS, TEXT_CHARACTERS, Entry

LEVELS = 20


def prompt(text: object, at: float, key: str = "") -> Entry:
    """What the agent was told."""
    return Entry(kind="prompt", at=at, text=_cut(text, TEXT_CHARACTERS), key=key)


def answer(text: object, at: float, key: str = "") -> Entry:
    """What the agent said."""
    return Entry(kind="answer", at=at, text=_cut(text, TEXT_CHARACTERS), key=key)


def tool(
    name: object, detail: str, at: float, key: str = "", call: object = "", given: object = None
) -> Entry:
    """A tool that it used, and on what. `call`: the use's id; `given`: all that the tool was
    given."""
    return Entry(
        kind="tool",
        at=at,
        text=detail,
        tool=parse.text(name),
        key=key,
        call=parse.text(call),
        input=_bounded(parse.fields(given)),
    )


def result(text: object, at: float, key: str = "", call: object = "") -> Entry:
    """What came of a tool, or of that very use."""
    return Entry(
        kind="result",
        at=at,
        text=_cut(text, RESULT_CHARACTERS),
        key=key,
        call=parse.text(call),
    )


def moment(value: object) -> float:
    """A time as these programs write it; 0 for whatever else it is."""
    try:
        return datetime.fromisoformat(parse.text(value)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _cut(value: object, most: int) -> str:
    text = parse.text(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _bounded(given: dict[str, Any]) -> dict[str, Any] | None:
    """What a tool was given, as a file can hold it, its texts cut; None: nothing, or its rest is
    too much."""
    texts = {name: _cut(value, TEXT_CHARACTERS) for name, value in given.items() if _is_text(value)}
    rest = {name: value for name, value in given.items() if name not in texts}
    if not given or _is_deep(rest) or len(json.dumps(rest)) > TEXT_CHARACTERS:
        return None
    text = parse.sound(json.dumps({**given, **texts}, ensure_ascii=False))
    return parse.fields(json.loads(text, parse_constant=str))


def _is_deep(value: object, levels: int = LEVELS) -> bool:
    """Deeper than any tool needs: what is far deeper nobody can write as JSON again."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(each, levels - 1) for each in inner)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
