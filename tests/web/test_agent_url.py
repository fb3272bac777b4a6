"""`agent_url` names an agent of this home, and is never connected to (V3)."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from bullpen.web import agent_url
from tests.hub.pen import Pen, made_pen
from tests.web.inside import InsideView

pytestmark = pytest.mark.slow


class Listener(http.server.ThreadingHTTPServer):
    """Somebody else's server, which notes who comes, and redirects to itself."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Heard)
        self.heard: list[str] = []


class Heard(http.server.BaseHTTPRequestHandler):
    server: Listener

    def parse_request(self) -> bool:
        # Programs of other tests ask whom this port belongs to, which may have been theirs.
        if not self.raw_requestline.startswith(b"GET /status "):
            self.server.heard.append("asked")
        return super().parse_request()

    def do_POST(self) -> None:
        self.server.heard.append(self.path)
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/again")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with Listener() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def home() -> Iterator[tuple[Pen, InsideView, int]]:
    """A hub with one task agent that has a port of its own."""
    with made_pen() as pen:
        pen.start()
        port = pen.free_port()
        pen.role("taker", agent_type="command", command=["/bin/cat"])
        (pen.root / "agents" / "tom.yaml").write_text(json.dumps({"role": "taker", "port": port}))
        done = pen.cli("agent", "start", "tom")
        assert done.code == 0, done
        from bullpen.web.token import ensure_token

        with contextlib.closing(InsideView(pen.home, ensure_token(pen.home))) as view:
            yield pen, view, port


def hostile(port: int, hub: int, own: int) -> list[object]:
    return [
        f"http://127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/agents/tom",
        f"http://localhost:{port}/",
        f"http://localhost:{own}",
        f"http://tom@127.0.0.1:{port}/",
        f"http://127.0.0.1:{own}@127.0.0.1:{port}/",
        f"http://127.0.0.1:{own}#@127.0.0.1:{port}",
        f"http://127.0.0.1:{own}/../../../..:{port}",
        f"http://127.1:{port}",
        f"http://2130706433:{port}",
        f"http://[::ffff:127.0.0.1]:{port}",
        f"http://localtest.me:{port}",
        f"http://127.0.0.1:{hub}",
        f"http://127.0.0.1:{hub}/shutdown",
        f"http://127.0.0.1:{hub}/agents/tom/shutdown",
        f"http://127.0.0.1:{hub}/agents/nobody",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "",
        None,
        7,
        ["http://127.0.0.1"],
        "x" * 10_000,
    ]


@pytest.mark.storm
def test_v3_no_address_is_ever_connected_to(
    home: tuple[Pen, InsideView, int], listener: Listener
) -> None:
    pen, view, own = home
    hub = json.loads((pen.root / "hub.json").read_text())["port"]
    for url in hostile(listener.server_port, hub, own):
        answer = view.ask("POST", "/api/task", {"agent_url": url, "prompt": "x"})
        assert answer.status_code == 404, url
        assert "no agent of this home" in answer.json()["message"]
        if isinstance(url, str):
            got = view.ask("GET", str(httpx.URL("/api/task/t-1", params={"agent_url": url})))
            assert got.status_code == 404, url
    assert listener.heard == []
    assert pen.client().get("tasks")["tasks"] == []


def test_v3_a_view_that_asked_the_address_itself_would_be_heard(
    home: tuple[Pen, InsideView, int], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half: the listener does hear what connects to it."""
    _, view, _ = home

    async def ask_there(_hub: object, url: object) -> str:
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
            await client.post(f"{url}/task", json={"prompt": "x"})
        return "tom"

    monkeypatch.setattr("bullpen.web.routes.agent_at", ask_there)
    url = f"http://127.0.0.1:{listener.server_port}"
    view.ask("POST", "/api/task", {"agent_url": url, "prompt": ""})
    assert "/task" in listener.heard
    listener.heard.clear()


def test_v3_an_agent_is_found_by_its_own_address_and_by_the_hubs(
    home: tuple[Pen, InsideView, int],
) -> None:
    pen, view, own = home
    hub = json.loads((pen.root / "hub.json").read_text())["port"]
    for url in (
        f"http://127.0.0.1:{own}",
        f"http://127.0.0.1:{own}/",
        f"http://127.0.0.1:{hub}/agents/tom",
    ):
        assert view._runner.run(agent_url.agent_at(view.hub, url)) == "tom"
