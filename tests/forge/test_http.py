"""HTTP as a forge wants it: D2. A real server on the loopback, with lists, pages and ETags."""

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bullpen import clock
from bullpen.directors.failures import ActionError, LimitError
from bullpen.directors.forge import http as http_module
from bullpen.directors.forge.http import ForgeHttp

TARGET = "/items"


class Listed:
    """A list on a server. `has_links`: whether a 304 has a `Link`, too."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.has_links = False
        self.statuses: list[int] = []
        self.url = ""

    def answer(self, target: str, known: str) -> tuple[int, bytes, dict[str, str]]:
        query = parse_qs(urlsplit(target).query)
        size, page = int(query["per_page"][0]), int(query["page"][0])
        body = json.dumps(self.items[(page - 1) * size : page * size]).encode()
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
        is_same = known == headers["ETag"]
        if page * size < len(self.items) and (self.has_links or not is_same):
            headers["Link"] = f'<{self.url}{TARGET}?page={page + 1}>; rel="next"'
        self.statuses.append(304 if is_same else 200)
        return self.statuses[-1], b"" if is_same else body, headers


@contextlib.contextmanager
def served(listed: Listed) -> Iterator[ForgeHttp]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            known = self.headers.get("if-none-match", "")
            status, body, headers = listed.answer(self.path, known)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # it was told enough
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        listed.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield ForgeHttp("It", listed.url, dict, "some-token")
        finally:
            server.shutdown()
            thread.join()


def test_d2_a_list_that_grows_beyond_a_full_page_is_read_to_its_end() -> None:
    """The first page stays the same, and its `Link` of before said that it is the last."""
    for has_links in (False, True):
        listed = Listed()
        listed.has_links = has_links
        with served(listed) as http:

            async def read(http: ForgeHttp = http, listed: Listed = listed) -> None:
                for count in (99, 100, 101, 101, 201, 150, 100, 99):
                    listed.items = list(range(count))
                    assert await http.get_all(TARGET) == listed.items

            asyncio.run(read())
        assert 304 in listed.statuses


def test_d2_a_list_in_smaller_pages_is_read_to_its_end() -> None:
    """A server may give less on a page than it is asked for."""
    listed = Listed()
    answer = listed.answer
    listed.answer = lambda target, known: answer(  # type: ignore[method-assign]
        target.replace("per_page=100", "per_page=20"), known
    )
    listed.items, listed.has_links = list(range(70)), True
    with served(listed) as http:
        for _ in range(2):
            assert asyncio.run(http.get_all(TARGET)) == listed.items
    assert listed.statuses == [200] * 4 + [304] * 4


def test_d2_what_is_kept_of_answers_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MOST_KEPT_BYTES", 100_000)
    listed = Listed()
    listed.items = ["x" * 10_000]
    with served(listed) as http:

        async def read() -> None:
            for name in range(30):
                assert await http.get_all(TARGET, {"of": str(name)}) == listed.items
                assert http.kept_bytes <= 100_000
            assert 304 not in listed.statuses
            await http.get_all(TARGET, {"of": "29"})  # the newest are kept
            assert listed.statuses[-1] == 304
            listed.items = ["x" * 200_000]  # too much to be kept, and read all the same
            for _ in range(2):
                assert await http.get_all(TARGET) == listed.items
                assert listed.statuses[-1] == 200

        asyncio.run(read())


def test_d2_an_answer_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MOST_BYTES", 1 << 20)
    listed = Listed()
    listed.items = ["x" * (1 << 20)]
    with served(listed) as http:
        with pytest.raises(ActionError, match="more than 1 MiB to GET /items"):
            asyncio.run(http.get_all(TARGET))
        listed.items = ["x" * ((1 << 20) - 100)]
        assert asyncio.run(http.get_all(TARGET)) == listed.items


class Limited(Listed):
    """Has had enough for an hour."""

    def answer(self, target: str, known: str) -> tuple[int, bytes, dict[str, str]]:
        return 429, b"{}", {"Retry-After": "3600"}


def test_d2_a_limit_says_until_when_it_lasts() -> None:
    before = time.time()
    with served(Limited()) as http, pytest.raises(LimitError) as raised:
        asyncio.run(http.get_all(TARGET))
    times = {clock.local_time(at + 3600) for at in (before, time.time())}
    assert raised.value.message.partition(" is reached until ")[2] in times


def test_d2_a_forge_that_is_away_is_named_with_its_address() -> None:
    with served(Listed()) as http:
        address = http._base
    with pytest.raises(ActionError, match=f"cannot be reached at {address}: ConnectError"):
        asyncio.run(http.get_all(TARGET))
