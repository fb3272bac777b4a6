"""Somebody who answers at a port as if it were a component of a home; any program can."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

from bullpen.home.paths import Home
from tests.waiting import wait_until


@contextlib.contextmanager
def impostor(home: Home, port: int, type: str, name: str) -> Iterator[None]:
    """Answers at that port as if it were that component of this home."""
    status = {"type": type, "name": name, "state": "working", "version": "6.6.6"}
    status |= {"interfaces": (), "uptime_seconds": 1, "home_id": home.id}
    body = json.dumps(status).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    servers: list[HTTPServer] = []

    def listens() -> bool:  # a process that was killed may still be leaving
        with contextlib.suppress(OSError):
            servers.append(HTTPServer(("127.0.0.1", port), Answer))
        return bool(servers)

    wait_until(listens)
    with servers[0] as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
