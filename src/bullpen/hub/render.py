"""Finished text for people: lists and explanations as the terminal shows them. Pure.

Here and not in the command line, because the hot commands have no time to lay out text.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from bullpen.hub.registry import Live
from bullpen.model.component import Component
from bullpen.model.message import ROOT, HandOver, Interrupt, Message, Wait, next_step
from bullpen.model.state import Blocked, Exited, Idle, Lost, Starting, Unknown, Working, words
from bullpen.model.usage import (
    NOTHING,
    Report,
    Totals,
    short_count,
    short_seconds,
    short_usd,
)
from bullpen.text import align, printable, width

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
        last += f"{_messages(unread)} for you · bullpen inbox\n"
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
    rows = _to_the_right(rows, FIGURES)
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


def _to_the_right(rows: Sequence[tuple[str, ...]], columns: Iterable[int]) -> list[tuple[str, ...]]:
    """With the cells of those columns under each other's ends; empty ones stay empty."""
    sizes = {column: max(width(row[column]) for row in rows) for column in columns}
    return [
        tuple(
            " " * (sizes[n] - width(cell)) + cell if cell and n in sizes else cell
            for n, cell in enumerate(row)
        )
        for row in rows
    ]


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
        lines.append(f"  {_waiting(waiting, why)}")
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
        "created": agent.created,
        "tokens": short_count(used.tokens) if used.tokens else "",
        "cost": short_usd(used.usd) if used.usd else "",
        "worked": short_seconds(used.work_seconds) if used.work_seconds else "",
        "messages": _waiting(waiting, why) if waiting else "",
    }
    return "\n".join(align([(k, printable(v)) for k, v in fields.items() if v])) + "\n"


def summary_text(used: Totals, waiting: int) -> str:
    """In the title of a terminal: `41.2k tokens · $0.38 · 1 message waits`; what is nothing is
    left out."""
    parts = (
        f"{short_count(used.tokens)} tokens" if used.tokens else "",
        short_usd(used.usd) if used.usd else "",
        _waiting(waiting, "") if waiting else "",
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


TOKEN_HEADERS = ("IN", "OUT", "CACHE READ", "CACHE WRITE")
USAGE_HEADERS = (*TOKEN_HEADERS, "COST", "REQUESTS", "TOOLS", "TOOL TIME", "WORKED")


def usage_text(report: Report) -> str:
    """`bullpen usage`: a line each, and one for all."""
    if not report.rows:
        since = f" since {report.since}" if report.since else ""
        return f"nothing was used{since} · agents report it while they work\n"
    rows: list[tuple[str, ...]] = [(report.by.upper(), *USAGE_HEADERS)]
    rows += [(printable(row.name) or f"no {report.by}", *_figures(row.used)) for row in report.rows]
    rows.append(("total", *_figures(report.total)))
    return "\n".join(align(_to_the_right(rows, range(1, len(rows[0]))))) + "\n"


def _figures(used: Totals) -> tuple[str, ...]:
    counts = (used.input, used.output, used.cache_read, used.cache_write)
    return (
        *(short_count(count) if count else "–" for count in counts),
        short_usd(used.usd) if used.usd else "–",
        short_count(used.requests) if used.requests else "–",
        short_count(used.tool_calls) if used.tool_calls else "–",
        short_seconds(used.tool_seconds) if used.tool_calls else "–",
        short_seconds(used.work_seconds) if used.work_seconds else "–",
    )


Labels = tuple[str, str, str, str]
LABELS = ("agent", "role", "pod", "model")
TOKEN_TYPES = ("input", "output", "cache_read", "cache_write")
COUNTERS: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("bullpen_cost_usd_total", "Cost in USD, as the programs reckon it.", lambda t: t.usd),
    ("bullpen_requests_total", "Requests to models that were answered.", lambda t: t.requests),
    ("bullpen_tool_calls_total", "Tool calls.", lambda t: t.tool_calls),
    ("bullpen_tool_seconds_total", "Time that tools took.", lambda t: t.tool_seconds),
    ("bullpen_work_seconds_total", "Time spent working.", lambda t: t.work_seconds),
)


def prometheus_text(
    states: Mapping[str, int], approvals: int, events: int, used: Sequence[tuple[Labels, Totals]]
) -> str:
    """What Prometheus reads."""
    lines = _metric("bullpen_agents", "gauge", "Agents by their state.")
    lines += [_sample("bullpen_agents", {"state": name}, states[name]) for name in sorted(states)]
    lines += _metric("bullpen_approvals_waiting", "gauge", "Decisions that wait for a person.")
    lines.append(_sample("bullpen_approvals_waiting", {}, approvals))
    lines += _metric("bullpen_events_total", "counter", "Events that were ever recorded.")
    lines.append(_sample("bullpen_events_total", {}, events))
    lines += _metric("bullpen_tokens_total", "counter", "Tokens, by type.")
    for labels, totals in used:
        for kind in TOKEN_TYPES:
            if count := getattr(totals, kind):
                named = {**dict(zip(LABELS, labels, strict=True)), "type": kind}
                lines.append(_sample("bullpen_tokens_total", named, count))
    for name, text, value_of in COUNTERS:
        lines += _metric(name, "counter", text)
        for labels, totals in used:
            if value := value_of(totals):
                lines.append(_sample(name, dict(zip(LABELS, labels, strict=True)), value))
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items() if text)
    return f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ── messages ─────────────────────────────────────────────────────────────────

