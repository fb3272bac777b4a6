"""`bullpen components`: healthy, late or unreachable, with the state that was last known."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen import __version__
from bullpen.cli import component_health
from bullpen.cli.component_health import HomeComponents
from bullpen.home.hub_file import read_hub_file
from tests.at_terminal import AtTerminal
from tests.component.impostor import impostor
from tests.component.sample_process import Sample, running
from tests.hub.pen import Pen, living_factory, made_pen
from tests.ports import reserved_port
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HEALTHY = {"hub": ("idle", "healthy"), "night": ("idle", "healthy")}


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def night(pen: Pen) -> Iterator[Sample]:
    """A director that has told the hub of itself."""
    with reserved_port() as port, running(pen.home, "night", port) as sample:
        wait_until(lambda: [one["state"] for one in pen.ask("GET", "/components")[1]] == ["idle"])
        yield sample


def start_agent(pen: Pen, name: str, version: str = "2.1.325") -> int:
    """A task agent whose engine does no more than say its version; its port."""
    engine, port = pen.root.parent / f"engine-{name}", pen.free_port()
    engine.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
    engine.chmod(0o755)
    pen.role(name, sandbox={"enabled": False})
    write_port(pen, name, port)
    env = {**pen.env, "BULLPEN_CLAUDE_BIN": str(engine), "ANTHROPIC_API_KEY": "k"}
    launch = {"kind": "headless", "name": name, "cwd": "/", "env": env}
    assert pen.ask("POST", "/agents", launch)[0] == 201
    # What is written down is what is known without a hub.
    wait_until(lambda: pen.events(name, "agent.state")[-1]["state"]["state"] != "starting")
    return port


def write_port(pen: Pen, name: str, port: int) -> None:
    (pen.home.agents / f"{name}.yaml").write_text(f"role: {name}\nport: {port}\n")


def rows(pen: Pen) -> dict[str, dict[str, Any]]:
    components = pen.cli("components", "--json").json["components"]
    return {one["name"]: one for one in components}


def looked(pen: Pen) -> dict[str, tuple[Any, str]]:
    return {name: (one["state"], one["health"]) for name, one in rows(pen).items()}


def wait_shown(pen: Pen, expected: dict[str, tuple[Any, str]]) -> None:
    """On a busy machine one that lives misses a look, too."""
    wait_until(lambda: looked(pen) == expected)


def register(pen: Pen, name: str) -> int:
    """A director that is this process, and where it says that it serves."""
    port = pen.free_port()
    about = {"name": name, "kind": "director", "url": f"http://127.0.0.1:{port}"}
    body = {**about, "pid": os.getpid(), "version": "0.1.0"}
    assert pen.ask("POST", "/components", body)[0] == 201
    return port


def look(components: HomeComponents) -> dict[str, tuple[str | None, str]]:
    return {one.name: (one.state, one.health) for one in components.look()}


# ── healthy, late, unreachable ──


def test_f2_what_does_not_answer_is_late_and_what_has_died_unreachable(
    pen: Pen, night: Sample
) -> None:
    wait_shown(pen, HEALTHY)
    os.kill(night.process.pid, signal.SIGSTOP)
    wait_shown(pen, {**HEALTHY, "night": ("idle", "late")})
    os.kill(night.process.pid, signal.SIGCONT)
    wait_until(night.answers)
    wait_shown(pen, HEALTHY)
    night.kill()
    gone = {**HEALTHY, "night": ("idle", "unreachable")}
    wait_shown(pen, gone)
    wait_shown(pen, gone)  # the first look has told the hub, too
    line = next(row for row in pen.cli("components").out.splitlines() if "night" in row)
    assert line.split()[:5] == ["director", "night", "was", "idle", "unreachable"]


def test_f2_one_that_comes_back_is_healthy(pen: Pen, night: Sample) -> None:
    night.kill()
    wait_until(lambda: looked(pen)["night"] == ("idle", "unreachable"))
    with reserved_port() as port, running(pen.home, "night", port):
        wait_until(lambda: looked(pen)["night"] == ("idle", "healthy"))


def test_f2_one_that_died_is_shown_by_the_next_hub_too(pen: Pen, night: Sample) -> None:
    night.kill()
    gone = {**HEALTHY, "night": ("idle", "unreachable")}
    wait_shown(pen, gone)
    pen.kill_hub()
    assert looked(pen) == {**gone, "hub": (None, "unreachable")}
    pen.start()
    wait_shown(pen, gone)


def test_f2_without_a_hub_the_others_are_shown(pen: Pen, night: Sample) -> None:
    wait_shown(pen, HEALTHY)
    pen.kill_hub()
    wait_shown(pen, {**HEALTHY, "hub": (None, "unreachable")})
    night.kill()
    assert looked(pen)["night"] == (None, "unreachable")  # what it said, that hub alone knew


# ── agents' ports ──


def test_f2_an_agent_is_as_unreachable_as_the_hub_that_serves_its_port(pen: Pen) -> None:
    port = start_agent(pen, "amy")
    start_agent(pen, "bob")
    pen.stop("bob")
    write_port(pen, "amy", pen.free_port())  # counts from its next start on
    wait_shown(pen, {"hub": ("idle", "healthy"), "amy": ("idle", "healthy")})
    write_port(pen, "amy", port)
    pen.kill_hub()
    kill(living_factory(pen))  # it keeps the port for a while
    gone = {"hub": (None, "unreachable"), "amy": ("idle", "unreachable")}
    assert looked(pen) == gone
    assert rows(pen)["amy"]["port"] == port
    with impostor(pen.home, port, "agent", "amy"):
        assert looked(pen) == gone
        pen.start()  # the port is not to be had
        wait_until(lambda: f"port {port} is taken" in rows(pen)["amy"]["problem"])
        assert looked(pen)["amy"] == ("error", "unreachable")


def test_f2_while_the_hub_is_silent_nobody_speaks_for_its_agents(pen: Pen) -> None:
    start_agent(pen, "amy")
    port = pen.free_port()
    write_port(pen, "amy", port)
    os.kill(pen.pid, signal.SIGSTOP)
    with impostor(pen.home, port, "agent", "amy"):
        assert looked(pen) == {"hub": (None, "late"), "amy": ("idle", "late")}


def test_f2_why_an_agent_cannot_work_is_shown_without_a_hub_too(pen: Pen) -> None:
    start_agent(pen, "amy", version="1.0.3")
    reason = pen.agents()["amy"]["state"]["reason"]
    assert "too old" in reason

    def shown() -> tuple[str, str, str]:
        amy = rows(pen)["amy"]
        return amy["state"], amy["health"], amy["problem"]

    wait_until(lambda: shown() == ("error", "healthy", reason))
    pen.kill_hub()
    assert shown() == ("error", "unreachable", reason)
    assert pen.cli("kill", "--all").code == 0
    assert "amy" not in rows(pen)  # a person has ended it


# ── who says that it is one of them ──


def test_f2_nobody_at_the_port_of_an_agents_file_passes_for_the_hub(pen: Pen) -> None:
    port, hub_port = pen.free_port(), read_hub_file(pen.home).port
    write_port(pen, "eve", port)
    for type, name in (("hub", "hub"), ("agent", "eve"), ("director", "night")):
        with impostor(pen.home, port, type, name):
            (hub,) = rows(pen).values()
        assert (hub["name"], hub["port"], hub["version"]) == ("hub", hub_port, __version__)


def test_f2_a_component_passes_for_no_other(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is registered, and so asked at its port; the attack works as soon as all are believed."""
    port = register(pen, "night")

    def shown() -> dict[str, tuple[str | None, str]]:
        return look(HomeComponents(pen.home))

    with impostor(pen.home, port, "hub", "hub"):
        wait_until(lambda: shown() == {"hub": ("idle", "healthy"), "night": (None, "late")})
        monkeypatch.setattr(
            component_health,
            "believed",
            lambda answers, _: sorted(answers, key=lambda one: one.port == port),
        )
        wait_until(lambda: shown()["hub"] == ("working", "healthy"))


