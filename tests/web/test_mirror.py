"""What of the hub's API the page may use (V3)."""

import re
from urllib.parse import unquote

import httpx
import pytest

from bullpen.errors import BullpenError
from bullpen.hub.http.app import make_app
from bullpen.web.live import Blocks
from bullpen.web.mirror import TABLE, Row

API = make_app(None).openapi()["paths"]  # type: ignore[arg-type]
# What no page may do, whoever has its token: it starts programs, ends the hub, or is for agents.
NEVER = ("/shutdown", "/hooks", "/permission", "/v1/", "/input", "/gc", "/openapi.json")


def plain(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


HUB = {(method.upper(), plain(path)): path for path, methods in API.items() for method in methods}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.method} {row.path}")
def test_v3_every_row_is_a_route_of_the_hub_with_the_same_path(row: Row) -> None:
    assert (row.method, plain(row.path)) in HUB
    place = dict.fromkeys(re.findall(r"\{(\w+)\}", row.path), "x7")
    request = row.request(place, {}, {}, "Ann")
    assert request.method == row.method
    assert request.path == re.sub(r"\{\w+\}", "x7", row.path)
    described = API[HUB[row.method, plain(row.path)]][row.method.lower()]
    known = {each["name"] for each in described.get("parameters", ()) if each["in"] == "query"}
    assert {*row.query, *filter(None, [row.waits])} <= known
    assert row.has_body == (row.method == "POST")


def test_v3_nothing_dangerous_is_in_the_table() -> None:
    assert not [row.path for row in TABLE for word in NEVER if word in row.path]
    assert ("POST", "/agents") not in {(row.method, row.path) for row in TABLE}
    assert ("POST", "/components") not in {(row.method, row.path) for row in TABLE}


def row_of(method: str, path: str) -> Row:
    return next(row for row in TABLE if (row.method, row.path) == (method, path))


def test_v3_the_body_is_passed_on_as_it_is_and_is_done_once() -> None:
    row = row_of("POST", "/approvals/{id}")
    sent = row.request({"id": "7"}, {"x": "1"}, {"decision": "allow", "reason": "ok"}, "Ann")
    assert sent.body is not None
    key = sent.body["answer"]
    assert sent.body == {"decision": "allow", "reason": "ok", "name": "Ann", "answer": key}
    assert sent.query == {}
    again = row.request({"id": "7"}, {}, {"decision": "allow", "answer": "mine"}, "")
    assert again.body == {"decision": "allow", "answer": "mine"}


def test_v3_nobody_decides_under_another_name() -> None:
    row = row_of("POST", "/approvals/{id}")
    sent = row.request({"id": "7"}, {}, {"decision": "allow", "name": "Bob"}, "Ann")
    assert sent.body is not None
    assert sent.body["name"] == "Ann"


def test_v3_names_in_paths_stay_one_part_of_the_path() -> None:
    row = row_of("GET", "/agents/{name}/diff")
    assert row.request({"name": "../hub"}, {}, {}, "").path == "/agents/..%2Fhub/diff"


@pytest.mark.parametrize("dots", [".", ".."])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.method} {row.path}")
def test_v3_a_name_of_dots_leads_to_no_other_route(row: Row, dots: str) -> None:
    place = dict.fromkeys(re.findall(r"\{(\w+)\}", row.path), dots)
    sent = httpx.Client(base_url="http://localhost").build_request(
        row.method, row.request(place, {}, {}, "").target
    )
    assert unquote(sent.url.raw_path.decode()) == re.sub(r"\{\w+\}", dots, row.path)


def test_v3_dots_that_were_not_quoted_would_lead_to_another_route() -> None:
    sent = httpx.Client(base_url="http://localhost").build_request("GET", "/agents/../config")
    assert sent.url.raw_path == b"/config"


def test_v3_how_long_the_hub_is_waited_for_is_bounded() -> None:
    row = row_of("GET", "/landings/{id}")
    assert row.request({"id": "l-1"}, {"wait": "30"}, {}, "").wait_seconds == 30
    for text in ("61", "-1", "nan", "x"):
        with pytest.raises(BullpenError, match="wait has to be"):
            row.request({"id": "l-1"}, {"wait": text}, {}, "")


def test_v4_blocks_are_passed_on_whole_however_they_arrive() -> None:
    text = b"id: 1\nevent: a\ndata: {}\n\n: ping\nid: 1\n\n"
    for size in range(1, len(text) + 1):
        blocks = Blocks()
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        found = [block for piece in pieces for block in blocks.feed(piece)]
        assert found == [b"id: 1\nevent: a\ndata: {}\n\n", b": ping\nid: 1\n\n"]