TEXT_CHARACTERS = 200  # of a message in a line, where no width limits it
LEAST_CHARACTERS = 20
NO_MESSAGES = "no messages\n"
# Of an agent that works or is blocked, the rule says it itself.
WAITS_UNTIL: dict[type, str] = {
    Starting: "when it is ready",
    Idle: "when its rate limit is reset",
    Unknown: "when its state is known",
}


def sent_text(message: Message, live: Live | None, takes_messages: bool) -> str:
    """`bullpen send`: how far it got, and when it will go on."""
    when = sent_when(message, live, takes_messages)
    return f"{message.status}{when} · {message.id}\n"


def sent_when(message: Message, live: Live | None, takes_messages: bool) -> str:
    """Why a message that was just sent is where it is: ` (amy is working): at the end of its
    turn`. `live` is the receiver; `takes_messages`, whether any can be handed to its engine."""
    name = printable(message.to)
    if message.status != "queued":
        return ""
    if live is None:
        return ": in the person's inbox" if message.to == ROOT else ""
    if not live.is_running:
        return f" ({name} is not running): when it is started again"
    if not takes_messages:
        return f": {name} has to look into its inbox"
    if live.agent.deliver == "lines":
        return f" ({name} takes lines): at once"
    state = live.view.state
    return f" ({name} is {state.state}): {_due(live, message)}"


def _due(live: Live, message: Message) -> str:
    state = live.view.state
    match next_step(state, [message], float("inf")):
        case HandOver():
            return "at once"
        case Interrupt():
            return "its turn is ended first"
        case Wait(why=why):
            return WAITS_UNTIL.get(type(state)) or why.partition(": ")[2] or why
        case _:
            return ""


def inbox_text(
    messages: Sequence[Message],
    *,
    is_own: bool,
    for_owner: bool,
    why: str = "",
    columns: int = 0,
    full: bool = False,
) -> str:
    """`bullpen inbox`: a line each, the newest last; cut to the terminal's width, or with the
    whole text below. `is_own`: who looks is the receiver; `why`: why some are not delivered."""
    if not messages:
        return NO_MESSAGES
    heads = align([_head(message, is_own, for_owner) for message in messages])
    if full:
        blocks = [
            f"{head}\n{_body(message.text)}" for head, message in zip(heads, messages, strict=True)
        ]
        text = "\n".join(blocks)
    else:
        widest = max(map(width, heads))
        room = max(columns - widest - 2, LEAST_CHARACTERS) if columns else TEXT_CHARACTERS
        texts = [_line(message.text, room) for message in messages]
        text = "\n".join(align(list(zip(heads, texts, strict=True)))) + "\n"
    waiting = sum(message.status in ("queued", "sent") for message in messages)
    return text if is_own or not waiting or not why else f"{text}{_waiting(waiting, why)}\n"


def _head(message: Message, is_own: bool, for_owner: bool) -> tuple[str, ...]:
    is_new = is_own and message.status in ("queued", "sent")
    since = message.read or message.delivered or message.sent
    return (
        message.id,
        "you" if for_owner and message.sender == ROOT else printable(message.sender),
        _short_moment(message.created),
        "new" if is_new else message.status,
        "" if is_new or since is None else _short_moment(since),
    )


def _line(text: str, room: int) -> str:
    """The beginning of a text in so many columns, and whether there is more."""
    whole = text.strip()
    first = whole.partition("\n")[0][: room + 1]  # escaped it is never shorter
    shown = printable(first)
    if first == whole and width(shown) <= room:
        return shown
    while shown and width(shown) > room - 2:
        shown = shown[:-1]
    return f"{shown} …"


def _body(text: str) -> str:
    lines = printable(text.replace("\r\n", "\n").expandtabs(8), lines=True).split("\n")
    return "".join(f"  {line}".rstrip() + "\n" for line in lines)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _waiting(count: int, why: str) -> str:
    """`2 messages wait: it is working: at the end of its turn`."""
    verb = "waits" if count == 1 else "wait"
    return f"{_messages(count)} {verb}" + (f": {printable(why)}" if why else "")


def _short_moment(at: float) -> str:
    """Without the seconds."""
    return moment(at)[:-3]


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
