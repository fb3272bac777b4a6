"""A view without its process: all its layers, asked in memory. Nobody's hub answers it, unless a
test starts one in its home."""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bullpen.client import AsyncHub
from bullpen.home import marker
from bullpen.home.paths import Home, make_directories
from bullpen.web.config import WebConfig
from bullpen.web.discovered import Discovered
from bullpen.web.ended import EndedSessions
from bullpen.web.guard import WebGuard
from bullpen.web.login import Login
from bullpen.web.routes import ViewRoutes
from bullpen.web.session import Session, cookie_name, sign
from bullpen.web.token import CurrentToken, ensure_token
from bullpen.web.tries import Tries
from bullpen.web.view import View

HOST = "localhost:8443"
ORIGIN = f"https://{HOST}"


class TimelessTries(Tries):
    """For which no time passes: a busy machine takes longer between two tries than who was wrong
    has to wait."""

    def wait_seconds(self, address: str, now: float) -> float:
        return super().wait_seconds(address, 0.0)

    def failed(self, address: str, now: float) -> None:
        super().failed(address, 0.0)


@dataclass
class InsideView:
    """One view, on a loop of its own."""

    home: Home
    token: str
    port: int = 8443
    address: str = "192.0.2.7"

    def __post_init__(self) -> None:
        self.tries = TimelessTries()
        self._runner = asyncio.Runner()
        self.hub = AsyncHub(self.home, start=False)
        self.layers = self._runner.run(self._made())

    def close(self) -> None:
        self._runner.run(self.hub.close())
        self._runner.close()

    @property
    def cookie(self) -> str:
        """Of somebody who has just logged in as Ann."""
        ann = Session("Ann", secrets.token_hex(8))
        return f"{cookie_name(self.port)}={sign(ann, self.token, time.time())}"

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        logged_in: bool = True,
    ) -> httpx.Response:
        """As a browser does whose page is this view's."""
        given = {"host": HOST, "origin": ORIGIN, "sec-fetch-site": "same-origin"}
        given |= {"cookie": self.cookie} if logged_in else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            given["content-type"] = "application/json"
        given |= headers or {}
        headers = {name: value for name, value in given.items() if value}
        return self._runner.run(self._ask(method, target, body, headers))

    async def _ask(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.layers, client=(self.address, 50000))
        url = httpx.URL(f"{ORIGIN}{target}")
        request = httpx.Request(method, url, headers=headers, content=body)
        async with asyncio.timeout(60):
            answer = await transport.handle_async_request(request)
            await answer.aread()
            return answer

    def ask_beside(self, slow: int, method: str, target: str, address: str) -> httpx.Response:
        """A request from that address, without a log-in, while so many forms for log-in from ours
        do not come to their end."""
        return self._runner.run(self._ask_beside(slow, method, target, address))

    async def _ask_beside(
        self, slow: int, method: str, target: str, address: str
    ) -> httpx.Response:
        begun = 0

        async def receive() -> dict[str, Any]:
            nonlocal begun
            begun += 1
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            pass

        form = {
            "type": "http",
            "method": "POST",
            "path": "/login",
            "raw_path": b"/login",
            "query_string": b"",
            "client": (self.address, 50000),
            "scheme": "https",
            "server": ("localhost", 8443),
            "http_version": "1.1",
            "root_path": "",
            "headers": [
                (name.encode(), value.encode())
                for name, value in {"host": HOST, "origin": ORIGIN, "content-length": "9"}.items()
            ],
        }
        forms = [asyncio.create_task(self.layers(dict(form), receive, send)) for _ in range(slow)]
        async with asyncio.timeout(60):
            while begun < slow:
                await asyncio.sleep(0)
        own, self.address = self.address, address
        try:
            return await self._ask(method, target, None, {"host": HOST})
        finally:
            self.address = own
            for task in forms:
                task.cancel()
            await asyncio.gather(*forms, return_exceptions=True)

    def upgrade(self, target: str, headers: Mapping[str, str]) -> int:
        """The status that a WebSocket is answered with; 101 if it is accepted."""
        return self._runner.run(self._upgrade(target, headers))

    async def _upgrade(self, target: str, headers: Mapping[str, str]) -> int:
        path, _, query = target.partition("?")
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v],
            "client": (self.address, 50000),
            "server": ("localhost", 8443),
            "scheme": "wss",
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if any(message["type"] == "websocket.accept" for message in sent):
                return {"type": "websocket.disconnect", "code": 1001}
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(60):
            await self.layers(scope, receive, send)
        first = sent[0]
        return 101 if first["type"] == "websocket.accept" else int(first["status"])

    async def _made(self) -> WebGuard:
        config = WebConfig(port=self.port)
        view = View(self.home, "web", config)
        token = CurrentToken(self.home)
        ended = EndedSessions(self.home)
        login = Login(self.port, token, self.tries, ended)
        discovered = Discovered(self.hub, config.discovery, self.home.id)
        app = ViewRoutes(view, self.hub, login, discovered).app()
        names = frozenset({"localhost", "shop.local"})
        return WebGuard(app, "web", self.port, names, token, self.tries, ended)


@contextlib.contextmanager
def made_view(root: Path) -> Iterator[InsideView]:
    """In a home of its own."""
    root.mkdir()
    root = root.resolve()
    make_directories(root)
    marker.create(root)
    (root / "web").mkdir(mode=0o700)
    home = Home(root)
    with contextlib.closing(InsideView(home, ensure_token(home))) as view:
        yield view
