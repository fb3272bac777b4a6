"""A server of tools as the hub is one to its agents."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

TOKEN = "the-token-of-this-agent"


class Tools:
    """A server of tools with one of them, `whoami`; it wants the token."""

    def __init__(self) -> None:
        self.called: list[dict[str, Any]] = []
        self.refused = 0
        tools = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Tests read `called`."""

            def do_GET(self) -> None:
                self._answer(405, b"")

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.headers["authorization"] != f"Bearer {TOKEN}":
                    tools.refused += 1
                    return self._answer(401, b"")
                result = tools.answer(asked["method"], asked.get("params") or {})
                if "id" not in asked:
                    return self._answer(202, b"")
                body = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
                return self._answer(200, json.dumps(body).encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/mcp"

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fleet", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object", "properties": {"note": {"type": "string"}}}
                tool = {"name": "whoami", "description": "who you are", "inputSchema": schema}
                # Without this Codex asks a person first.
                return {"tools": [{**tool, "annotations": {"readOnlyHint": True}}]}
            case "tools/call":
                self.called.append(params)
                return {"content": [{"type": "text", "text": "you are amy the heron"}]}
            case _:
                return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
