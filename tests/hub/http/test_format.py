"""What is the same for all answers: headers, errors, and the description of it all."""

import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.hub.http import agents, guard
from tests.hub.http.http import HANDSHAKE, ask
from tests.hub.http.inside import Inside
from tests.hub.http.table import STREAM, TABLE, TERMINAL, request

NO_KEY = {"Sec-WebSocket-Key": "x"}
ERRORS = {400, 401, 403, 404, 405, 409, 413, 422, 503}


@pytest.mark.parametrize("target", ["/status", "/nowhere", "/docs", "/agents/nobody", "/events"])
def test_b5_every_answer_has_the_common_headers(inside: Inside, target: str) -> None:
    for where, token in ((inside.socket, ""), (inside.port, inside.owner), (inside.port, "")):
        headers = ask(where, "GET", target, token=token).headers
        assert headers["bullpen-version"] == __version__
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert parsedate_to_datetime(headers["date"]).tzinfo is not None
        assert "server" not in headers


def test_t9_errors_of_all_sorts_have_one_format(inside: Inside) -> None:
    cases = [
        (ask(inside.socket, "GET", "/nowhere"), 404, "not_found"),
        (ask(inside.socket, "GET", "/agents/"), 404, "not_found"),
        (ask(inside.socket, "GET", "/agents/nobody"), 404, "not_found"),
        (ask(inside.socket, "PUT", "/agents"), 405, "method_not_allowed"),
        (ask(inside.socket, "POST", "/docs"), 405, "method_not_allowed"),
        (ask(inside.socket, "GET", "/events?limit=0"), 400, "validation_error"),
        (ask(inside.socket, "POST", "/agents", body=b"{"), 400, "validation_error"),
        (ask(inside.socket, "GET", "/agents/amy/diff"), 409, "conflict"),
        (ask(inside.socket, "POST", "/gc", body=b"x" * (9 << 20)), 413, "too_large"),
        (ask(inside.port, "GET", "/agents"), 401, "unauthorized"),
        (ask(inside.port, "GET", "/status", token="x"), 401, "unauthorized"),
        (ask(inside.port, "GET", "/status", {"Host": "x"}), 403, "forbidden"),
        (ask(inside.port, "GET", "/x", HANDSHAKE), 401, "unauthorized"),
        (ask(inside.socket, "GET", "/x", HANDSHAKE), 404, "not_found"),
        (ask(inside.socket, "GET", "/x", {"X": "y" * 70_000}), 431, "too_large"),
        (ask(inside.socket, "GET", "/x", {**HANDSHAKE, **NO_KEY}), 400, "validation_error"),
    ]
    for answer, status, error in cases:
        assert (answer.status, answer.json["error"]) == (status, error)
        assert set(answer.json) == {"error", "message", "details"}
        assert answer.json["message"]
        assert answer.json["details"]["retryable"] is False
        assert answer.headers["content-type"] == "application/json"
        assert {"date", "bullpen-version", "cache-control"} <= set(answer.headers)
    assert cases[3][0].headers["allow"]


@pytest.mark.parametrize("kind", Kind)
def test_t9_every_kind_of_error_says_whether_to_try_again(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BullpenError("it failed \ud800", hint="do this", kind=kind, details={"a": 1})

    monkeypatch.setattr(agents, "shown", fail)
    answer = ask(inside.socket, "GET", "/agents/amy")
    assert answer.json["message"] == "it failed \ud800"
    is_passing = kind is Kind.UNAVAILABLE
    details = {"a": 1, "kind": kind.value, "hint": "do this", "retryable": is_passing}
    assert answer.json["details"] == details
    assert answer.status in ERRORS
    assert (answer.status == 503) == is_passing


def test_t9_a_failure_of_the_hub_has_the_format_too(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret of the hub")

    monkeypatch.setattr(agents, "shown", fail)
    answer = ask(inside.socket, "GET", "/agents/amy")
    assert (answer.status, answer.json["error"]) == (500, "internal_error")
    assert answer.json["details"]["retryable"] is True
    assert b"secret" not in answer.body
    monkeypatch.setattr("bullpen.hub.http.terminal.running", fail)
    answer = request(inside.socket, TERMINAL)
    assert answer.status == 500
    assert [record.name for record in caplog.records] == ["bullpen.http"] * 2  # once each
    monkeypatch.undo()
    assert ask(inside.socket, "GET", "/agents/amy").status == 200


def test_t9_a_failure_in_the_guard_is_no_way_in(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(guard.tokens, "find_agent", fail)
    answer = ask(inside.port, "GET", "/status", token="x")
    assert (answer.status, answer.json["error"]) == (500, "internal_error")


# ── the description ──


def operations(api: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_b5_the_description_promises_every_error(inside: Inside) -> None:
    api = ask(inside.socket, "GET", "/openapi.json").json
    for _, path, operation in operations(api):
        answers = operation["responses"]
        assert {str(status) for status in ERRORS} <= set(answers), path
        assert any(status.startswith("2") for status in answers)
        for status in ERRORS:
            schema = answers[str(status)]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}
        for status, answer in answers.items():
            if status.startswith("2"):
                assert answer["content"], path
    assert "HTTPValidationError" not in api["components"]["schemas"]


def test_b5_the_description_explains(inside: Inside) -> None:
    api = ask(inside.socket, "GET", "/openapi.json").json
    for method, path, operation in operations(api):
        assert len(operation["description"]) > 20, (method, path)
        for parameter in operation.get("parameters", ()):
            if parameter["name"] != "limit":
                assert parameter.get("description"), (method, path, parameter["name"])
    for name, schema in api["components"]["schemas"].items():
        assert schema.get("description"), name


class Page(HTMLParser):
    """What is on the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_b5_the_page_needs_nothing_from_elsewhere(inside: Inside) -> None:
    answer = ask(inside.socket, "GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:2] == ["default-src 'none'", "style-src 'unsafe-inline'"]
    page = Page(answer.body.decode())
    assert not {"script", "iframe", "img", "link", "form"} & set(page.tags)
    assert page.links == ["/openapi.json"]
    assert not re.search(r"https?://(?!127\.0\.0\.1)", answer.body.decode())


def test_b5_the_page_has_every_route(inside: Inside) -> None:
    page = Page(ask(inside.socket, "GET", "/docs").body.decode())
    described = {route for route in TABLE if not route[1].endswith(("/docs", "/openapi.json"))}
    for method, path in described - {TERMINAL}:
        assert f"{method} {path}" in page.text
    assert TERMINAL[1] in page.text
    assert STREAM[1] in page.text
    for word in ("retryable", "Last-Event-ID".lower(), "grace", "older_than_seconds"):
        assert word in page.text


def test_b5_what_is_described_cannot_break_the_page() -> None:
    from bullpen.hub.http.docs import page

    evil = '<script>alert(1)</script>"onload=`x`'
    operation = {
        "description": evil,
        "parameters": [{"name": evil, "in": evil, "schema": {"type": evil}, "description": evil}],
        "responses": {evil: {"description": evil}},
    }
    text = page(
        {
            "info": {"title": evil, "version": evil, "description": evil},
            "paths": {evil: {evil: operation}},
            "components": {"schemas": {evil: {"description": evil}}},
        }
    )
    assert "script" not in Page(text).tags
