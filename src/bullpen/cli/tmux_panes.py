"""Several agents side by side: a tmux window with a pane for each, and new ones as they start.

tmux is a viewer here: each pane is an ordinary `bullpen attach`, and closing it ends nothing.
A person who is in tmux already gets a window there, others a session `bullpen-<title>`; who
comes a second time joins what is there. Windows are known by a mark of ours and not by their
names: another home may have a pod of the same name.
"""

import hashlib
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bullpen import proc
from bullpen.cli import output
from bullpen.client.agents import list_agents
from bullpen.client.events import stream_events
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.hot.own_python import TRUSTED_DIRECTORY, module_command

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentShown

ASK_AGAIN_SECONDS = 1.0
TMUX_SECONDS = 20.0
MARK = "@bullpen-panes"  # of a window: `<what it shows>:<random>`
AGENT = "@bullpen-agent"  # of a pane
# `attach` says more in the pane's title, as soon as it does: nobody else writes there.
CWD = ("-c", TRUSTED_DIRECTORY)
BORDER = f" #{{?#{{m:#{{{AGENT}}} *,#{{pane_title}}}},#{{pane_title}},#{{{AGENT}}}}} "
# The size of a pane is its agent's: what is smaller than that is no use to either.
LEAST_COLUMNS, LEAST_ROWS = 40, 8

Agents = Sequence["AgentShown"]
Choose = Callable[[Agents], list[str]]


def of_pod(pod: str) -> Choose:
    """The running agents of a pod."""
    return lambda agents: [a.name for a in agents if a.pod == pod and a.running]


def of_tree(root: str) -> Choose:
    """An agent, then those that it started, each followed by its own, as far as they run."""

    def choose(agents: Agents) -> list[str]:
        running = {agent.name for agent in agents if agent.running}
        return [name for name in _family(root, agents) if name in running]

    return choose


def _family(name: str, agents: Agents) -> Iterator[str]:
    yield name
    for agent in agents:
        if agent.parent == name:
            yield from _family(agent.name, agents)


