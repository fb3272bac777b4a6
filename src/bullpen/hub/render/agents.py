"""Agents: the list, one of them, and why its state is what it is; the hub's status. Pure."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from bullpen.hub.registry import Live
from bullpen.hub.render.words import age, count_messages, moment, to_the_right, waiting_text
from bullpen.model.component import Component
from bullpen.model.state import Blocked, Exited, Idle, Lost, Unknown, Working, words
from bullpen.model.usage import (
    NOTHING,
    Totals,
    short_count,
    short_seconds,
    short_usd,
)
from bullpen.text import align, printable

HEADERS = ("AGENT", "ROLE", "STATE", "BRANCH", "MODEL", "TOKENS", "COST", "IDLE", "MSG")
FIGURES = (5, 6)  # columns of the above
WORD_CHARACTERS = 100
NOBODY = "no agents · bullpen run --role ROLE, or bullpen run -- PROGRAM"


def list_text(
    agents: Sequence[Live],
    broken: dict[str, str],
    bridges: Sequence[Component] = (),
    *,
    pod: str = "",
    usage: Mapping[str, Totals] | None = None,
    waiting: Mapping[str, int] | None = None,
    approvals: int = 0,
    unread: int = 0,
    colour: bool,
    now: float,
) -> str:
    """`bullpen list`: those without a pod first, then each pod under its name, bridges last.
    `pod` is the one that was asked for, if only one was; `waiting`, how many messages are not
    delivered; `unread`, how many are for whoever looks."""
    last = "\n".join(_bridges(bridges, colour)) + "\n" if bridges else ""
    if approvals:
        wait = "1 approval waits" if approvals == 1 else f"{approvals} approvals wait"
        last += f"{wait} · bullpen approvals\n"
    if unread:
        last += f"{count_messages(unread)} for you · bullpen inbox\n"
    if not agents and not broken:
        nobody = f"no agents in pod {printable(pod)} · bullpen pod list" if pod else NOBODY
        return f"{nobody}\n{last}"
    is_counted = any(found.tokens or found.usd for found in (usage or {}).values())

    def used_by(live: Live) -> tuple[str, str]:
        return _used((usage or {}).get(live.agent.name, NOTHING)) if is_counted else ("", "")

    rows: list[tuple[str, ...]] = [HEADERS]
    lives: list[Live | None] = [None]
    by_pod = sorted(agents, key=_pod)  # stable: by name within
    for label, found in itertools.groupby(by_pod, _pod):
        members = list(found)
        if label:
            rows.append((printable(label), *("",) * (len(HEADERS) - 1)))
            lives.append(None)
        for live in members:
            count = (waiting or {}).get(live.agent.name, 0)
            rows.append(_row(live, now, "  " if label else "", used_by(live), count))
        lives += members
    rows = to_the_right(rows, FIGURES)
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


def _row(
    live: Live, now: float, indent: str, used: tuple[str, str], waiting: int
) -> tuple[str, ...]:
    agent, view = live.agent, live.view
    is_idle = isinstance(view.state, Idle)
    return (
        indent + printable(agent.name),
        printable(agent.role or agent.engine),
        printable(words(view.state)),
        printable(agent.birth_branch),
        printable(agent.model),
        *used,
        age(now - view.since) if is_idle else "",
        str(waiting) if waiting else "",
    )


def _used(totals: Totals) -> tuple[str, str]:
    return (
        short_count(totals.tokens) if totals.tokens else "–",
        short_usd(totals.usd) if totals.usd else "–",
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


def explain_text(live: Live, waiting: int = 0, why: str = "") -> str:
    """`bullpen explain`: the state, and every piece of evidence with the one that decides; why
    messages wait, if some do."""
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
    if waiting:
        lines.append(f"  {waiting_text(waiting, why)}")
    return "\n".join(lines) + "\n"


def agent_text(live: Live, used: Totals = NOTHING, waiting: int = 0, why: str = "") -> str:
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
        "command": " ".join(_cut(word) for word in agent.command),
        "conversation": agent.engine_session,
        "directory": agent.cwd,
        "worktree": agent.worktree.path if agent.worktree else "",
        "branch": agent.birth_branch,
        "overrides": " ".join(agent.overrides),
        "created": f"{agent.created[:19]}Z",
        "tokens": short_count(used.tokens) if used.tokens else "",
        "cost": short_usd(used.usd) if used.usd else "",
        "worked": short_seconds(used.work_seconds) if used.work_seconds else "",
        "messages": waiting_text(waiting, why) if waiting else "",
    }
    return "\n".join(align([(k, printable(v)) for k, v in fields.items() if v])) + "\n"


def summary_text(used: Totals, waiting: int) -> str:
    """In the title of a terminal: `41.2k tokens · $0.38 · 1 message waits`; what is nothing is
    left out."""
    parts = (
        f"{short_count(used.tokens)} tokens" if used.tokens else "",
        short_usd(used.usd) if used.usd else "",
        waiting_text(waiting, "") if waiting else "",
    )
    return " · ".join(filter(None, parts))


def _cut(word: str) -> str:
    """Instructions are words of a command, too."""
    return word if len(word) <= WORD_CHARACTERS else word[: WORD_CHARACTERS - 1] + "…"


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
