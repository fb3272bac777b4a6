"""`bullpen web`: started, looked at, stopped; what is wrong with its file (V1)."""

import json
import os
import re
import socket
from pathlib import Path

import pytest

from bullpen.component.config import load_config
from bullpen.home.supervised import find_above
from bullpen.home.yamlfile import parse
from bullpen.web.config import STARTER, WebConfig, check_web_document
from bullpen.web.qr import qr_text
from tests.hub.pen import Pen, made_pen
from tests.processes import alive, kill
from tests.waiting import wait_until


@pytest.fixture
def pen():
    """A home whose view has a port of its own."""
    with made_pen() as made:
        (made.root / "web").mkdir(mode=0o700)
        text = f"port: {made.free_port()}\nbind: 127.0.0.1\n"
        (made.root / "web" / "config.yaml").write_text(text)
        try:
            yield made
        finally:
            made.cli("web", "stop")


def shown(pen: Pen) -> dict:
    return json.loads(pen.cli("web", "status", "--json").out)


@pytest.mark.slow
def test_v1_the_view_is_started_shown_and_stopped(pen: Pen) -> None:
    down = pen.cli("web", "status")
    assert (down.code, down.out) == (3, "the view is not running · bullpen web start\n")
    started = pen.cli("web", "start")
    assert started.code == 0, started
    first = shown(pen)
    assert set(first) == {"running", "name", "pid", "url", "certificate", "built"}
    assert f"web serves {first['url']} · pid {first['pid']}" in started.out
    assert first["certificate"]["sha256"] in started.out
    token = (pen.root / ".env").read_text().partition("=")[2].strip()
    assert token not in started.out + started.err
    # Again it is the same one; with --qr its address for log-in, too.
    again = pen.cli("web", "start", "--qr")
    assert f"log in: {first['url']}/?token={token}" in again.out
    assert qr_text(f"{first['url']}/?token={token}").rstrip("\n") in again.out
    assert shown(pen)["pid"] == first["pid"]
    wait_until(lambda: "web" in pen.cli("discover").out)
    assert pen.cli("web", "start", "--regen-cert").code != 0
    stopped = pen.cli("web", "stop")
    assert (stopped.code, stopped.out) == (0, "view stopped\n")
    assert not alive(first["pid"])
    assert pen.cli("web", "stop").out == "the view is not running\n"
    assert json.loads(pen.cli("web", "stop", "--json").out) == {"stopped": False}
    assert json.loads(pen.cli("web", "status", "--json").out) == {"running": False}
    assert pen.answers(), "the hub goes on"


@pytest.mark.slow
def test_v2_the_page_is_opened_in_a_browser_that_is_not_told_the_token(pen: Pen) -> None:
    browser = pen.root.parent / "browser"
    browser.write_text('#!/bin/sh\necho "$@" > "$0.given"\n')
    browser.chmod(0o700)
    opened = pen.cli("web", "open", BROWSER=str(browser))
    assert opened.code == 0, opened
    first = shown(pen)
    assert opened.out == f"opened {first['url']} in your browser\n"
    token = (pen.root / ".env").read_text().partition("=")[2].strip()
    login = f"{first['url']}/?token={token}"
    page = pen.root / "web" / "open.html"
    assert browser.with_name("browser.given").read_text() == f"{page.as_uri()}\n"
    assert f'content="0; url={login}"' in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    without = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    assert f"log in: {login}\n" in pen.cli("web", "open", **without).out
    answer = json.loads(pen.cli("web", "open", "--json", **without).out)
    assert answer == {"url": first["url"], "opened": False}


@pytest.mark.slow
def test_v1_a_view_that_was_killed_comes_back(pen: Pen) -> None:
    assert pen.cli("web", "start").code == 0
    first = shown(pen)["pid"]
    wait_until(lambda: "web" in pen.cli("components").out)
    kill(first)
    wait_until(lambda: shown(pen).get("pid", first) != first)
    above = find_above(pen.root / "web")
    assert above is not None
    assert (above.restarts, above.ending) == (1, "ended by signal 9")
    assert pen.cli("web", "stop").code == 0
    assert not alive(above.pid)


