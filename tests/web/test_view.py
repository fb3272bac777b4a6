"""The view as a process: its certificate, its place among the components, its log, its memory (V1,
V2, F2)."""

import asyncio
import contextlib
import datetime
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from bullpen.component import ask
from bullpen.home import marker
from bullpen.home.paths import Home, make_directories
from bullpen.web import tls
from bullpen.web.config import WebConfig
from tests.hub.pen import made_pen
from tests.waiting import wait_until
from tests.web.running import RunningView, running_view

pytestmark = pytest.mark.slow

MOST_KB = 58 * 1024


@pytest.mark.storm
def test_v1_the_page_comes_over_tls_with_a_certificate_that_the_ca_has_signed(
    served: RunningView,
) -> None:
    assert served.ask("GET", "/api/me").json["name"] == "Ann"
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl_of_nobody = ssl.create_default_context()
        import socket

        with socket.create_connection(("127.0.0.1", served.port)) as line:
            ssl_of_nobody.wrap_socket(line, server_hostname="localhost")


def test_v3_the_hubs_answers_are_passed_on_unchanged(served: RunningView) -> None:
    for target in ("agents", "tree", "approvals", "tasks", "history", "pods", "usage", "landings"):
        _, answer = served.pen.ask("GET", f"/{target}")
        assert served.ask("GET", f"/api/{target}").json == answer, target
    refused = served.ask("GET", "/api/agents/nobody")
    status, answer = served.pen.ask("GET", "/agents/nobody")
    assert (refused.status, refused.json) == (status, answer) == (404, answer)


def test_v1_the_view_is_a_component_that_the_hub_knows(served: RunningView) -> None:
    def is_registered() -> bool:
        known = served.ask("GET", "/api/components").json
        return [(one["name"], one["kind"], one["pid"]) for one in known] == [
            ("web", "view", served.process.pid)
        ]

    wait_until(is_registered)
    status = served.ask("GET", "/status").json
    assert status == {**served.ask("GET", "/api/status").json, **_changing(status)}
    assert status["type"] == "view"
    assert {"statusable", "observable"} <= set(status["interfaces"])
    own = ask.get_status(served.pen.home.component_socket(served.process.pid))
    assert (own.type, own.name, own.config["port"]) == ("view", "web", served.port)


def _changing(status: dict) -> dict:
    return {"uptime_seconds": status["uptime_seconds"], "log": status["log"]}


def test_v3_components_that_were_found_are_shown_and_only_registered_ones_have_buttons(
    served: RunningView,
) -> None:
    def own_view() -> list[bool]:
        found = served.ask("GET", "/api/discovered").json
        return [one["registered"] for one in found if one["kind"] == "view" and one["own"]]

    wait_until(lambda: own_view() == [True])
    assert served.ask("GET", "/api/directors").json == []


def test_v4_what_a_page_begins_with_is_one_answer_and_not_older_than_its_position(
    served: RunningView,
) -> None:
    def newest() -> int:
        return int(served.pen.client().get("events", before=1 << 62)["events"][0]["id"])

    before = newest()
    start = served.ask("GET", "/api/start").json
    assert before <= start.pop("position") <= newest()
    routes = {name: f"/api/{name}" for name in ("agents", "approvals", "tasks")}
    routes |= {"landings": "/api/landings?all=1", "usage": "/api/usage?by=day"}
    assert start.keys() == routes.keys()
    for name, route in routes.items():
        assert start[name].keys() == served.ask("GET", route).json.keys()


def test_v2_the_token_is_in_no_log_event_or_status(served: RunningView) -> None:
    token = served.token
    served.ask("GET", f"/?token={token}&name=Ann", headers={"Cookie": ""})
    served.ask("GET", f"/agents?token={token}")
    served.ask("GET", "/api/me", headers={"Authorization": f"Bearer {token}", "Cookie": ""})
    served.ask("GET", f"/api/agents/{token}")
    assert served.ask("GET", "/api/agents").status == 200  # all of that was answered before
    log = served.log()
    assert log
    for text in (
        log,
        (served.pen.root / "logs" / "hub.log").read_text(),
        served.errors,
        json.dumps(served.pen.events()),
        json.dumps(served.ask("GET", "/status").json),
        served.ask("GET", "/").body.decode(),
    ):
        assert token not in text
    assert served.ask("GET", "/").headers["referrer-policy"] == "no-referrer"


