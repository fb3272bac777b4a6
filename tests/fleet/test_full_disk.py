"""A server that answers and keeps nothing, as one does whose disk is or was full: it is said, and
nobody is shown as if they were there."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.fleet import kept_connection, link, presence
from bullpen.fleet.kept_connection import KeptConnection
from bullpen.hub.render.fleet import agents_text, hosts_text
from bullpen.model.fleet import FleetShown
from tests.fleet.links import Two, make_link, running, until
from tests.fleet.machines import Machines, made_machines
from tests.waiting import wait_until


def test_l1_beats_that_are_not_kept_are_said_and_nobody_is_shown_as_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.05)
    say_live, is_full = presence.say_live, False

    async def say(*words: Any) -> None:
        if is_full:
            raise TimeoutError
        await say_live(*words)

    monkeypatch.setattr(presence, "say_live", say)

    async def act(machines: Machines) -> None:
        nonlocal is_full
        h1, h2 = make_link(machines, "h1"), make_link(machines, "h2")

        async def reachable() -> list[bool]:
            return [host.reachable for host in await h1.read_hosts()]

        async with running(h1, h2):
            assert await reachable() == [True, True]
            monkeypatch.setattr(presence, "LIVE_SECONDS", 0.2)
            is_full = True
            await until(lambda: h1.state.why == link.STORES_NOTHING)
            # The server still has what the other one has said last.
            assert h1.state.link == "connected" and await reachable() == [False, False]
            h3 = make_link(machines, "h3")  # which is new
            joining = asyncio.create_task(h3.run())
            await until(lambda: h3.state.why == link.STORES_NOTHING)
            assert h3.state.link == "away"
            joining.cancel()
            monkeypatch.undo()
            await until(lambda: h1.state.why == "")
            assert await reachable() == [True, True]

    with made_machines("h1", "h2", "h3", joined=False) as machines:
        asyncio.run(act(machines))


def test_l1_what_the_server_does_not_do_is_said_in_the_lists() -> None:
    shown = FleetShown(link="connected", name="h1", url="nats://x", why="tasks: it keeps nothing")
    for text in (hosts_text(shown, 0.0), agents_text(shown, 0.0)):
        assert "h1 is connected to nats://x: tasks: it keeps nothing" in text


def test_l3_a_task_or_a_message_that_is_not_kept_for_long_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_connection, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(kept_connection, "RETRY_SECONDS", 0.01)
    is_full = True

    async def ask(_client: Any) -> str:
        if is_full:
            raise TimeoutError
        return "kept"

    async def act() -> None:
        nonlocal is_full
        connection = KeptConnection("nats://x", Two().keys["h1"])
        connection.what, connection._client = "tasks", object()  # type: ignore[assignment]
        connection.is_connected.set()
        asking = asyncio.create_task(connection.surely(ask))
        await until(lambda: connection.trouble == f"tasks: {link.STORES_NOTHING}")
        is_full = False
        assert await asking == "kept" and connection.trouble == ""

    asyncio.run(act())


@pytest.fixture
def small_disk() -> Iterator[tuple[Machines, Path]]:
    """A server with three megabytes."""
    if os.getuid() != 0:
        pytest.skip("only root can mount")
    with made_machines("h1", "h2", joined=False) as machines:
        machines.kill_server()
        data = machines.directory / "jetstream"
        words = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", data]
        if subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        try:
            machines.start_server()
            for host in ("h1", "h2"):
                machines.join(host)
            yield machines, data
        finally:
            machines.kill_server()
            subprocess.run(["umount", data], check=True)


@pytest.mark.storm
def test_l5_a_full_disk_at_the_server_is_said_and_costs_nothing(
    small_disk: tuple[Machines, Path],
) -> None:
    machines, data = small_disk
    h1, h2 = machines.hosts["h1"], machines.hosts["h2"]
    h2.run("/bin/cat", name="amy")
    wait_until(lambda: machines.reachable("h1") == {"h1", "h2"})
    fill = data / "fill"
    fill.write_bytes(b"")
    with pytest.raises(OSError, match="No space"), fill.open("wb", buffering=0) as file:
        while file.write(b"x" * 1024):
            pass
    wait_until(lambda: link.STORES_NOTHING in h1.cli("fleet", "status").out, 60)
    assert machines.reachable("h1") == {"h1"}
    for number in range(3):
        assert h1.cli("send", "h2/amy", f"message {number}").code == 0
    fill.unlink()
    # The server does not find out by itself that there is room again.
    machines.kill_server()
    machines.start_server()
    wait_until(lambda: machines.reachable("h1") == {"h1", "h2"}, 60)
    wait_until(lambda: h2.cli("inbox", "amy").out.count("message ") == 3, 60)
    assert link.STORES_NOTHING not in h1.cli("fleet", "status").out
