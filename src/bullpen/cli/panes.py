"""Several agents side by side: a tmux window with a pane for each, and new ones as they start.

tmux is a viewer here: each pane is an ordinary `bullpen attach`, and closing it ends nothing.
A person who is in tmux already gets a window there, others a session `bullpen-<title>`; who
comes a second time joins what is there. Windows are known by a mark of ours, not by their names:
another home may have a pod of the same name. The mark also says which process follows them.
"""

import hashlib
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bullpen import proc
from bullpen.cli import output
from bullpen.client import wire
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

ASK_AGAIN_SECONDS = 1.0
SILENCE_SECONDS = 60.0  # the stream has a heartbeat
MARK = "@bullpen-panes"  # of a window: what it shows, and who follows
AGENT = "@bullpen-agent"  # of a pane

Agents = list[dict[str, Any]]
Choose = Callable[[Agents], list[str]]


def of_pod(pod: str) -> Choose:
    """The running agents of a pod."""
    return lambda agents: [a["name"] for a in agents if a["pod"] == pod and a["running"]]


def of_tree(root: str) -> Choose:
    """An agent and those that it started, and those that they started, as far as they run."""

    def choose(agents: Agents) -> list[str]:
        family, known = {root}, -1
        while known != len(family):
            known = len(family)
            family |= {agent["name"] for agent in agents if agent["parent"] in family}
        return [agent["name"] for agent in agents if agent["name"] in family and agent["running"]]

    return choose


def show(hub: HubClient, title: str, choose: Choose, follow: Sequence[str]) -> None:
    """Open the window, or join it if it is there. `follow` is the command that adds new ones."""
    names = choose(hub.get("agents")["agents"])
    if not names:
        raise BullpenError(
            f"no agent of {title} is running", hint="bullpen list", kind=Kind.NOT_FOUND
        )
    if shutil.which("tmux") is None:
        output.write("tmux is not installed; one by one:")
        for name in names:
            output.write(f"  bullpen attach {name}")
        return
    inside = bool(os.environ.get("TMUX"))
    if not inside and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "this needs a terminal", hint=f"bullpen peek {names[0]} · bullpen logs -f {names[0]}"
        )
    what = f"{hub.home.id}/{'/'.join(follow)}"
    if inside:
        _show_here(hub.home, title, what, names, follow)
    else:
        session = _show_apart(hub.home, title, what, names, follow)
        sys.stdout.flush()
        os.execvp("tmux", ["tmux", "attach-session", "-t", f"={session}"])


def _show_here(home: Home, title: str, what: str, names: list[str], follow: Sequence[str]) -> None:
    """In the session that the person is in: tmux in tmux is no joy."""
    there = _marks(what, ("list-windows",))
    if there:
        window, mark = there[0]
        _add_missing(home, mark, names)
        _tmux("select-window", "-t", window)
    else:
        _open(home, ["new-window", "-n", title], what, names, follow)


def _show_apart(home: Home, title: str, what: str, names: list[str], follow: Sequence[str]) -> str:
    """In a session of its own; its name."""
    plain = re.sub(r"[^A-Za-z0-9_~-]", "_", f"bullpen-{title}")  # tmux changes others by itself
    other = f"{plain}-{hashlib.sha256(what.encode()).hexdigest()[:4]}"
    for session in (plain, other):
        if not _try_tmux("has-session", "-t", f"={session}"):
            size = shutil.get_terminal_size()
            place = ["-x", str(size.columns), "-y", str(size.lines)]
            _open(home, ["new-session", "-d", "-s", session, *place], what, names, follow)
            return session
        there = _marks(what, ("list-windows", "-t", f"={session}"))
        if there:
            _add_missing(home, there[0][1], names)
            return session
    raise BullpenError(
        f"the tmux sessions {plain} and {other} are somebody else's",
        hint=f"tmux kill-session -t {plain}, or bullpen attach {names[0]}",
        kind=Kind.CONFLICT,
    )


def _open(home: Home, where: list[str], what: str, names: list[str], follow: Sequence[str]) -> None:
    mark = f"{what}:{secrets.token_hex(4)}"
    first, *others = names
    _new_window(home, where, mark, first)
    for name in others:
        add(home, mark, name)
    command = shlex.join(_bullpen(home, *follow, mark, *names))
    # tmux would read formats in it; what it prints would be shown over the panes.
    _tmux("run-shell", "-b", f"exec {command} >/dev/null 2>&1".replace("#", "##"))


