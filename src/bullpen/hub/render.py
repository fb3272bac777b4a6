"""Finished text for people: lists and explanations as the terminal shows them. Pure.

Here and not in the command line, because the hot commands have no time to lay out text.
"""

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime

from bullpen.hub.registry import Live
from bullpen.model.component import Component
from bullpen.model.state import Blocked, Exited, Idle, Lost, Unknown, Working, words
from bullpen.text import align, printable

HEADERS = ("AGENT", "ROLE", "STATE", "BRANCH", "MODEL", "IDLE")
NOBODY = "no agents · bullpen run --role ROLE, or bullpen run -- PROGRAM"


def list_text(
    agents: Sequence[Live],
    broken: dict[str, str],
    bridges: Sequence[Component] = (),
    *,
    pod: str = "",
    colour: bool,
    now: float,
) -> str:
    """`bullpen list`: those without a pod first, then each pod under its name, bridges last.
    `pod` is the one that was asked for, if only one was."""
    last = "\n".join(_bridges(bridges, colour)) + "\n" if bridges else ""
    if not agents and not broken:
        nobody = f"no agents in pod {printable(pod)} · bullpen pod list" if pod else NOBODY
        return f"{nobody}\n{last}"
    rows: list[tuple[str, ...]] = [HEADERS]
    lives: list[Live | None] = [None]
    by_pod = sorted(agents, key=_pod)  # stable: by name within
    for label, found in itertools.groupby(by_pod, _pod):
        members = list(found)
        if label:
            rows.append((printable(label), *("",) * (len(HEADERS) - 1)))
            lives.append(None)
        rows += [_row(live, now, indent="  " if label else "") for live in members]
        lives += members
    used = [n for n in range(len(HEADERS)) if n < 3 or any(row[n] for row in rows[1:])]
    lines = align([[row[n] for n in used] for row in rows])
    if colour:
        lines = [
            _painted(line, live, n == 0)
            for n, (line, live) in enumerate(zip(lines, lives, strict=True))
        ]
    lines += [f"{printable(name)}: {printable(reason)}" for name, reason in sorted(broken.items())]
    return "\n".join(lines) + "\n" + last


def _pod(live: Live) -> str:
    return live.agent.pod


def _bridges(bridges: Sequence[Component], colour: bool) -> list[str]:
    rows = [(f"  {printable(one.name)}", one.url, printable(one.version)) for one in bridges]
    return ["\x1b[1mBridges\x1b[0m" if colour else "Bridges", *align(rows)]


def _row(live: Live, now: float, indent: str) -> tuple[str, ...]:
    agent, view = live.agent, live.view
    is_idle = isinstance(view.state, Idle)
    return (
        indent + printable(agent.name),
        printable(agent.role or agent.engine),
        printable(words(view.state)),
        printable(agent.birth_branch),
        printable(agent.model),
        age(now - view.since) if is_idle else "",
    )


def _painted(line: str, live: Live | None, is_header: bool) -> str:
    code = "2" if is_header else "1" if live is None else _colour_of(live)
    return f"\x1b[{code}m{line}\x1b[0m" if code else line


def _colour_of(live: Live) -> str:
    match live.view.state:
        case Blocked():
            return "33"
        case Working():
            return "32"
        case Lost():
            return "31"
        case Exited():
            return "2"
        case _:
            return ""


def explain_text(live: Live) -> str:
    """`bullpen explain`: the state, and every piece of evidence with the one that decides."""
    view = live.view
    head = f"{printable(words(view.state))}, since {moment(view.since)}"
    rows = [
        (
            f"  {printable(item.source)}",
            printable(item.says),
            moment(item.at) + ("   ← decides" if item.source == view.decided_by else ""),
        )
        for item in sorted(view.evidence, key=lambda item: -item.at)
    ]
    lines = [head, *align(rows)]
    if isinstance(view.state, Unknown):
        lines.append(f"  missing: {printable(view.state.missing)}")
    return "\n".join(lines) + "\n"


def agent_text(live: Live) -> str:
    """`bullpen status NAME`: the whole record of one agent."""
    agent = live.agent
    fields = {
        "agent": agent.name,
        "state": words(live.view.state),
        "since": moment(live.view.since),
        "role": agent.role,
        "pod": agent.pod,
        "parent": agent.parent,
        "engine": agent.engine,
        "model": agent.model,
        "command": " ".join(agent.command),
        "directory": agent.cwd,
        "worktree": agent.worktree.path if agent.worktree else "",
        "branch": agent.birth_branch,
        "overrides": " ".join(agent.overrides),
        "created": agent.created,
    }
    return "\n".join(align([(k, printable(v)) for k, v in fields.items() if v])) + "\n"


def status_text(fields: dict[str, object], agents: Iterable[Live]) -> str:
    """`bullpen status`: the hub in a line, each agent in a line."""
    hub = (
        f"hub {fields['version']} · pid {fields['pid']} · port {fields['port']}"
        f" · up {age(float(str(fields['uptime_seconds'])))}"
    )
    rows = [
        (f"  {printable(live.agent.name)}", printable(words(live.view.state))) for live in agents
    ]
    return "\n".join([hub, *align(rows)]) + "\n"


def age(seconds: float) -> str:
    """`12s`, `40m`, `3h`, `6d`."""
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(at: float) -> str:
    """Local time of day; with the date when it is not today's."""
    local = datetime.fromtimestamp(at).astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