def test_v1_the_view_stays_small(served: RunningView) -> None:
    for _ in range(3):
        for target in ("agents", "tree", "approvals", "usage", "discovered", "events"):
            assert served.ask("GET", f"/api/{target}").status == 200
    assert served.memory_kb() < MOST_KB


def test_v1_the_view_loads_no_command_line_and_nothing_that_makes_certificates() -> None:
    loads = "import sys, bullpen.web.view; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "httpx" in loaded
    assert not {"bullpen.model.role", "bullpen.model.landing"} & set(done.stdout.split())
    assert not loaded & {"rich", "pygments", "cryptography", "qrcode", "fastapi"}


def test_v1_a_certificate_is_renewed_while_the_view_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bullpen.web import machine
    from bullpen.web import view as module
    from bullpen.web.certificate import Wanted, ensure

    make_directories(tmp_path)
    marker.create(tmp_path)
    home, config = Home(tmp_path), WebConfig()
    directory = tmp_path / "web"
    directory.mkdir(mode=0o700)
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=350)
    ensure(directory, Wanted(machine.host_names(), machine.addresses()), before)
    context = tls.context(tls.own(directory))
    shown = certificate_of(context)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)

    async def renewed() -> None:
        renewing = asyncio.create_task(module.View(home, "web", config)._renew(context))
        async with asyncio.timeout(60):
            while certificate_of(context) == shown:
                await asyncio.sleep(0.05)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)

    asyncio.run(renewed())
    pem = (directory / "cert.pem").read_text()
    assert certificate_of(context) == ssl.PEM_cert_to_DER_cert(pem.partition(END)[0] + END)


END = "-----END CERTIFICATE-----\n"  # what follows is the CA's


def certificate_of(context: ssl.SSLContext) -> bytes:
    """What a client of that server is shown."""
    into_server, into_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    client = trusting.wrap_bio(into_client, into_server)
    server = context.wrap_bio(into_server, into_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


@pytest.mark.storm
def test_v1_an_expired_certificate_is_renewed_when_the_view_starts() -> None:
    from bullpen.web import machine
    from bullpen.web.certificate import Wanted, days_left, ensure
    from bullpen.web.tls import own

    with made_pen() as pen:
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=400)
        directory = pen.root / "web"
        ensure(directory, Wanted(machine.host_names(), machine.addresses()), before)
        now = datetime.datetime.now(datetime.UTC)
        assert days_left(own(directory).cert, now) < 0
        authority = (directory / "ca.pem").read_bytes()
        with running_view(pen) as view:
            assert view.ask("GET", "/api/me").status == 200
        assert days_left(own(directory).cert, now) >= 364
        assert (directory / "ca.pem").read_bytes() == authority


@pytest.mark.storm
def test_v2_the_certificate_of_a_persons_own_is_served_as_it_is() -> None:
    from ipaddress import ip_address

    from bullpen.web.certificate import Wanted, ensure, fingerprint

    with made_pen() as pen:
        own = pen.root.parent / "own"
        wanted = Wanted(("localhost", "shop.example.org"), (ip_address("127.0.0.1"),))
        ensure(own, wanted, datetime.datetime.now(datetime.UTC))
        files = {"cert": str(own / "cert.pem"), "key": str(own / "key.pem")}
        hosts = ["shop.example.org"]
        with running_view(pen, tls={**files, "auto_generate": False}, hosts=hosts) as view:
            assert not (pen.root / "web" / "cert.pem").exists()
            pem = ssl.get_server_certificate(("127.0.0.1", view.port))
            (own / "served.pem").write_text(pem)
            assert fingerprint(own / "served.pem") == fingerprint(own / "cert.pem")