def add(home: Home, mark: str, name: str) -> None:
    """One more pane, in another window when this one is full."""
    last = _panes(mark)[-1:]
    if not last:
        raise BullpenError("the panes are gone", kind=Kind.NOT_FOUND)
    window, pane, _ = last[0]
    words = ("split-window", "-d", "-t", pane, "-P", "-F", "#{pane_id}")
    new = _try_tmux(*words, *_bullpen(home, "attach", name))
    if new is None:
        _new_window(home, ["new-window", "-d", "-a", "-t", window], mark, name)
    else:
        _name_pane(new, name)
        _tmux("select-layout", "-t", window, "tiled")


def _new_window(home: Home, where: list[str], mark: str, name: str) -> None:
    words = (*where, "-P", "-F", "#{window_id} #{pane_id}", *_bullpen(home, "attach", name))
    window, pane = _tmux(*words).split()
    for option, value in (
        (MARK, mark),
        ("pane-border-status", "top"),
        ("pane-border-format", " #{pane_title} "),
    ):
        _tmux("set-option", "-w", "-t", window, option, value)
    _name_pane(pane, name)


def _name_pane(pane: str, name: str) -> None:
    """Until `attach` says more in the title. It may have ended already."""
    _try_tmux("set-option", "-p", "-t", pane, AGENT, name)
    _try_tmux("select-pane", "-t", pane, "-T", name)


def _add_missing(home: Home, mark: str, names: Sequence[str]) -> None:
    """Panes that somebody has closed meanwhile."""
    shown = {name for _, _, name in _panes(mark)}
    for name in names:
        if name not in shown:
            add(home, mark, name)


# ── what tmux has ──


def _marks(what: str, listing: tuple[str, ...]) -> list[tuple[str, str]]:
    """Windows that show it, and their marks."""
    listed = _try_tmux(*listing, "-F", f"#{{window_id}} #{{{MARK}}}") or ""
    found = [line.partition(" ")[::2] for line in listed.splitlines()]
    return [(window, mark) for window, mark in found if mark.rpartition(":")[0] == what]


def _panes(mark: str) -> list[tuple[str, str, str]]:
    """Window, id and agent of each pane, in their order."""
    fields = f"#{{{MARK}}}\t#{{window_id}}\t#{{pane_id}}\t#{{{AGENT}}}"
    listed = _try_tmux("list-panes", "-a", "-F", fields) or ""
    rows = [line.split("\t") for line in listed.splitlines()]
    return [(row[1], row[2], row[3]) for row in rows if row[0] == mark]


# ── following; a process of its own, started by tmux ──


def follow(home: Home, choose: Choose, mark: str, shown: set[str]) -> None:
    """Add agents as they start, for as long as there are panes with that mark."""
    last = ""
    while _panes(mark):
        try:
            headers = {"last-event-id": last} if last else {}
            path = str(home.socket(HUB))
            with wire.stream(
                path, "GET", "/events/stream", headers, b"", SILENCE_SECONDS
            ) as stream:
                for piece in stream:  # a heartbeat at least
                    last = _last_id(piece) or last
                    if not _panes(mark):
                        return
                    if b"event: agent." in piece or b"retry:" in piece:
                        _add_new(home, choose, mark, shown)
        except (wire.HubError, BullpenError, OSError):
            time.sleep(ASK_AGAIN_SECONDS)  # the hub is away


def _add_new(home: Home, choose: Choose, mark: str, shown: set[str]) -> None:
    running = choose(HubClient(home, start=False).get("agents")["agents"])
    shown &= set(running)  # one that starts again is shown again
    there = {name for _, _, name in _panes(mark)}
    for name in running:
        if name not in shown:
            shown.add(name)
            if name not in there:
                add(home, mark, name)


def _last_id(piece: bytes) -> str:
    ids = [line[4:] for line in piece.split(b"\n") if line.startswith(b"id: ")]
    return ids[-1].decode("ascii", "replace").strip() if ids else ""


# ── commands ──


def _bullpen(home: Home, *words: str) -> list[str]:
    """The server of tmux has an environment of its own, perhaps an agent's: the home is named."""
    others = [word for name in ("ACTOR", "TOKEN", "POD") for word in ("-u", f"BULLPEN_{name}")]
    return ["env", *others, f"BULLPEN_DIR={home.root}", sys.executable, "-m", "bullpen", *words]


def _tmux(*words: str) -> str:
    done = proc.run(["tmux", *words], timeout=20)
    if done.code != 0:
        raise BullpenError(f"tmux: {done.error_text}", kind=Kind.COMMAND_FAILED)
    return done.text.strip("\n")


def _try_tmux(*words: str) -> str | None:
    """None when it cannot be done."""
    done = proc.run(["tmux", *words], timeout=20)
    return done.text.strip("\n") if done.code == 0 else None
