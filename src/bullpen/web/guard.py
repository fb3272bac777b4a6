"""Who gets in at the view's port: the Host, the origin, the log-in. An ASGI layer.

Every request passes here before any route. Without a log-in there is nothing but the log-in page
and its form (`web/login`). Writes and WebSockets have to come from a page of this very view.
"""

import time
from weakref import WeakValueDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.component.answers import RefusedError
from bullpen.component.budget import RequestBudget
from bullpen.component.guard import OWNER_BYTES, OWNER_REQUESTS, bearer, guarded
from bullpen.component.network import network_of
from bullpen.web.ended import EndedSessions
from bullpen.web.machine import ip_like
from bullpen.web.session import Session, find_cookies, verify
from bullpen.web.token import CurrentToken
from bullpen.web.tries import Tries

SAFE = ("GET", "HEAD")
NOBODY_REQUESTS = 8  # of one network at once
NOBODY_BYTES = 1 << 16  # a log-in form
LOGIN = "/login"
API = "/api/"
# Below these nobody navigates: what is fetched there is fetched by the page.
NO_PAGES = (API, "/assets/", "/status", LOGIN, "/logout")


class WebGuard:
    """The layer. `names` are the hosts that it is reached by, besides plain addresses."""

    def __init__(
        self,
        app: ASGIApp,
        name: str,
        port: int,
        names: frozenset[str],
        token: CurrentToken,
        tries: Tries,
        ended: EndedSessions,
    ) -> None:
        self.app = app
        self._name = name
        self._port = port
        self._names = names
        self._token = token
        self._tries = tries
        self._ended = ended
        self._known = RequestBudget(OWNER_REQUESTS, OWNER_BYTES)
        # One for each network, while it is used: no stranger takes the log-in from the others.
        self._nobody: WeakValueDictionary[str, RequestBudget] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})

        def admit(headers: dict[bytes, str]) -> RequestBudget:
            self._check_host(headers)
            _check_origin(scope, headers)
            session, is_by_token = self._find_session(scope, headers)
            if session is None and not _is_open(scope):
                raise RefusedError(401, "unauthorized", "log in first")
            if not is_by_token:
                _require_origin(scope, headers)
            scope["state"]["session"] = session
            return self._known if session else self._budget_of_nobody(client_of(scope))

        await guarded(self.app, scope, receive, send, admit, self._name)

    def _budget_of_nobody(self, address: str) -> RequestBudget:
        return self._nobody.setdefault(
            network_of(address), RequestBudget(NOBODY_REQUESTS, NOBODY_BYTES)
        )

    def _check_host(self, headers: dict[bytes, str]) -> None:
        """A foreign site can have its own name point here, but no address or name of ours."""
        host = headers.get(b"host", "")
        name = host_of(host)
        if not name or not (ip_like(name) or name in self._names):
            raise RefusedError(
                403, "forbidden", f"not served under the name {host[:80]!r} · hosts in config.yaml"
            )

    def _find_session(self, scope: Scope, headers: dict[bytes, str]) -> tuple[Session | None, bool]:
        """Who asks, and whether they showed the token: a cookie is sent by browsers themselves."""
        given = headers.get(b"authorization")
        if given is not None:
            return self._by_bearer(scope, bearer(given) or ""), True
        for cookie in find_cookies(headers.get(b"cookie", ""), self._port):
            session = verify(cookie, self._token.value, time.time())
            if session is not None and not self._ended.has(session):
                return session, False
        return None, False

    def _by_bearer(self, scope: Scope, given: str) -> Session:
        address = client_of(scope)
        refuse_hasty(self._tries, address)
        if not self._token.matches(given):
            self._tries.failed(address, time.monotonic())
            raise RefusedError(401, "unauthorized", "no such token")
        self._tries.succeeded(address)
        return Session()


def _check_origin(scope: Scope, headers: dict[bytes, str]) -> None:
    """What a page of another site has asked for is refused. A link there may lead to the page,
    and to nothing else: as its pictures, wrong tokens would make the visitor's address wait."""
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", "none")
    is_followed = headers.get(b"sec-fetch-dest", "document") == "document"
    is_link = _is_safe(scope) and is_page(scope["path"]) and is_followed
    is_foreign = origin is not None and origin != f"https://{headers.get(b'host')}"
    if is_foreign or (site not in ("none", "same-origin") and not is_link):
        raise RefusedError(403, "forbidden", "requests of other sites are refused")


def _require_origin(scope: Scope, headers: dict[bytes, str]) -> None:
    """Browsers say it with every write and every WebSocket."""
    if b"origin" not in headers and not _is_safe(scope):
        raise RefusedError(403, "forbidden", "the Origin is missing: is this a browser?")


def _is_safe(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] in SAFE


def refuse_hasty(tries: Tries, address: str) -> None:
    """Whoever tried too many tokens waits: until then not even a right one counts."""
    wait = tries.wait_seconds(address, time.monotonic())
    if wait > 0:
        refused = RefusedError(429, "rate_limited", "too many wrong tokens: wait a little")
        refused.headers = {"Retry-After": str(int(wait) + 1)}
        raise refused


def client_of(scope: Scope) -> str:
    """The address that the request came from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def host_of(host: str) -> str:
    """A Host without its port; empty if it is none."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        is_whole = bracket and (not rest or (rest[0] == ":" and rest[1:].isdecimal()))
        return name.lower() if is_whole else ""
    name, colon, port = host.partition(":")
    return name.lower() if not colon or port.isdecimal() else ""


def is_page(path: str) -> bool:
    """Whether it is a place in the page, and not the API or a file (`/favicon.svg`; agents may
    have a dot in their names, too)."""
    is_file = path.count("/") == 1 and "." in path
    return not path.startswith(NO_PAGES) and not is_file


def _is_open(scope: Scope) -> bool:
    """What may be asked without a log-in; `web/login` answers it."""
    if scope["type"] != "http":
        return False
    if _is_safe(scope):
        return is_page(scope["path"])
    return (scope["method"], scope["path"]) == ("POST", LOGIN)
