"""How landings look to people: a line for each, and what moved. Pure."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from bullpen.home.paths import short_path
from bullpen.model.landing import (
    CameBack,
    Cancelled,
    Landed,
    Landing,
    Refused,
    Verifying,
    Waiting,
)
from bullpen.text import printable, seconds_text

DONE = {"merge": "merged", "squash": "squashed", "rebase": "rebased"}
SHORT = 7
MOST_LINES = 20  # of what a command wrote


def outcome(landing: Landing) -> str:
    """`on main 3f2a91c · merged · make test 48 s · landed as 8c1d2e0`."""
    match landing.status:
        case Landed() as landed:
            return _landed(landing, landed)
        case CameBack() as back:
            answer = f"no agent has it, lands when you have committed on {landing.branch}"
            if back.is_agent_told:
                answer = f"{landing.name} was told, lands when it has answered"
                if not back.is_agent_running:
                    answer = (
                        f"{landing.name} does not run, the message waits for it: {_resume(landing)}"
                    )
            return f"{_problem(landing, back)} · {answer} · bullpen land --list"
        case Refused(message=message):
            return f"refused: {message}"
        case Cancelled(reason=reason):
            return f"cancelled: {reason}" if reason else "cancelled"
        case status:
            return f"{status.state} · {landing.target}"


def waiting_row(landing: Landing) -> tuple[str, str, str]:
    """Of the queue: whose work, into which branch, and what it waits for."""
    match landing.status:
        case CameBack(at=at) as back:
            when = datetime.fromtimestamp(at).astimezone().strftime("%H:%M")
            waits = f"waits for your commit on {landing.branch}, since {when}"
            if back.is_agent_told:
                waits = f"waits for a commit of {landing.name}, told {when}"
                if not back.is_agent_running:
                    waits = f"waits for {landing.name}, which does not run: {_resume(landing)}"
            state = f"{_problem(landing, back)} · {waits}"
        case Waiting():
            state = "waits for its turn"
        case Verifying():
            state = f"{landing.verify} runs"
        case status:
            state = status.state
    return landing.name, landing.target, state


def _resume(landing: Landing) -> str:
    return f"bullpen resume {landing.name}"


def _landed(landing: Landing, landed: Landed) -> str:
    if landed.is_there:
        return f"landed (already there) · {landing.target} {landed.commit[:SHORT]}"
    seconds = landed.verified_seconds
    verified = "" if seconds is None else f"{landing.verify} {seconds_text(round(seconds))}"
    parts = (
        f"on {landing.target} {landed.base[:SHORT]}",
        DONE[landing.strategy],
        verified,
        f"landed as {landed.commit[:SHORT]}",
    )
    return " · ".join(filter(None, parts))


def _problem(landing: Landing, back: CameBack) -> str:
    if back.why == "conflict":
        return f"conflict in {_some(back.files)}"
    return f"{landing.verify} failed ({back.problem})"


def line_of(landing: Landing, width: int) -> str:
    """Safe to print."""
    return printable(f"{landing.name:<{width}}  {outcome(landing)}")


def failed_lines(landing: Landing, log: Path | None) -> list[str]:
    """The last lines of a command that failed, and where all of its output is, if it is kept."""
    match landing.status:
        case CameBack(why="verify", output=text):
            lines = text.splitlines()[-MOST_LINES:]
            lines += [f"all of it: {short_path(log)}"] if log else []
            return [printable(f"  {line}") for line in lines]
    return []


def moved_lines(landings: Iterable[Landing]) -> list[str]:
    """`main moved 3f2a91c → 8c1d2e0 · ~/code/shop was fast-forwarded`."""
    moves: dict[tuple[str, str], list[Landed]] = {}
    for landing in landings:
        if isinstance(landing.status, Landed) and not landing.status.is_there:
            moves.setdefault(landing.queue, []).append(landing.status)
    lines = []
    for (_, target), landed in moves.items():
        first, last = _ends(landed)
        checkout = next((each.checkout for each in landed if each.checkout), "")
        where = f" · {short_path(Path(checkout))} was fast-forwarded" if checkout else ""
        lines.append(printable(f"{target} moved {first[:SHORT]} → {last[:SHORT]}{where}"))
    return lines


def _ends(landed: list[Landed]) -> tuple[str, str]:
    """What the target was before the first of them, and is after the last: each stands on another,
    but the first."""
    commits, bases = {each.commit for each in landed}, {each.base for each in landed}
    first = next((each.base for each in landed if each.base not in commits), "")
    return first, next((each.commit for each in landed if each.commit not in bases), "")


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
