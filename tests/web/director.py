"""A director that says whatever a test wants, at the socket where the view asks it."""

import contextlib
import http.server
import json
import os
import socketserver
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tests.hub.pen import Pen


def said_of_itself(text: str) -> dict[str, Any]:
    """All that the page shows of a director, each of its texts that one."""
    entry = {"time": 1.0, "level": "warn", "message": text, "reason": text}
    status = {
        "type": "director",
        "interfaces": [],
        "name": text,
        "state": "idle",
        "uptime_seconds": 1.0,
        "home_id": "x",
        "pid": os.getpid(),
        "sandbox": None,
        "config": {"type": text},
        "version": "1",
        "current_task": {"id": "x", "started_at": 1.0, "prompt_preview": text},
        "log": [entry],
    }
    task = {
        "id": "x",
        "state": text,
        "title": text,
        "task_id": text,
        "pull": f"javascript:{text}",
        "since": 1,
    }
    trouble = {
        "about": text,
        "verdict": "later",
        "reason": text,
        "hint": text,
        "failures": 1,
        "at": 1.0,
    }
    trouble |= {"wait_seconds": 5.0, "is_given_up": True}
    return {
        "/status": status,
        "/tasks": {"tasks": [task], "problems": [trouble]},
        "/agents": {"agents": [{"name": text}], "last_poll": 1.0},
        "/schedule": {"schedule": [entry_that_says(text)], "problem": None},
    }


def entry_that_says(text: str) -> dict[str, Any]:
    last = {"id": "x", "state": text, "reason": text, "completed_at": 1.0, "task_id": text}
    return {"name": text, "cron": text, "timezone": text, "next_runs": [4e9], "last": last}


class Server(socketserver.ThreadingUnixStreamServer):
    """Who finds no room in the queue is refused at once, and it has room for five by itself."""

    request_queue_size = 100


@contextlib.contextmanager
def director_that_says(
    pen: Pen, name: str, answers: Mapping[str, Any], problem: str = ""
) -> Iterator[None]:
    """Registered with the hub, as this very process."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200 if self.path in answers else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return ""

    path = pen.home.component_socket(os.getpid())
    path.unlink(missing_ok=True)
    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        about = {"name": name, "kind": "director", "url": "http://127.0.0.1:9", "pid": os.getpid()}
        body = {**about, "version": "1", "state": "idle", "problem": problem}
        try:
            pen.client().post("components", body=body)
            yield
        finally:
            server.shutdown()
            thread.join()
            path.unlink()
    pen.client().delete("components", name)