def test_f2_who_answers_at_the_port_of_a_dead_one_does_not_bring_it_back(
    pen: Pen, night: Sample
) -> None:
    night.kill()
    with impostor(pen.home, night.port, "director", "night"):
        assert rows(pen)["night"]["health"] == "unreachable"
        pen.kill_hub()
        assert rows(pen)["night"]["health"] == "unreachable"


# ── watching ──


def test_f2_one_that_leaves_in_order_is_listed_no_longer(pen: Pen) -> None:
    register(pen, "night")
    components = HomeComponents(pen.home)
    wait_until(lambda: look(components) == {"hub": ("idle", "healthy"), "night": (None, "late")})
    assert pen.ask("DELETE", "/components/night")[0] == 200
    assert look(components) == {"hub": ("idle", "healthy")}
    pen.kill_hub()
    assert look(components) == {"hub": ("idle", "unreachable")}
    pen.start()
    wait_until(lambda: look(components) == {"hub": ("idle", "healthy")})


def test_f2_a_watch_shows_it_while_it_happens(pen: Pen, night: Sample) -> None:
    env = {**pen.env, "BULLPEN_DIR": str(pen.root), "TERM": "xterm"}
    watch = AtTerminal("components", "-w", **env)
    watch.expect("healthy")
    os.kill(night.process.pid, signal.SIGSTOP)
    watch.expect("was idle")
    watch.expect("late")
    watch.expect("unreachable")
    os.kill(night.process.pid, signal.SIGCONT)
    watch.text = ""
    watch.expect("healthy     ")
    os.kill(watch.pid, signal.SIGINT)
    assert watch.end() == 0


def test_f2_a_watch_is_for_terminals(pen: Pen) -> None:
    assert pen.cli("components", "-w").code != 0
    refused = pen.cli("components", "-w", "--json")
    assert "--json prints once" in refused.err