@pytest.mark.slow
@pytest.mark.storm
def test_v1_a_view_that_cannot_come_back_is_said_to_wait_and_started_at_once(pen: Pen) -> None:
    assert pen.cli("web", "start").code == 0
    first = shown(pen)["pid"]
    wait_until(lambda: "web" in pen.cli("components").out)
    file = pen.root / "web" / "config.yaml"
    right = file.read_text()
    file.write_text("port: nonsense\n")
    kill(first)

    def waits() -> bool:
        above = find_above(pen.root / "web")
        return above is not None and above.child == 0 and above.restarts > 2

    wait_until(waits)
    rows = json.loads(pen.cli("components", "--json").out)["components"]
    view = next(one for one in rows if one["type"] == "view")
    assert view["health"] == "unreachable"
    assert re.fullmatch(r"ended with code \d · (again in .+|starting)", view["problem"])
    refused = pen.cli("web", "start")
    assert "config.yaml:1" in refused.err
    file.write_text(right)
    assert pen.cli("web", "start").code == 0
    assert pen.cli("kill", "--all").code == 0
    assert find_above(pen.root / "web") is None


@pytest.mark.slow
@pytest.mark.storm
def test_v1_a_new_certificate_can_be_asked_for(pen: Pen) -> None:
    pen.cli("web", "start")
    before = shown(pen)["certificate"]["sha256"]
    pen.cli("web", "stop")
    pen.cli("web", "start", "--regen-cert")
    assert shown(pen)["certificate"]["sha256"] != before


@pytest.mark.slow
@pytest.mark.storm
def test_v1_what_keeps_the_view_from_starting_is_said(pen: Pen) -> None:
    port = load_config(WebConfig, pen.root / "web" / "config.yaml")[0].port
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", port))
        taker.listen()
        refused = pen.cli("web", "start")
        assert refused.code != 0
        assert f"port {port} is taken by pid {os.getpid()}" in refused.err
        assert "web/config.yaml" in refused.err
    (pen.root / ".env").write_text("OTHER=1\n")
    (pen.root / ".env").chmod(0o644)
    refused = pen.cli("web", "start")
    assert "is open to others (0644)" in refused.err
    assert "chmod 600" in refused.err
    (pen.root / ".env").chmod(0o600)
    (pen.root / "web" / "config.yaml").write_text("prot: 8443\n")
    refused = pen.cli("web", "start")
    assert "config.yaml:1" in refused.err
    assert "did you mean port?" in refused.err
    agent = pen.cli("web", "start", BULLPEN_ACTOR="amy")
    assert "an agent may not start the web view" in agent.err
    assert pen.cli("web", "status").code != 0


def test_v1_the_file_that_the_first_start_writes_names_every_key_with_its_default() -> None:
    plain = "\n".join(
        line.removeprefix("# ") for line in STARTER.splitlines()[1:] if "ssl" not in line
    )
    config, problems = check_web_document(parse(Path("config.yaml"), plain + "\n"))
    assert problems == []
    assert config == WebConfig()
    for key in (*WebConfig.model_fields, "auto_generate", "cert", "key", "method", "port_range"):
        assert f"{key}:" in STARTER
    empty, problems = check_web_document(parse(Path("config.yaml"), STARTER))
    assert (empty, problems) == (WebConfig(), [])


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("prot: 1", 1, "prot", "did you mean port?"),
        ("bind: 0.0.0.0\nport: 70000", 2, "port", "65535"),
        ("bind: everywhere", 1, "bind", "is no address"),
        ("hosts: [https://x]", 1, "hosts", "is no host name"),
        ("tls:\n  cert: a.pem", 1, "tls", "cert and key go together"),
        ("tls:\n  auto_generate: false", 1, "tls", "needs cert and key"),
        ("discovery:\n  method: dns", 2, "discovery.method", "mdns"),
        ("discovery:\n  refresh_interval: soon", 2, "discovery.refresh_interval", "no duration"),
        ("name: ../x", 1, "name", "name"),
    ],
)
def test_v1_a_mistake_in_the_file_is_named_with_its_line(
    text: str, line: int, key: str, says: str
) -> None:
    _, problems = check_web_document(parse(Path("config.yaml"), text + "\n"))
    (problem,) = problems
    assert problem.line == line
    assert problem.key.startswith(key)
    assert says in problem.message


@pytest.mark.slow
def test_v1_validate_all_checks_the_views_file_too(tmp_path: Path) -> None:
    with made_pen() as made:
        (made.root / "web").mkdir()
        path = made.root / "web" / "config.yaml"
        path.write_text("port: 8443\n")
        assert "web/config.yaml" in made.cli("validate", "--all").out
        path.write_text("prot: 8443\n")
        for words in (("--all",), (str(path),)):
            done = made.cli("validate", *words)
            assert done.code == 1
            assert "did you mean port?" in done.out + done.err


def test_a_qr_code_is_made_of_half_blocks() -> None:
    text = qr_text("https://192.168.1.5:8443/?token=x")
    assert set(text) <= set("█▀▄ \n")
    assert len({len(line) for line in text.splitlines()}) == 1
