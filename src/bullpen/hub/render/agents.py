"""Agents: the list, one of them, and why its state is what it is; the hub's status. Pure."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bullpen.hub.agents.registry import LiveAgent, PrivateGit
from bullpen.hub.render.directors import directors_text
from bullpen.hub.render.words import age, count_messages, moment, waiting_text
from bullpen.model.agent_shown import listed_only
from bullpen.model.component import Component
from bullpen.model.director import DirectorShown
from bullpen.model.state import (
    Blocked,
    Errored,
    Evidence,
    Exited,
    Idle,
    Interrupted,
    Lost,
    Unknown,
    Working,
    was_interrupted,
    words,
)
from bullpen.model.usage import (
    NOTHING,
    Totals,
    short_count,
    short_seconds,
    short_usd,
)
from bullpen.table import hang, lay_out, lay_out_whole
from bullpen.text import align, printable

WORD_CHARACTERS = 100
NOBODY = "no agents · bullpen run --role ROLE, or bullpen run -- PROGRAM"


@dataclass(frozen=True)
class ListedAgent:
    """What a line of `bullpen list` is made of."""

    live: LiveAgent
    used: Totals | None  # None: nobody has used anything that was counted
    waiting: int  # messages that are not delivered
    now: float
    last_words: str = ""  # the last line of its last answer
    landing: str = ""  # what its work waits for
    branch: str = ""  # of a task agent: that of its current or last task


@dataclass(frozen=True)
class Column:
    """A column of `bullpen list`. Left out if it is empty for all agents, unless `is_always`."""

    header: str
    text: Callable[[ListedAgent], str]
    is_always: bool = False
    is_figure: bool = False  # right-aligned


# A new column of `bullpen list` is a new line here, if `LiveAgent` or `Totals` has what it shows.
# Other data has to come in by a field of `ListedAgent`, which `list_text` fills.
COLUMNS = (
    Column("AGENT", lambda listed: printable(listed.live.agent.name), is_always=True),
    Column("ROLE", lambda listed: _role(listed.live), is_always=True),
    Column("STATE", lambda listed: printable(words(listed.live.view.state)), is_always=True),
    Column("BRANCH", lambda listed: printable(_branch(listed.live, listed.branch))),
    Column("MODEL", lambda listed: printable(listed.live.agent.model)),
    Column("TOKENS", lambda listed: _tokens(listed.used), is_figure=True),
    Column("COST", lambda listed: _cost(listed.used), is_figure=True),
    Column("IDLE", lambda listed: _idle(listed.live, listed.now)),
    Column("MSG", lambda listed: str(listed.waiting) if listed.waiting else ""),
    Column("LANDING", lambda listed: printable(listed.landing)),
    Column("SAID", lambda listed: printable(listed.last_words)),
)


FIGURES = tuple(column.header for column in COLUMNS if column.is_figure)
# What a narrow terminal does not show, the first of it first; and what may be cut.
DROPPED = ("SAID", "MODEL", "TOKENS", "BRANCH", "COST", "IDLE", "ROLE", "MSG", "LANDING")
CUT = ("AGENT", "ROLE", "STATE", "BRANCH", "MODEL", "LANDING", "SAID")


def list_text(
    agents: Sequence[LiveAgent],
    broken: dict[str, str],
    bridges: Sequence[Component] = (),
    directors: Sequence[DirectorShown] = (),
    *,
    pod: str = "",
    usage: Mapping[str, Totals] | None = None,
    waiting: Mapping[str, int] | None = None,
    latest_words: Mapping[str, str] | None = None,
    landing: Mapping[str, str] | None = None,
    branches: Mapping[str, str] | None = None,
    approvals: int = 0,
    in_terminal: Collection[str] = (),
    unread: int = 0,
    note: str = "",
    colour: bool,
    now: float,
    columns: int = 0,
) -> str:
    """`bullpen list`: those without a pod first, then each pod under its name, directors and
    bridges last.
    `pod` is the one that was asked for, if only one was; `waiting`, how many messages are not
    delivered; `latest_words`, the last lines of last answers; `landing`, what waits to land;
    `branches`, where task agents work; `in_terminal`, whose permission or question
    no inbox can answer; `unread`, how many are for whoever looks. 0 `columns` is no limit."""
    last = directors_text(directors, now, colour=colour, columns=columns)
    last += "\n".join(_bridges(bridges, colour, columns)) + "\n" if bridges else ""
    last += "".join(map(_dialog, agents))
    last += "".join(
        _only_there(live.agent.name) for live in agents if live.agent.name in in_terminal
    )
    if approvals:
        wait = "1 approval waits" if approvals == 1 else f"{approvals} approvals wait"
        last += f"{wait} · bullpen approvals\n"
    if unread:
        last += f"{count_messages(unread)} for you · bullpen inbox\n"
    if note:
        last += f"{printable(note)}\n"
    cut = [live for live in agents if was_interrupted(live.view.state)]
    if cut:
        which = f"--pod {printable(pod)}" if pod else "--all"
        were = "1 agent was" if len(cut) == 1 else f"{len(cut)} agents were"
        last += f"{were} interrupted · bullpen resume {which}\n"
    if not agents and not broken:
        nobody = f"no agents in pod {printable(pod)} · bullpen pod list" if pod else NOBODY
        return f"{nobody}\n{last}"
    is_counted = any(used.tokens or used.usd for used in (usage or {}).values())

    rows = [[column.header for column in COLUMNS]]
    lives: list[LiveAgent | None] = [None]
    by_pod = sorted(agents, key=_pod)  # stable: by name within
    for label, group in itertools.groupby(by_pod, _pod):
        if label:
            rows.append([printable(label), *("",) * (len(COLUMNS) - 1)])
            lives.append(None)
        for live in group:
            name = live.agent.name
            used = (usage or {}).get(name, NOTHING) if is_counted else None
            listed = ListedAgent(
                live,
                used,
                (waiting or {}).get(name, 0),
                now,
                (latest_words or {}).get(name, ""),
                (landing or {}).get(name, ""),
                (branches or {}).get(name, ""),
            )
            first, *others = (column.text(listed) for column in COLUMNS)
            rows.append([f"  {first}" if label else first, *others])
            lives.append(live)
    shown = _filled_columns(rows)
    lines = lay_out(
        [COLUMNS[number].header for number in shown],
        [[row[number] for number in shown] for row in rows],
        columns,
        drop=DROPPED,
        cut=CUT,
        figures=FIGURES,
    )
    if colour:
        lines = [
            _painted(line, live, n == 0)
            for n, (line, live) in enumerate(zip(lines, lives, strict=True))
        ]
    lines += [f"{printable(name)}: {printable(reason)}" for name, reason in sorted(broken.items())]
    return "\n".join(lines) + "\n" + last


def _pod(live: LiveAgent) -> str:
    return live.agent.pod


def _bridges(bridges: Sequence[Component], colour: bool, columns: int) -> list[str]:
    rows = [(f"  {printable(one.name)}", one.url, printable(one.version)) for one in bridges]
    lines = lay_out(("name", "url", "version"), rows, columns, drop=("version",), cut=("url",))
    return ["\x1b[1mBridges\x1b[0m" if colour else "Bridges", *lines]


def _filled_columns(rows: list[list[str]]) -> list[int]:
    return [
        number
        for number, column in enumerate(COLUMNS)
        if column.is_always or any(row[number] for row in rows[1:])
    ]


def _role(live: LiveAgent) -> str:
    return printable(live.agent.role or live.agent.engine)


def _branch(live: LiveAgent, of_task: str = "") -> str:
    """`amy`, `amy (on feature/login, diverged)`, `amy (detached)`."""
    git = live.private_git or PrivateGit()
    notes = (
        git.where,
        "diverged" if git.diverged else "",
        "not brought over" if git.refused else "",
    )
    text = ", ".join(filter(None, notes))
    branch = live.agent.birth_branch or of_task
    return f"{branch} ({text})".strip() if text else branch


def _idle(live: LiveAgent, now: float) -> str:
    return age(now - live.view.since) if isinstance(live.view.state, Idle) else ""


def _tokens(used: Totals | None) -> str:
    if used is None:
        return ""
    return short_count(used.tokens) if used.tokens else "–"


def _cost(used: Totals | None) -> str:
    if used is None:
        return ""
    return short_usd(used.usd) if used.usd else "–"


def _painted(line: str, live: LiveAgent | None, is_header: bool) -> str:
    code = "2" if is_header else "1" if live is None else _colour_of(live)
    return f"\x1b[{code}m{line}\x1b[0m" if code else line


def _colour_of(live: LiveAgent) -> str:
    match live.view.state:
        case Blocked():
            return "33"
        case Working():
            return "32"
        case Exited(unasked=False) | Interrupted(reason="killed"):
            return "2"
        case Exited() | Lost() | Errored() | Interrupted():
            return "31"
        case Idle(failed=why) if why:
            return "31"
        case _:
            return ""


def _dialog(live: LiveAgent) -> str:
    """What to do for one whose program stands at a dialog of its own."""
    if not _is_at_dialog(live):
        return ""
    name = printable(live.agent.name)
    return f"{name} waits at a dialog of its program · bullpen attach {name}\n"


def _only_there(name: str) -> str:
    return f"{name} can only be answered in its terminal · bullpen attach {name}\n"


def _is_at_dialog(live: LiveAgent) -> bool:
    return isinstance(live.view.state, Blocked) and live.view.state.on == "dialog"


def explain_text(
    live: LiveAgent,
    waiting: int = 0,
    why: str = "",
    evidence: tuple[Evidence, ...] = (),
    columns: int = 0,
    host: str = "",
) -> str:
    """`bullpen explain`: the state, and every piece of evidence with the one that decides; why
    messages wait, if some do. `host` is this machine, if another one looks."""
    view = live.view
    head = f"{printable(words(view.state))}, since {moment(view.since)}"
    rows = [
        (
            f"  {printable(item.source)}",
            printable(item.says),
            moment(item.at) + ("   ← decides" if item.source == view.decided_by else ""),
        )
        for item in sorted(evidence or view.evidence, key=lambda item: -item.at)
    ]
    table = lay_out_whole(("source", "says", "at"), rows, columns, "says")
    lines = []
    if _is_at_dialog(live):
        name = f"{host}/{live.agent.name}" if host else live.agent.name
        lines.append(f"  answer it in its terminal · bullpen attach {printable(name)}")
    if isinstance(view.state, Unknown):
        lines.append(f"  missing: {printable(view.state.missing)}")
    if waiting:
        lines.append(f"  {waiting_text(waiting, why)}")
    git = live.private_git or PrivateGit()
    if git.diverged:
        lines.append(f"  {printable(live.agent.birth_branch)} diverged: moved outside and inside")
    lines += [f"  not brought over: {printable(text)}" for text in git.refused]
    rest = [part for line in lines for part in hang(line, columns)]
    return "\n".join([*hang(head, columns), *table, *rest]) + "\n"


def agent_text(
    live: LiveAgent,
    used: Totals = NOTHING,
    waiting: int = 0,
    why: str = "",
    *,
    branch: str = "",
    for_peer: bool = False,
) -> str:
    """`bullpen status NAME`: the whole record of one agent; for another agent a part of it."""
    agent = listed_only(live.agent) if for_peer else live.agent
    fields = {
        "agent": agent.name,
        "state": words(live.view.state),
        "since": moment(live.view.since),
        "role": agent.role,
        "pod": agent.pod,
        "parent": agent.parent,
        "engine": agent.engine,
        "model": agent.model,
        "command": "" if agent.takes_tasks else " ".join(map(_cut, agent.command)),
        "conversation": agent.conversation,
        "directory": agent.cwd,
        "worktree": agent.worktree.path if agent.worktree else "",
        "branch": _branch(live, branch),
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
    """Shorten a long argument: instructions are arguments of a command, too."""
    return word if len(word) <= WORD_CHARACTERS else word[: WORD_CHARACTERS - 1] + "…"


def status_text(fields: dict[str, object], agents: Iterable[LiveAgent], columns: int = 0) -> str:
    """`bullpen status`: the hub in a line, each agent in a line."""
    hub = (
        f"hub {fields['version']} · pid {fields['pid']} · port {fields['port']}"
        f" · up {age(float(str(fields['uptime_seconds'])))}"
    )
    notes = [printable(str(fields["settings_note"]))] if fields.get("settings_note") else []
    rows = [
        (f"  {printable(live.agent.name)}", printable(words(live.view.state))) for live in agents
    ]
    return (
        "\n".join([hub, *notes, *lay_out(("name", "state"), rows, columns, cut=("name", "state"))])
        + "\n"
    )
