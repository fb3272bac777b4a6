"""A director as a process, with a webhook: D2, D4. Real hub and server, the fakes of the forges."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.home import credentials
from tests.directors.running import RunningDirector
from tests.forge.sender import SECRET, SENDERS, Sender, encoded, post
from tests.forge.server import Forge
from tests.forge.world import World
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(params=SENDERS, ids=lambda sender: sender.name)
def sender(request: pytest.FixtureRequest) -> Sender:
    made: Sender = request.param
    return made


@pytest.fixture
def forge(tmp_path: Path, sender: Sender) -> Iterator[Forge]:
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    (tmp_path / "forge").mkdir()
    with sender.served(tmp_path / "forge", world) as made:
        yield made
        assert made.faults == []


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "desk").mkdir()
    with made_desk(tmp_path / "desk", "standin") as made:
        made.pen.start()
        made.role("amy", sandbox={"enabled": True})
        yield made


@pytest.fixture
def robo(desk: Desk, sender: Sender, forge: Forge) -> Iterator[RunningDirector]:
    """Looks by itself at its start, and then not before a day is over."""
    made = RunningDirector(desk.pen, "robo")
    credentials.store(desk.pen.home, f"{sender.name}-token", forge.token("bot").encode())
    fields = {
        "type": sender.name,
        "repo": "acme/shop",
        "server": forge.url,
        "role": "amy",
        "port": desk.pen.free_port(),
        "poll_interval": "1d",
        "webhook": True,
        "settings": {"status_issue": False},
    }
    made.file.write_text(json.dumps(fields))
    refused = made.cli("director", "start", "robo")
    assert refused.code != 0 and f"auth set {sender.name}-webhook-secret" in refused.err
    credentials.store(desk.pen.home, f"{sender.name}-webhook-secret", SECRET.encode())
    made.start()
    try:
        yield made
    finally:
        ran = made.cli("director", "stop", "robo")
        assert ran.code == 0, ran


def looked(robo: RunningDirector) -> float:
    return robo.ask("GET", "/agents")["last_poll"] or 0.0


def send(robo: RunningDirector, sender: Sender, number: int) -> int:
    body = encoded(sender.issue(number))
    port = json.loads(robo.file.read_text())["port"]
    return post(port, body, sender.headers(SECRET, body)).status_code


def claims(forge: Forge, number: int) -> list[str]:
    return [text for text in forge.world.said(number, "bot") if "works on this" in text]


@pytest.mark.storm
def test_d2_a_delivery_that_a_director_was_killed_with_is_not_lost(
    robo: RunningDirector, sender: Sender, forge: Forge
) -> None:
    """Killed when the delivery is answered, and no look has seen the issue."""
    wait_until(lambda: looked(robo) > 0, 60)
    first = forge.world.open_issue("ann", "[robo] Greet", "")
    assert send(robo, sender, first) == 204
    wait_until(lambda: len(claims(forge, first)) == 1, 60)
    forge.is_down = True  # who looks sees nothing
    second = forge.world.open_issue("ann", "[robo] Wave", "")
    assert send(robo, sender, second) == 204
    robo.kill()  # its supervisor starts it again
    assert claims(forge, second) == []
    forge.is_down = False
    wait_until(lambda: len(claims(forge, second)) == 1, 60)
    assert len(claims(forge, first)) == 1


@pytest.mark.few(1)
def test_d2_a_forged_delivery_leaves_no_trace_but_a_refusal(
    robo: RunningDirector, sender: Sender, forge: Forge, desk: Desk
) -> None:
    wait_until(lambda: looked(robo) > 0, 60)
    before = looked(robo), len(forge.asked)
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    port = json.loads(robo.file.read_text())["port"]
    body = encoded({**sender.issue(number), "marker": "what-a-stranger-wrote"})
    for headers in ({}, sender.headers("guess", body)):
        assert post(port, body, headers).status_code == 401
    assert post(port, body, sender.headers(SECRET, body), "/shutdown").status_code == 401
    credentials.clear(desk.pen.home, f"{sender.name}-webhook-secret")
    assert send(robo, sender, number) == 401, "a secret that is forgotten lets nobody in"
    assert (looked(robo), len(forge.asked)) == before
    log = (desk.pen.home.logs / "robo.log").read_text()
    assert log.count("a delivery to the webhook was refused") == 3
    assert "what-a-stranger-wrote" not in log and SECRET not in log
