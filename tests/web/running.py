"""A view that runs: a process of its own, asked over TLS as browsers do, against a real hub."""

import contextlib
import http.client
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from bullpen.component import ask
from bullpen.web.session import Session, cookie_name, sign
from bullpen.web.token import ensure_token
from tests.hub.http.http import Answer
from tests.hub.pen import Pen
from tests.waiting import wait_until

WAIT = 60.0


@dataclass
class RunningView:
    """One process."""

    pen: Pen
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def token(self) -> str:
        return ensure_token(self.pen.home)

    @property
    def origin(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        """Of a client that trusts this home's CA and nobody else."""
        return ssl.create_default_context(cafile=self.pen.root / "web" / "ca.pem")

    def cookie(self, name: str = "Ann") -> str:
        session = Session(name, secrets.token_hex(8))
        return f"{cookie_name(self.port)}={sign(session, self.token, time.time())}"

    def headers(self) -> dict[str, str]:
        return {"Cookie": self.cookie(), "Origin": self.origin}

    @contextlib.contextmanager
    def opened(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer while it comes."""
        given = {**self.headers(), **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            given["Content-Type"] = "application/json"
        line = http.client.HTTPSConnection("localhost", self.port, timeout=WAIT, context=self.tls)
        with contextlib.closing(line):
            line.request(method, target, data, {k: v for k, v in given.items() if v})
            yield line.getresponse()

    def ask(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        with self.opened(method, target, body, headers) as answer:
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())

    def terminal(self, agent: str, **size: int) -> ClientConnection:
        query = "".join(f"&{name}={value}" for name, value in size.items())
        context = self.tls
        # This client reads in a thread beside the one that writes, which OpenSSL does not allow. By
        # TLS 1.3 there is something to read at once (tickets): 1 of 500 requests was lost.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return connect(
            f"wss://localhost:{self.port}/api/terminal?agent={agent}{query}",
            ssl=context,
            additional_headers={"Cookie": self.cookie()},
            origin=self.origin,  # type: ignore[arg-type]
            compression=None,
            open_timeout=WAIT,
            max_size=None,
            proxy=None,
        )

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.errors
        try:
            socket = self.pen.home.component_socket(self.process.pid)
            return ask.get_status(socket).state == "idle"
        except ask.NoAnswerError:
            return False

    @property
    def errors(self) -> str:
        return (self.pen.root.parent / "view-errors").read_text()

    def log(self) -> str:
        return (self.pen.root / "logs" / "web.log").read_text()

    def memory_kb(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT)


@contextlib.contextmanager
def running_view(pen: Pen, **config: Any) -> Iterator[RunningView]:
    """One that serves, in a home whose hub runs; ended at the end."""
    pen.start()
    port = pen.free_port()
    directory = pen.root / "web"
    directory.mkdir(mode=0o700, exist_ok=True)
    fields = {"port": port, "bind": "127.0.0.1", **config}
    (directory / "config.yaml").write_text(json.dumps(fields))
    env = {**pen.env, "BULLPEN_DIR": str(pen.root)}
    with (pen.root.parent / "view-errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bullpen.web.view", str(pen.root)],
            cwd=pen.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    view = RunningView(pen, port, process)
    try:
        wait_until(view.is_ready)
        yield view
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()
