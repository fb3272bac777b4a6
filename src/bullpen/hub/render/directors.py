"""Directors, in `bullpen list`. Pure."""

from collections.abc import Sequence

from bullpen.hub.render.words import age
from bullpen.model.director import DirectorShown
from bullpen.table import lay_out
from bullpen.text import printable

COLOURS = {"error": "31", "gone": "31", "restarting": "33", "draining": "2"}


def directors_text(
    directors: Sequence[DirectorShown], now: float, *, colour: bool, columns: int
) -> str:
    """Each in a line, under a heading, and below them what is wrong with their files, which no
    narrow terminal cuts; nothing without any."""
    if not directors:
        return ""
    rows = [
        (f"  {printable(one.name)}", _state(one, now), _restarts(one), printable(_problem(one)))
        for one in directors
    ]
    headers = ("name", "state", "restarts", "problem")
    lines = lay_out(headers, rows, columns, drop=("restarts",), cut=("name", "problem"))
    if colour:
        lines = [_painted(line, one) for line, one in zip(lines, directors, strict=True)]
    lines += [printable(one.file_problem) for one in directors if one.file_problem]
    return "\n".join(["\x1b[1mDirectors\x1b[0m" if colour else "Directors", *lines]) + "\n"


def _state(one: DirectorShown, now: float) -> str:
    """`idle 3h`, `restarting in 8s`, `gone`."""
    if one.state == "restarting" and one.again_at is not None:
        return f"restarting in {age(one.again_at - now)}"
    return f"{one.state} {age(now - one.since)}" if one.since is not None else one.state


def _restarts(one: DirectorShown) -> str:
    return {0: "", 1: "1 restart"}.get(one.restarts, f"{one.restarts} restarts")


def _problem(one: DirectorShown) -> str:
    return (
        f"{one.problem} · bullpen director start {one.name}" if one.state == "gone" else one.problem
    )


def _painted(line: str, one: DirectorShown) -> str:
    code = COLOURS.get(one.state, "33" if one.problem or one.file_problem else "")
    return f"\x1b[{code}m{line}\x1b[0m" if code else line
