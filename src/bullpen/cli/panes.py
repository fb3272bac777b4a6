"""Several agents side by side: a tmux window with a pane for each, and new ones as they start.

tmux is a viewer here: each pane is an ordinary `bullpen attach`, and closing it ends nothing.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bullpen.cli import output
from bullpen.client import wire
from bullpen.client.hub import HubClient
from bullpen.errors import BullpenError, Kind
from bullpen.paths import HUB, Home

ASK_AGAIN_SECONDS = 1.0

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
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BullpenError(
            "this needs a terminal", hint=f"bullpen peek {names[0]} · bullpen logs -f {names[0]}"
        )
    session = f"bullpen-{title}".replace(".", "_").replace(":", "_")
    inside = bool(os.environ.get("TMUX"))
    if inside or _tmux("has-session", "-t", f"={session}", check=False):
        _open(hub.home, session, names, follow, inside)
    sys.stdout.flush()
    if not inside:
        os.execvp("tmux", ["tmux", "attach-session", "-t", f"={session}"])


def _open(home: Home, session: str, names: list[str], follow: Sequence[str], inside: bool) -> None:
    size = shutil.get_terminal_size()
    where = (
        ["new-window", "-n", session]
        if inside
        else ["new-session", "-d", "-s", session, "-x", str(size.columns), "-y", str(size.lines)]
    )
    first, *others = names
    window = _tmux(*where, "-P", "-F", "#{window_id}", _pane(home, first))
    _tmux("set-option", "-w", "-t", window, "pane-border-status", "top")
    _tmux("set-option", "-w", "-t", window, "pane-border-format", " #{pane_title} ")
    for name in others:
        add(home, window, name)
    command = shlex.join(_bullpen(home, *follow, window, *names))
    _tmux("run-shell", "-b", f"{command} >/dev/null 2>&1")


def add(home: Home, window: str, name: str) -> None:
    """One more pane. CommandFailed when the window is gone."""
    _tmux("split-window", "-d", "-t", window, _pane(home, name))
    _tmux("select-layout", "-t", window, "tiled")


def follow(home: Home, choose: Choose, window: str, shown: set[str]) -> None:
    """Add agents as they start, for as long as the window is there."""
    last = ""
    while is_open(window):
        try:
            headers = {"last-event-id": last} if last else {}
            stream = wire.stream(str(home.socket(HUB)), "GET", "/events/stream", headers, b"", 60.0)
            with stream:
                for piece in stream:  # a heartbeat at least
                    last = _last_id(piece) or last
                    if not is_open(window):
                        return
                    if b"event: agent." in piece or b"retry:" in piece:
                        _add_new(home, choose, window, shown)
        except (wire.HubError, OSError):
            time.sleep(ASK_AGAIN_SECONDS)  # the hub is away


def _add_new(home: Home, choose: Choose, window: str, shown: set[str]) -> None:
    running = choose(HubClient(home, start=False).get("agents")["agents"])
    for name in running:
        if name not in shown:
            add(home, window, name)
    shown.clear()
    shown.update(running)  # one that starts again is shown again


def is_open(window: str) -> bool:
    """Whether the window is still there."""
    listed = _tmux("list-windows", "-a", "-F", "#{window_id}", check=False)
    return window in listed.split()


def _last_id(piece: bytes) -> str:
    ids = [line[4:] for line in piece.split(b"\n") if line.startswith(b"id: ")]
    return ids[-1].decode("ascii", "replace").strip() if ids else ""


def _pane(home: Home, name: str) -> str:
    return shlex.join(_bullpen(home, "attach", name))


def _bullpen(home: Home, *words: str) -> list[str]:
    """The server of tmux has an environment of its own: the home is named."""
    return ["env", f"BULLPEN_DIR={home.root}", sys.executable, "-m", "bullpen", *words]


def _tmux(*words: str, check: bool = True) -> str:
    done = subprocess.run(["tmux", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0 and check:
        raise BullpenError(f"tmux: {done.stderr.strip()}", kind=Kind.COMMAND_FAILED)
    return done.stdout.strip() if done.returncode == 0 else "failed"
