"""A server of tools on loopback, as the CLIs reach one: MCP over HTTP, answers as JSON.

It has one tool, `whoami`, and remembers with which token each call came.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

TOOL = {
    "name": "whoami",
    "description": "Says who asks",
    "inputSchema": {"type": "object", "properties": {}},
}


class FakeTools:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # the tool, and the token that came with it
        self.seen: list[str] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                asked = json.loads(self.rfile.read(length))
                fake.seen.append(asked.get("method", ""))
                token = self.headers.get("authorization", "").removeprefix("Bearer ")
                answer = fake._answer(asked, token)
                body = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(202 if answer is None else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.send_response(405)
                self.send_header("content-length", "0")
                self.end_headers()

            do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: dict[str, Any], token: str) -> dict[str, Any] | None:
        if "id" not in asked:
            return None
        result: dict[str, Any] = {}
        match asked["method"]:
            case "initialize":
                result = {
                    "protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fake", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                self.calls.append((asked["params"]["name"], token))
                result = {"content": [{"type": "text", "text": "you are the heron"}]}
        return {"jsonrpc": "2.0", "id": asked["id"], "result": result}
