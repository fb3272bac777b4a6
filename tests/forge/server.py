"""A fake as a server on the loopback: tokens, ETags, pages, rate limits, and git itself.

with served_github(tmp_path, World(...)) as forge:
    forge.url, forge.token("bot")          # a server, and a token of that person
    forge.limits.append(Limit("secondary", 5))      # for the next request
    assert forge.faults == []              # nothing that crossed it was against the description

`served_gitlab` is the same as GitLab.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.forge import official
from tests.forge.gitlab_routes import GitLabRoutes
from tests.forge.quota import Limit, Quota
from tests.forge.routes import Refused, Routes
from tests.forge.world import World

PER_PAGE = 30
HOURLY = 5000


@dataclass
class Forge:
    """The running fake."""

    world: World
    bare: Path
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)  # token -> login
    limits: list[Limit] = field(default_factory=list)
    quota: Quota | None = None  # limits that are in force
    is_down: bool = False
    # Ends of the paths that are answered with that status.
    refused: dict[str, int] = field(default_factory=dict)
    # Ends of the targets of changes: each is made once, and its answer is lost.
    lost: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    asked: list[tuple[str, str, int]] = field(default_factory=list)  # method, target, status
    pushed: list[str] = field(default_factory=list)  # logins of pushes that were let in
    credentials: list[str] = field(default_factory=list)  # all that git was given
    log_askers: list[str] = field(default_factory=list)  # credentials that came for logs elsewhere
    routes: Any = None

    def token(self, login: str) -> str:
        """A token of that person; the same each time."""
        token = f"ghp_{hashlib.sha256(login.encode()).hexdigest()[:36]}"
        self.tokens[token] = login
        return token

    def branches(self) -> dict[str, str]:
        """The branches of its git, with their commits."""
        done = subprocess.run(
            ["git", "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"],
            cwd=self.bare,
            capture_output=True,
            check=True,
            text=True,
        )
        return dict(line.split() for line in done.stdout.splitlines())

    def is_conflicting(self, base: str, branch: str) -> bool:
        words = ["git", "merge-tree", "--write-tree", base, branch]
        done = subprocess.run(words, cwd=self.bare, capture_output=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 1

    @property
    def counted(self) -> int:
        """Requests that count: GitHub does not count a 304."""
        return sum(status != 304 for _, _, status in self.asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    forge: Forge
    routes: Routes | GitLabRoutes
    description: Path

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        if self.forge.is_down:
            self.close_connection = True
            return
        body = self._body()
        if urlsplit(self.path).path.startswith(f"/{self.forge.world.repository}.git/"):
            self._git(body)
        elif self.path.startswith("/elsewhere/"):
            self._log()
        else:
            self._api(body)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _log(self) -> None:
        """The store of logs, which nobody may send a token to."""
        self.forge.log_askers.append(self.headers.get("authorization", ""))
        log = self.forge.world.find_log(int(self.path.rpartition("/")[2])) or ""
        self._answer(200, log.encode(), {"Content-Type": "text/plain"})

    # ── the API ──

    def _api(self, body: bytes) -> None:
        if "authorization" not in self.headers and "private-token" not in self.headers:
            # Not the director's: another test's program looks for whom this port belonged to.
            self._answer(401, b"{}", {"Content-Type": "application/json"})
            return
        status, told, headers = self._told(body)
        answer = b"" if told is None else json.dumps(told).encode()
        if isinstance(told, str):
            answer = told.encode()
        etag = f'W/"{hashlib.sha256(answer).hexdigest()}"'
        if self.command == "GET" and status == 200:
            headers |= {"ETag": etag, "Cache-Control": "private, max-age=60, s-maxage=60"}
            if self.headers.get("if-none-match") == etag:
                status, answer = 304, b""
        forge = self.forge
        forge.asked.append((self.command, self.path, status))
        if forge.quota is not None:
            forge.quota.count(status)
        forge.faults.extend(
            official.find_faults(
                forge.url, self.command, self.path, body, status, answer, self.description
            )
        )
        left = max(0, HOURLY - forge.counted)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "x-ratelimit-limit": str(HOURLY),
            "x-ratelimit-remaining": str(left),
            **headers,
        }
        if self.command != "GET" and any(self.path.endswith(end) for end in forge.lost):
            forge.lost = [end for end in forge.lost if not self.path.endswith(end)]
            self.close_connection = True
            return
        self._answer(status, answer, headers)

    def _told(self, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers."""
        if isinstance(self.routes, GitLabRoutes):
            token, scheme = self.headers.get("private-token", ""), "token"
        else:
            scheme, _, token = self.headers.get("authorization", "").partition(" ")
        login = self.forge.tokens.get(token)
        if login is None or scheme.lower() not in ("token", "bearer"):
            return 401, {"message": "Bad credentials"}, {}
        if self.forge.limits:
            return self._limited(self.forge.limits.pop(0))
        if self.forge.quota and (limit := self.forge.quota.find_limit(self.command)):
            return self._limited(limit)
        path = urlsplit(self.path).path
        for end, status in self.forge.refused.items():
            if path.endswith(end):
                return status, {"message": "no", "documentation_url": ""}, {}
        try:
            told = self.routes.answer(login, self.command, self.path, body)
        except Refused as refused:
            return refused.status, {"message": refused.message, "documentation_url": ""}, {}
        if isinstance(told.body, list) and self.command == "GET":
            page, headers = self._page(told.body)
            return told.status, page, headers
        return told.status, told.body, told.headers

    def _limited(self, limit: Limit) -> tuple[int, Any, dict[str, str]]:
        if limit.kind == "secondary":
            message = "You have exceeded a secondary rate limit."
            return limit.status, {"message": message}, {"Retry-After": str(limit.seconds)}
        headers = {
            "x-ratelimit-remaining": "0",
            "x-ratelimit-reset": str(int(time.time()) + limit.seconds),
        }
        return limit.status, {"message": "API rate limit exceeded for user"}, headers

    def _page(self, items: list[Any]) -> tuple[list[Any], dict[str, str]]:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        size = min(100, int(query.get("per_page", PER_PAGE)))
        page = int(query.get("page", 1))
        last = max(1, -(-len(items) // size))

        def link(number: int, name: str) -> str:
            target = urlencode({**query, "page": number})
            return f'<{self.forge.url}{parts.path}?{target}>; rel="{name}"'

        links = [link(page + 1, "next"), link(last, "last")] if page < last else []
        shown = items[(page - 1) * size : page * size]
        return shown, ({"Link": ", ".join(links)} if links else {})

    # ── git ──

    def _git(self, body: bytes) -> None:
        """`git http-backend`, for who has a token; pushing needs the right to write."""
        parts = urlsplit(self.path)
        is_push = "git-receive-pack" in self.path
        login = self._git_login()
        world = self.forge.world
        if login is None or (is_push and not world.can_write(login)):
            status = 401 if login is None else 403
            challenge = {"WWW-Authenticate": 'Basic realm="GitHub"'} if login is None else {}
            self._answer(status, b"no\n", challenge)
            return
        if parts.path.endswith("/git-receive-pack"):
            self.forge.pushed.append(login)
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.forge.bare),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": parts.path.partition(".git")[2],
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                "REMOTE_USER": login,
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
            },
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(fields.pop("Status", "200").split()[0])
        self._answer(status, answer, fields)

    def _git_login(self) -> str | None:
        scheme, _, encoded = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        token = b64decode(encoded).decode().partition(":")[2]
        self.forge.credentials.append(token)
        return self.forge.tokens.get(token)