def room(columns: int, rows: int) -> int:
    """How many panes a window of that size takes."""
    return max(2, (columns // LEAST_COLUMNS) * (rows // LEAST_ROWS))


# ── opening and joining ──


@dataclass(frozen=True)
class PaneWindow:
    """What is to be shown; `follow` is the command that adds those who start later."""

    home: Home
    title: str
    names: tuple[str, ...]
    follow: tuple[str, ...]

    @property
    def key(self) -> str:
        """The same for the same agents of the same home."""
        return f"{self.home.id}/{'/'.join(self.follow)}"


def show(hub: Hub, title: str, choose: Choose, follow: Sequence[str]) -> None:
    """Open the window, or join it if it is there."""
    names = choose(hub.do(list_agents()).agents)
    if not names:
        raise BullpenError(
            f"no agent of {title} is running", hint="bullpen list", kind=Kind.NOT_FOUND
        )
    if proc.find_program("tmux") is None:
        output.write("tmux is not installed; one by one:")
        for name in names:
            output.write(f"  bullpen attach {name}")
        return
    wanted = PaneWindow(hub.home, title, tuple(names), tuple(follow))
    if os.environ.get("TMUX"):
        _show_here(wanted)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "this needs a terminal", hint=f"bullpen peek {names[0]} · bullpen logs -f {names[0]}"
        )
    session = _show_apart(wanted)
    sys.stdout.flush()
    words = ["tmux", "attach-session", "-t", f"={session}"]
    os.execve(proc.get_program("tmux"), words, proc.with_absolute_path(os.environ))


def _show_here(wanted: PaneWindow) -> None:
    """In the session that the person is in: tmux in tmux is no joy."""
    there = _find_window(wanted.key, "list-windows")
    if there is None:
        _open(wanted, "new-window")
        return
    window, mark = there
    _add_missing(wanted, mark)
    _tmux("select-window", "-t", window)


def _show_apart(wanted: PaneWindow) -> str:
    """In a session of its own; its name."""
    plain = re.sub(r"[^A-Za-z0-9_~-]", "_", f"bullpen-{wanted.title}")  # others tmux changes itself
    other = f"{plain}-{hashlib.sha256(wanted.key.encode()).hexdigest()[:4]}"
    for session in (plain, other):
        if _try_tmux("has-session", "-t", f"={session}") is None:
            columns, lines = shutil.get_terminal_size()
            size = ("-x", str(columns), "-y", str(lines))
            _open(wanted, "new-session", "-d", "-s", session, *size)
            return session
        there = _find_window(wanted.key, "list-windows", "-t", f"={session}")
        if there is not None:
            _add_missing(wanted, there[1])
            return session
    raise BullpenError(
        f"the tmux sessions {plain} and {other} are somebody else's",
        hint=f"tmux kill-session -t {plain}, or bullpen attach {wanted.names[0]}",
        kind=Kind.CONFLICT,
    )


def _open(wanted: PaneWindow, *where: str) -> None:
    mark = f"{wanted.key}:{secrets.token_hex(4)}"
    first, *others = wanted.names
    _new_window(wanted.home, mark, wanted.title, first, *where)
    for name in others:
        add(wanted.home, mark, name)
    command = shlex.join(_bullpen(wanted.home, *wanted.follow, mark, *wanted.names))
    # tmux reads formats in it, and shows what it prints over the panes.
    _tmux("run-shell", "-b", f"exec {command} >/dev/null 2>&1".replace("#", "##"))


def _add_missing(wanted: PaneWindow, mark: str) -> None:
    """Panes that somebody has closed meanwhile."""
    shown = {pane.agent for pane in list_panes(mark)}
    for name in wanted.names:
        if name not in shown:
            add(wanted.home, mark, name)


def add(home: Home, mark: str, name: str) -> None:
    """One more pane, in one more window when the last one is full."""
    there = list_panes(mark)
    if not there:
        raise BullpenError("the panes are gone", kind=Kind.NOT_FOUND)
    last = there[-1]
    new = None
    if last.panes < room(last.columns, last.rows):
        words = ("split-window", "-d", "-t", last.id, *CWD, "-P", "-F", "#{pane_id}")
        new = _try_tmux(*words, *_bullpen(home, "attach", name))
    if new is None:
        _new_window(home, mark, last.title, name, "new-window", "-d", "-a", "-t", last.window)
    else:
        _name_pane(new, name)
        _tmux("select-layout", "-t", last.window, "tiled")


def _new_window(home: Home, mark: str, title: str, name: str, *where: str) -> None:
    words = (*where, "-n", title, *CWD, "-P", "-F", "#{window_id} #{pane_id}")
    window, pane = _tmux(*words, *_bullpen(home, "attach", name)).split()
    options = {MARK: mark, "pane-border-status": "top", "pane-border-format": BORDER}
    for option, value in options.items():
        _tmux("set-option", "-w", "-t", window, option, value)
    _name_pane(pane, name)


def _name_pane(pane: str, name: str) -> None:
    """Whose it is. Its `attach` may have ended already."""
    _try_tmux("set-option", "-p", "-t", pane, AGENT, name)


# ── what tmux has ──


@dataclass(frozen=True)
class Pane:
    """One of ours, with the window that it is in."""

    id: str
    agent: str
    window: str
    title: str
    panes: int  # in that window
    columns: int
    rows: int


def list_panes(mark: str) -> list[Pane]:
    """All with that mark, in their order."""
    fields = (MARK, "pane_id", AGENT, "window_id", "window_name", "window_panes")
    sizes = ("window_width", "window_height")
    form = "\t".join(f"#{{{field}}}" for field in (*fields, *sizes))
    listed = _try_tmux("list-panes", "-a", "-F", form) or ""
    rows = [line.split("\t") for line in listed.splitlines()]
    return [
        Pane(id, agent, window, title, int(panes), int(columns), int(height))
        for pane_mark, id, agent, window, title, panes, columns, height in rows
        if pane_mark == mark
    ]


def _find_window(key: str, *listing: str) -> tuple[str, str] | None:
    """The first window that shows it, and its mark."""
    listed = _try_tmux(*listing, "-F", f"#{{window_id}} #{{{MARK}}}") or ""
    for line in listed.splitlines():
        window, _, mark = line.partition(" ")
        if mark.rpartition(":")[0] == key:
            return window, mark
    return None


# ── following: a process of its own, started by tmux ──


def follow(home: Home, choose: Choose, mark: str, shown: set[str]) -> None:
    """Add agents as they start, for as long as there are panes with that mark."""
    last: int | None = None
    while list_panes(mark):
        is_first = True
        try:
            for event in Hub(home, start=False).stream(stream_events(last, heartbeats=True)):
                last = event.id or last
                if not list_panes(mark):
                    return
                if is_first or event.kind.startswith("agent."):
                    _add_new(home, choose, mark, shown)
                is_first = False
        except (BullpenError, OSError):
            pass  # the hub is away
        time.sleep(ASK_AGAIN_SECONDS)


def _add_new(home: Home, choose: Choose, mark: str, shown: set[str]) -> None:
    running = choose(Hub(home, start=False).do(list_agents()).agents)
    shown &= set(running)  # one that starts again is shown again
    there = {pane.agent for pane in list_panes(mark)}
    for name in running:
        if name not in shown:
            shown.add(name)
            if name not in there:
                add(home, mark, name)


# ── commands ──


def _bullpen(home: Home, *words: str) -> list[str]:
    """The server of tmux has an environment of its own, perhaps an agent's: the home is named."""
    others = [word for name in ("ACTOR", "TOKEN", "POD") for word in ("-u", f"BULLPEN_{name}")]
    env = proc.get_program("env")
    return [env, *others, f"BULLPEN_DIR={home.root}", *module_command("bullpen", *words)]


def _tmux(*words: str) -> str:
    done = proc.run(["tmux", *words], timeout=TMUX_SECONDS)
    if done.code != 0:
        raise BullpenError(f"tmux: {done.error_text}", kind=Kind.COMMAND_FAILED)
    return done.text.strip("\n")


def _try_tmux(*words: str) -> str | None:
    """None when it cannot be done."""
    done = proc.run(["tmux", *words], timeout=TMUX_SECONDS)
    return done.text.strip("\n") if done.code == 0 else None
