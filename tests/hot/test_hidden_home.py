"""Commands of an agent that cannot see its home, and hooks that it left for a hub that was away:
with a real hub, behind a wall that hides the home as a sandbox does."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import BULLPEN, Ran
from tests.hub.pen import Pen, made_pen
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MODULE = (sys.executable, "-m", "bullpen")


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as found:
        found.run(name="amy")
        yield found


class Inside:
    """The agent amy behind the wall."""

    def __init__(self, pen: Pen) -> None:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            pytest.skip("bubblewrap is not installed")
        session = str(pen.session("amy"))
        self.walls = [bwrap, "--dev-bind", "/", "/", "--tmpfs", str(pen.root)]
        self.walls += ["--ro-bind", session, session, "--bind", f"{session}/api", f"{session}/api"]
        raw = Path(f"/proc/{pen.program('amy')}/environ").read_bytes()
        pairs = [entry.partition(b"=") for entry in raw.split(b"\0") if entry]
        self.env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}

    def run(self, *words: str, stdin: str = "", program: tuple[str, ...] = (str(BULLPEN),)) -> Ran:
        done = subprocess.run(
            [*self.walls, *program, *words],
            env=self.env,
            cwd="/",
            input=stdin.encode(),
            capture_output=True,
            check=False,
            timeout=60,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("program", [(str(BULLPEN),), MODULE], ids=["hot", "whole"])
def test_x2_commands_reach_the_hub_by_the_agents_own_socket(
    pen: Pen, program: tuple[str, ...]
) -> None:
    pen.run(name="bob")
    amy = Inside(pen)
    assert not (pen.root / "nothing").exists()
    assert amy.run("-c", f"ls -A {pen.root}", program=("/bin/sh",)).out == "sessions\n"
    listed = amy.run("list", program=program)
    assert (listed.code, listed.err) == (0, "")
    assert {"amy", "bob"} <= {line.split()[0] for line in listed.out.splitlines()[1:]}
    sent = amy.run("send", "bob", "hello there", program=program)
    assert (sent.code, sent.err) == (0, "")
    [message] = pen.client().get("agents", "bob", "messages")["messages"]
    assert (message["sender"], message["text"]) == ("amy", "hello there")
    back = pen.cli("send", "amy", "hello back")
    assert back.code == 0
    inbox = amy.run("inbox", program=program)
    assert (inbox.code, inbox.err) == (0, "")
    assert "hello back" in inbox.out
    status = amy.run("status", "amy", program=program)
    assert (status.code, status.err) == (0, "")
    hook = amy.run(
        "hook", stdin='{"hook_event_name": "PreToolUse", "tool_name": "Edit"}', program=program
    )
    assert (hook.code, hook.err) == (0, "")
    assert pen.state("amy") == "working (Edit)"


def test_x2_commands_that_are_not_hot_reach_it_too(pen: Pen) -> None:
    amy = Inside(pen)
    explained = amy.run("explain", "amy")
    assert (explained.code, explained.err) == (0, "")
    assert "it reports no state" in explained.out
    assert json.loads(amy.run("list", "--json").out)


@pytest.mark.parametrize("program", [(str(BULLPEN),), MODULE], ids=["hot", "whole"])
def test_x2_while_the_hub_is_away_it_is_said_and_hooks_are_kept(
    pen: Pen, program: tuple[str, ...]
) -> None:
    amy = Inside(pen)
    pen.kill_hub()
    listed = amy.run("list", program=program)
    assert listed.code != 0
    assert "the hub is down, and an agent may not start it" in listed.err
    event = '{"hook_event_name": "PreToolUse", "tool_name": "Edit"}'
    assert amy.run("hook", stdin=event, program=program) == Ran(0, "", "")
    spool = pen.session("amy") / "api/hooks.spool"
    assert spool.exists()
    pen.start()
    wait_until(lambda: pen.state("amy") == "working (Edit)")
    assert not spool.exists()
    # By the same socket path, which is a new one.
    assert amy.run("list", program=program).code == 0


# -- what an agent may leave in its directory ----------------------------------------------------

STOP = '1.0\t{"hook_event_name": "Stop"}\n'


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["hooks.spool", "api/hooks.spool"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "huge", "many", "junk"])
def test_x5_a_planted_spool_neither_stops_the_hub_nor_shows_it_anything(
    pen: Pen, tmp_path: Path, where: str, kind: str
) -> None:
    pen.run(name="bob")
    pen.kill_hub()
    spool = pen.session("amy") / where
    secret = tmp_path / "secret"
    secret.write_text(STOP.replace("Stop", "Leaked"))
    match kind:
        case "link":
            spool.symlink_to(secret)
        case "pipe":
            os.mkfifo(spool)
        case "directory":
            (spool / "in it").mkdir(parents=True)
        case "huge":  # costs who wrote it nothing
            spool.write_text(STOP)
            os.truncate(spool, 1 << 40)
        case "many":
            spool.write_text("1.0\tx\n" * 6_000 + STOP)
        case "junk":
            spool.write_bytes(b"\xff\0\n" * 1000)
    pen.start()
    assert set(pen.agents()) == {"amy", "bob"}
    wait_until(lambda: kind == "directory" or not os.path.lexists(spool), 150)
    assert secret.read_text() == STOP.replace("Stop", "Leaked")
    heard = pen.events("amy", "hook.received")
    assert [event for event in heard if event.get("event") == "Leaked"] == []
    if kind == "many":
        wait_until(lambda: len(pen.events("amy", "hook.received")) == 5_000, 150)
        assert pen.state("amy") == "idle", "the last ones are heard, not the first"
    # The next one is heard, by the hub itself and after the next time it was away.
    hook = {"hook_event_name": "PreToolUse", "tool_name": "Edit"}
    assert pen.ask("POST", "/agents/amy/hooks", hook)[0] == 200
    assert pen.state("amy") == "working (Edit)"
    pen.kill_hub()
    if kind != "directory":
        spool.write_text(STOP)
        pen.start()
        wait_until(lambda: pen.state("amy") == "idle")
        assert not spool.exists()


def test_x5_what_stands_in_the_way_of_taking_a_spool_is_removed(pen: Pen) -> None:
    """An agent without walls can write in its session."""
    pen.kill_hub()
    for name in ("hooks.spool.taken", "hooks.spool.api.taken"):
        (pen.session("amy") / name / "in it").mkdir(parents=True)
    (pen.session("amy") / "hooks.spool").write_text(STOP)
    pen.start()
    wait_until(lambda: pen.state("amy") == "idle")


def test_s2_hooks_in_both_places_are_all_heard_once(pen: Pen) -> None:
    pen.kill_hub()
    for name in ("hooks.spool", "api/hooks.spool"):
        (pen.session("amy") / name).write_text(STOP)
    pen.start()
    wait_until(lambda: len(pen.events("amy", "hook.received")) == 2)
    pen.kill_hub()
    pen.start()
    assert len(pen.events("amy", "hook.received")) == 2