def git(at: Path, *words: str, **more: str) -> str:
    """As a person without configuration; `more` goes into its environment."""
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "Ann" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "ann@example.com" for who in ("AUTHOR", "COMMITTER")},
        **more,
    }
    done = subprocess.run(
        ["git", *words], check=False, cwd=at, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def made_bare(root: Path) -> Path:
    """A repository with one commit, as a server has it."""
    bare, seed = root / "remote.git", root / "seed"
    git(root, "init", "-q", "--bare", "-b", "main", str(bare))
    git(bare, "config", "http.receivepack", "true")
    git(root, "init", "-q", "-b", "main", str(seed))
    (seed / "README.md").write_text("# Shop\n")
    git(seed, "add", ".")
    git(seed, "commit", "-q", "-m", "Begin")
    git(seed, "push", "-q", str(bare), "main")
    return bare


@contextlib.contextmanager
def served_github(root: Path, world: World) -> Iterator[Forge]:
    """See the module."""
    with _served(root, world, Routes, official.FILE) as forge:
        yield forge


@contextlib.contextmanager
def served_gitlab(root: Path, world: World) -> Iterator[Forge]:
    """See the module."""
    with _served(root, world, GitLabRoutes, official.GITLAB_FILE) as forge:
        yield forge


@contextlib.contextmanager
def _served(
    root: Path, world: World, routes: type[Routes] | type[GitLabRoutes], description: Path
) -> Iterator[Forge]:
    forge = Forge(world, made_bare(root))
    handler: Any = type("Handler", (_Handler,), {"forge": forge, "description": description})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        forge.url = f"http://127.0.0.1:{server.server_port}"
        handler.routes = forge.routes = routes(world, forge.url, forge.branches)
        forge.routes.is_conflicting = forge.is_conflicting
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()
