"""The language in which a prompt scripts the model; standard library only, for the stand-in.

A script stands in a user's text between `[[` and `]]`; the last one counts, and what is around it
(reminders, wrappers, prompts that were merged) does not matter. Steps are separated by a line
break or by ` ; `:

    say TEXT                  text of the answer
    think [TEXT]              a thinking block
    tool NAME {json}          a tool call; the next step is for the request that brings its result
    also NAME {json}          a further call in the same answer as the `tool` before it
    next                      end the answer here; what follows is for the next request
    hold [NAME]               wait until the test releases NAME ("hold" if it has none)
    slow SECONDS              stream the next `say` word by word over that time
    status CODE [retry-after N] [xTIMES]
                              refuse with that HTTP status, TIMES times (without: always)
    cut [xTIMES]              break the connection in the middle of the answer

A value `"$NAME"` of a tool's JSON stands for the field NAME of the last tool result that is JSON
and has it: `{"after": "$id"}`.

A script in a tool's JSON, for an agent that the tool starts, is written by `nested`: `[~[say hi]~]`
there is `[[say hi]]` for the tool.

So `[[tool Bash {"command":"echo hi"} ; say done]]` calls a tool, then says "done". A text without
a script, and a request beyond a script's end, is answered with `PLAIN`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

PLAIN = "ok"


@dataclass(frozen=True)
class Say:
    """Text of the answer."""

    text: str


@dataclass(frozen=True)
class Think:
    """A thinking block."""

    text: str


@dataclass(frozen=True)
class Tool:
    """A tool call; `also` when it belongs to the answer of the call before it."""

    name: str
    input: dict[str, Any]
    also: bool = False


@dataclass(frozen=True)
class Next:
    """The end of an answer."""


@dataclass(frozen=True)
class Hold:
    """Wait for the test."""

    name: str


@dataclass(frozen=True)
class Slow:
    """The time that the next `Say` takes."""

    seconds: float


@dataclass(frozen=True)
class Status:
    """A refusal."""

    code: int
    retry_after: int | None
    times: int | None


@dataclass(frozen=True)
class Cut:
    """A broken connection."""

    times: int | None


Step = Say | Think | Tool | Next | Hold | Slow | Status | Cut
Answer = tuple[Step, ...]

_BRACKETS = re.compile(r"([\[\]])(~*)\1")
_INNER_BRACKETS = re.compile(r"([\[\]])~(~*)\1")
_START = re.compile(r"\[\[\s*(?=(?:say|think|tool|hold|slow|status|cut)\b)")
_WORD = re.compile(r"\s*(\w+)[ \t]*")
_NAME = re.compile(r"\S+[ \t]*")
_END = re.compile(r"\s*\]\]|[ \t]*(?:\n\s*|(?<=\s);(?=\s)|$)")
_STATUS = re.compile(r"(\d{3})(?:\s+retry-after\s+(\d+))?(?:\s+x(\d+))?$")
_TIMES = re.compile(r"(?:x(\d+))?$")


class BadScript(Exception):
    """The test wrote something that is not in the language."""


def nested(value: Any) -> Any:
    """With the scripts in its texts hidden from who reads the script that it stands in. Not with
    escapes of JSON: Claude Code takes doubled ones apart."""
    return _replaced(_BRACKETS, r"\1~\2\1", value)


def unnested(value: Any) -> Any:
    """One level less."""
    return _replaced(_INNER_BRACKETS, r"\1\2\1", value)


def _replaced(pattern: re.Pattern[str], text: str, value: Any) -> Any:
    match value:
        case str():
            return pattern.sub(text, value)
        case list():
            return [_replaced(pattern, text, each) for each in value]
        case dict():
            return {key: _replaced(pattern, text, each) for key, each in value.items()}
    return value


def find_script(text: str) -> tuple[Answer, ...] | None:
    """The answers that the last script in this text asks for."""
    starts = list(_START.finditer(text))
    return _answers(_steps(text, starts[-1].end())) if starts else None


def _answers(steps: list[Step]) -> tuple[Answer, ...]:
    answers: list[list[Step]] = [[]]
    called = False
    for step in steps:
        if called and not (isinstance(step, Tool) and step.also):
            answers.append([])
            called = False
        if isinstance(step, Next):
            answers.append([])
        else:
            answers[-1].append(step)
            called = isinstance(step, Tool)
    return tuple(tuple(answer) for answer in answers)


def _steps(text: str, at: int) -> list[Step]:
    steps = []
    while True:
        step, at = _step(text, at)
        steps.append(step)
        end = _END.match(text, at)
        if end is None:
            raise BadScript(f"no end of step: {text[at : at + 60]!r}")
        at = end.end()
        if end[0].endswith("]]"):
            return steps
        if at >= len(text):
            raise BadScript(f"no ]] after {text[-60:]!r}")


def _step(text: str, at: int) -> tuple[Step, int]:
    word = _WORD.match(text, at)
    if word is None:
        raise BadScript(f"no step at {text[at : at + 60]!r}")
    at = word.end()
    if word[1] in ("tool", "also"):
        return _tool(text, at, also=word[1] == "also")
    end = _END.search(text, at)
    rest = text[at : end.start()].strip() if end else ""
    return _plain(word[1], rest), at + len(text[at : end.start()] if end else "")


def _tool(text: str, at: int, also: bool) -> tuple[Tool, int]:
    name = _NAME.match(text, at)
    if name is None:
        raise BadScript("a tool needs a name")
    # The JSON's own end counts, so that it may hold "]]" and " ; ".
    try:
        value, end = json.JSONDecoder().raw_decode(text, name.end())
    except ValueError as error:
        raise BadScript(f"tool {name[0]}: {error} in {text[name.end() :][:60]!r}") from error
    return Tool(name[0].strip(), value, also), end


def _plain(word: str, rest: str) -> Step:
    match word:
        case "say":
            return Say(rest)
        case "think":
            return Think(rest or "hm")
        case "next":
            return Next()
        case "hold":
            return Hold(rest or "hold")
        case "slow":
            return Slow(float(rest))
        case "status" if found := _STATUS.match(rest):
            return Status(int(found[1]), _number(found[2]), _number(found[3]))
        case "cut" if found := _TIMES.match(rest):
            return Cut(_number(found[1]))
    raise BadScript(f"not a step: {word} {rest}")


def _number(digits: str | None) -> int | None:
    return int(digits) if digits else None
