"""Tokens leave no trace: not in the log, not in events, not in the database."""

import contextlib

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_websocket

from bullpen.home.paths import HUB
from bullpen.hub.agents import tokens
from tests.hub.http.agents import agent_socket_of, start_agent, token_of
from tests.hub.http.http import ask, connect, raw
from tests.hub.pen import made_pen
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_b9_tokens_are_never_written_down() -> None:
    with made_pen() as pen:
        config = pen.root / "config.yaml"
        config.write_text(config.read_text() + "log_level: debug\n")
        pen.start()
        where, port = pen.home.socket(HUB), int(pen.record("../", "hub.json")["port"])
        start_agent(where, pen, "amy")
        stranger = tokens.new_token()
        secrets = [tokens.owner_token(pen.home), token_of(pen.home, "amy"), stranger]
        for secret in secrets:
            for place in (port, where, agent_socket_of(pen.home, "amy")):
                for target in (
                    f"/agents?token={secret}",
                    f"/events?agent={secret}",
                    f"/agents/{secret}",
                    f"/{secret}",
                ):
                    ask(place, "GET", target, {"Cookie": f"t={secret}"}, token=secret)
                ask(place, "GET", "/status", {"Host": secret, "Origin": f"http://{secret}"})
                raw(place, f"GET / HTTP/9.9\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
                with (
                    contextlib.suppress(InvalidStatus),
                    connect_websocket(
                        f"ws://localhost/agents/amy/terminal?x={secret}",
                        sock=connect(place),
                        additional_headers={"Authorization": f"Bearer {secret}"},
                        open_timeout=60,
                    ),
                ):
                    pass
            hook = {"hook_event_name": "UserPromptSubmit", "prompt": f"use {secret} for it"}
            assert ask(where, "POST", "/agents/amy/hooks", body=hook).status == 200
            for before in (180, 580, 590):  # where a text is cut
                cut = {**hook, "prompt": ("x " * 300)[:before] + secret}
                assert ask(where, "POST", "/agents/amy/hooks", body=cut).status == 200
            many = {**hook, "prompt": f"{secret} " * 100}
            assert ask(where, "POST", "/agents/amy/hooks", body=many).status == 200
            ask(where, "POST", "/agents/amy/hooks", body=secret.encode())
            ask(where, "POST", "/agents", body={"name": secret, secret: secret})
            ask(where, "POST", "/agents", body=pen.launch("/bin/cat", name=secret))
            url = f"http://user:{secret}@127.0.0.1:1"
            body = {"name": "x", "kind": "view", "url": url, "pid": 1, "version": "1"}
            assert ask(where, "POST", "/components", body=body).status == 400
        seen = ask(where, "GET", "/events?limit=1000").body
        assert b"[redacted]" in seen
        assert ask(where, "POST", "/shutdown").status == 202
        wait_until(lambda: not pen.hub_pids())
        written = {
            path: path.read_bytes()
            for path in (*pen.home.logs.iterdir(), *pen.root.glob("state.db*"))
        }
        assert len(written) >= 2
        for secret in secrets:
            for start in (secret, secret[:14]):  # nor what is left of one that was cut
                for path, data in {**written, "events": seen}.items():
                    assert start.encode() not in data, path
