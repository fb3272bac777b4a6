"""What a request has to pass, and to whom a token goes: the pure parts."""

import asyncio
import contextlib
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from bullpen.component import guard, ports
from bullpen.component.answers import RefusedError

HOST = {b"host": "localhost:9000"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"origin": "http://localhost:9000"},
        {b"sec-fetch-site": "none"},
        {b"sec-fetch-site": "same-origin"},
    ],
)
def test_our_own_page_and_programs_may_ask(headers: dict[bytes, str]) -> None:
    guard.check_origin({**HOST, **headers})


@pytest.mark.parametrize(
    "headers",
    [
        {b"origin": "http://localhost:9001"},
        {b"origin": "https://localhost:9000"},
        {b"origin": "null"},
        {b"origin": ""},
        {b"sec-fetch-site": "same-site"},
        {b"sec-fetch-site": "cross-site"},
        {b"origin": "http://localhost:9000", b"sec-fetch-site": "cross-site"},
    ],
)
def test_a_page_of_another_site_may_not(headers: dict[bytes, str]) -> None:
    with pytest.raises(RefusedError):
        guard.check_origin({**HOST, **headers})


@pytest.mark.parametrize(
    ("kind", "method", "path", "is_open"),
    [
        ("http", "GET", "/status", True),
        ("http", "HEAD", "/status", True),
        ("http", "POST", "/status", False),
        ("http", "HEAD", "/config", False),
        ("websocket", None, "/status", False),
    ],
)
def test_c1_a_status_may_be_asked_for_by_anybody_also_without_its_body(
    kind: str, method: str | None, path: str, is_open: bool
) -> None:
    owners = guard.OwnerGuard(Starlette(), "hush", "sam")
    scope = {"type": kind, "method": method, "path": path, "state": {}}
    with contextlib.nullcontext() if is_open else pytest.raises(RefusedError, match="a token"):
        assert not owners._is_owner(scope, {})


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        *(
            (host, True)
            for host in ("localhost", "LocalHost:1", "127.0.0.1:80", "[::1]", "[::1]:8")
        ),
        *((host, False) for host in ("", "localhost.evil.com", "evil.com:80", "127.0.0.1.nip.io")),
        *((host, False) for host in ("::1", "localhost:80:80", "127.0.0.2", "localhost@evil.com")),
    ],
)
def test_only_names_of_the_loopback_are_served(host: str, is_ours: bool) -> None:
    assert guard.is_loopback_name(host) is is_ours


@pytest.mark.parametrize("name", guard.SINGLE_HEADERS)
def test_a_header_that_decides_comes_once(name: bytes) -> None:
    assert guard.single_headers({"headers": [(name, b"1"), (b"accept", b"a"), (b"accept", b"b")]})
    with pytest.raises(RefusedError):
        guard.single_headers({"headers": [(name, b"1"), (name, b"1")]})


def test_headers_that_must_not_come_twice_are_all_there() -> None:
    assert set(guard.SINGLE_HEADERS) >= {b"host", b"origin", b"authorization", b"content-length"}


def received(sizes: list[int], length: str = "0") -> int:
    pieces = iter(sizes)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"x" * next(pieces)}

    async def all_of_them() -> int:
        receiving = guard.capped(receive, {b"content-length": length})
        return sum([len((await receiving())["body"]) for _ in sizes])

    return asyncio.run(all_of_them())


def test_a_body_is_taken_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_BYTES", 10)
    assert received([4, 6]) == received([10], "10") == 10
    for sizes, length in (([4, 7], "0"), ([], "11"), ([], "-1"), ([], "1" * 19), ([], "²")):
        with pytest.raises(RefusedError):
            received(sizes, length)


# ── whose port it is ──

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  ...\n"


def table(path: Path, *listeners: tuple[int, int, str]) -> Path:
    path.write_text(
        HEAD
        + "".join(
            f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 0:0 0 {user} 0 {port} 1\n"
            for port, user, state in listeners
        )
    )
    return path


def test_a_port_is_ours_if_nobody_else_listens_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me, other = os.getuid(), os.getuid() + 1
    tables = (
        table(tmp_path / "tcp", (1, me, "0A"), (2, other, "0A"), (3, me, "0A"), (4, me, "01")),
        table(tmp_path / "tcp6", (3, other, "0A"), (1, me, "0A"), (1, other, "01")),
        tmp_path / "missing",
    )
    monkeypatch.setattr(ports, "TABLES", tables)
    assert [ports.is_ours(port) for port in (1, 2, 3, 4, 5)] == [True, False, False, False, False]
