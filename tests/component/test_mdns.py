"""Announcements: what is read out of them, and real ones between two networks of this machine."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.component import mdns
from bullpen.model.component import PublicStatus
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port
from tests.waiting import wait_until

STATUS = PublicStatus(
    type="view",
    interfaces=("statusable", "configurable"),
    name="web",
    version="0.1.0",
    state="idle",
    uptime_seconds=1,
    home_id="0123456789abcdef",
)
TEXT = {key.encode(): value.encode() for key, value in mdns.text_of(STATUS).items()}


def test_f1_an_announcement_is_read_as_it_was_made() -> None:
    found = mdns.parse(9050, "10.0.0.1", dict(TEXT))
    assert found is not None
    assert found.key == (STATUS.home_id, "view", "web")
    assert (found.port, found.version, found.address) == (9050, "0.1.0", "10.0.0.1")
    assert found.interfaces == STATUS.interfaces
    assert found.state is None  # an announcement tells nothing of it


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"type", b"virus"),
        (b"type", b""),
        (b"type", None),
        (b"name", b""),
        (b"name", b"\x1b[2J"),
        (b"name", b"x" * 200),
        (b"version", None),
        (b"version", b"\n"),
        (b"home", b""),
        (b"interfaces", b"everything"),
    ],
    ids=repr,
)
def test_f1_an_announcement_that_makes_no_sense_is_nobody(key: bytes, value: bytes | None) -> None:
    assert mdns.parse(9050, "10.0.0.1", {**TEXT, key: value}) is None


@pytest.mark.parametrize("port", [None, 0, -1, 1 << 16])
def test_f1_an_announcement_needs_a_port(port: int | None) -> None:
    assert mdns.parse(port, "10.0.0.1", dict(TEXT)) is None


def test_f1_names_on_the_network_differ_between_homes_and_fit() -> None:
    other = STATUS.model_copy(update={"home_id": "f" * 16})
    assert mdns.instance_of(STATUS) != mdns.instance_of(other)
    long = STATUS.model_copy(update={"name": "ü" * 60})
    assert len(mdns.instance_of(long).encode()) <= 63


WITHOUT = """
import asyncio
from bullpen.component import mdns
from bullpen.model.component import PublicStatus
asyncio.run(mdns.announce(PublicStatus(**%r), 9000))
print(mdns.find())
"""


@pytest.mark.slow
def test_f1_without_a_network_nothing_is_announced_and_nobody_heard() -> None:
    words = ["unshare", "--net", "--map-root-user", sys.executable, "-c"]
    code = WITHOUT % STATUS.model_dump()
    done = subprocess.run([*words, code], capture_output=True, text=True, timeout=60, check=False)
    if done.stderr.startswith("unshare: "):
        pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# ── between two network namespaces ──


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Two, connected by a cable, and with nothing else."""
    if os.getuid() != 0:
        pytest.skip("only root can make network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("`ip` (iproute2) is not installed")
    names = tuple(f"bullpen-{os.getpid()}-{side}" for side in "ab")
    ends = tuple(f"bp{os.getpid() % 100000}{side}" for side in "ab")
    with contextlib.ExitStack() as stack:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(ip, "netns", "del", name)
        made = ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        if made.returncode:
            pytest.skip(f"no veth here: {made.stderr.strip()}")
        stack.callback(ip, "link", "del", ends[0])
        for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            steps = [
                ("link", "set", end, "netns", name),
                ("-n", name, "addr", "add", f"10.99.77.{number}/24", "dev", end),
                ("-n", name, "link", "set", end, "up"),
                ("-n", name, "link", "set", "lo", "up"),
            ]
            for step in steps:
                done = ip(*step)
                assert done.returncode == 0, done.stderr
        yield names[0], names[1]


def inside(network: str, pen: Pen, *words: str) -> str:
    """The installed command, in that network."""
    done = subprocess.run(
        ["ip", "netns", "exec", network, BULLPEN, *words],
        env={**pen.env, "BULLPEN_DIR": str(pen.root)},
        cwd=pen.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def discovered(network: str, pen: Pen) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(inside(network, pen, "discover", "--json"))[
        "components"
    ]
    return found


def use_mdns(pen: Pen) -> None:
    config = pen.root / "config.yaml"
    config.write_text(config.read_text() + "discovery:\n  method: mdns\n  port_range: 9000-9001\n")


@pytest.mark.storm
@pytest.mark.slow
def test_f1_a_hub_and_its_agents_are_heard_on_their_machine_and_nowhere_else(
    networks: tuple[str, str],
) -> None:
    """They listen on loopback: nobody in the other network could reach them."""
    here, there = networks
    with made_pen() as own, made_pen() as other, reserved_port() as agent_port:
        for pen in (own, other):
            use_mdns(pen)
        (own.root / "roles" / "cat.yaml").write_text(
            "name: cat\nagent_type: command\ncommand: [cat]\n"
        )
        (own.root / "agents" / "amy.yaml").write_text(f"role: cat\nport: {agent_port}\n")
        inside(here, own, "agent", "start", "amy")
        port = json.loads((own.root / "hub.json").read_text())["port"]

        heard: list[dict[str, Any]] = []

        def are_both_heard() -> bool:
            heard[:] = discovered(here, other)
            return len(heard) == 2

        wait_until(are_both_heard)
        agent, seen = heard
        assert (agent["name"], agent["port"], agent["home"]) == ("amy", agent_port, "foreign")
        assert "taskable" in agent["interfaces"]
        assert (seen["type"], seen["home"], seen["home_id"]) == ("hub", "foreign", own.home.id)
        assert (seen["address"], seen["port"], seen["state"]) == ("127.0.0.1", port, "idle")
        assert discovered(there, other) == []
        (mine,) = (one for one in discovered(here, own) if one["type"] == "hub")
        assert (mine["home"], mine["state"], mine["port"]) == ("own", "idle", port)

        inside(here, own, "agent", "stop", "amy")  # which is announced, too
        wait_until(lambda: len(discovered(here, other)) == 1, 60)
        inside(here, own, "hub", "stop")
        wait_until(lambda: discovered(here, other) == [], 60)


@pytest.mark.storm
def test_f1_a_hub_that_scans_announces_nothing(networks: tuple[str, str]) -> None:
    here, _ = networks
    with made_pen() as own, made_pen() as other:
        use_mdns(other)
        inside(here, own, "hub", "start")
        assert discovered(here, other) == []
