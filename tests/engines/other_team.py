"""A home whose agents are Gemini CLI or Codex: the real ones, against the fakes of their models.

    with made_other_team(tmp_path, "codex") as team:
        amy = team.run(prompt="[[say hi]]")
        amy.wait_said("hi")

Nothing that quiets them or answers their questions at a start is set here: that is Bullpen's.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from bullpen.engines import Start, get_engine
from bullpen.model.role import Role
from tests.engines.cli import GEMINI_MODEL, Codex, Gemini, Home, Ran
from tests.engines.fake_gemini import FakeGemini
from tests.engines.fake_openai import FakeOpenAI
from tests.engines.team import Agent, Team
from tests.hub.pen import Pen, made_pen
from tests.waiting import quiet_for, wait_until

TOKEN = "the-token-of-this-agent"


class TitledOpenAI(FakeOpenAI):
    """In a terminal, Codex also asks for a title of each conversation, with the prompt in it."""

    def side(self, body: Any) -> str | None:
        last = json.dumps(body["input"][-1])
        return json.dumps({"title": "a title"}) if "task title" in last else None


class OtherAgent(Agent):
    """One whose program is not Claude Code."""

    @property
    def engine(self) -> str:
        return self.team.engine

    def wait_said(self, text: str) -> None:
        mark = {"codex": "•", "gemini": "✦"}[self.engine]
        self.wait_screen(f"{mark} {text}")
        self.wait("idle")

    def wait_ready(self) -> None:
        self.wait_screen({"codex": "Ask Codex", "gemini": "Type your message"}[self.engine])

    def submit(self, text: str) -> None:
        self.wait_ready()
        if self.engine == "codex":
            codex = get_engine("codex")
            quiet_for(2 * codex.typing_seconds)  # it ends a turn a while after it has said so
            return self.type(b"".join(codex.typed(text)).decode())
        before = self.hooks().count("BeforeAgent")
        return self.enter(text, lambda: self.hooks().count("BeforeAgent") > before)

    def enter(self, text: str, is_taken: Callable[[], bool], hint: str = "") -> None:
        """Gemini loses what is typed in the moment after its start, and ignores an Enter that
        comes with the text: so it is pasted until it shows, and Enter pressed until it is taken.
        It knows its own commands only after a while, and says so with a hint."""
        for _ in range(10):
            self.type(f"\x1b[200~{text}\x1b[201~")
            with contextlib.suppress(AssertionError):
                wait_until(lambda: text in self.screen(), 3)
                break
        self.wait_screen(hint)
        for _ in range(10):
            self.type("\r")
            with contextlib.suppress(AssertionError):
                return wait_until(is_taken, 2)
        raise AssertionError(f"not taken\n{self.screen()}")


class OtherTeam(Team):
    """As `Team`; `claude` is what its agents are, whatever that is."""

    def __init__(self, pen: Pen, program: Gemini | Codex, engine: str) -> None:
        self.pen = pen
        self.claude = program
        self.engine = engine
        pen.env |= program.env | {
            "HOME": pen.env["HOME"],
            "PATH": os.environ["PATH"],
            f"BULLPEN_{engine.upper()}_BIN": str(program.program),
        }
        self.role("worker")

    def role(self, name: str, **fields: Any) -> None:
        given = {"agent_type": self.engine}
        if self.engine == "gemini":
            given["model"] = GEMINI_MODEL
        super().role(name, **{**given, **fields})

    def run(self, role: str = "worker", name: str = "amy", **fields: Any) -> OtherAgent:
        super().run(role, name, **fields)
        return OtherAgent(self, name)


def made_program(tmp_path: Path, engine: str, model: Any) -> Gemini | Codex:
    """The program with a configuration that holds no more than where the model is."""
    if engine == "gemini":
        gemini = Gemini(tmp_path, model)
        (gemini.config / "settings.json").unlink()
        gemini.env["GEMINI_CLI_HOME"] = str(gemini.home)
        return gemini
    codex = Codex(tmp_path, model)
    whole = (codex.config / "config.toml").read_text()
    provider = whole[whole.index("[model_providers") :]
    (codex.config / "config.toml").write_text(f'model_provider = "fake"\n{provider}')
    # Nothing else keeps 0.166.0 from asking githubusercontent.com for an announcement.
    codex.env["HTTPS_PROXY"] = "http://127.0.0.1:9"
    return codex


def made_model(engine: str) -> FakeGemini | TitledOpenAI:
    return FakeGemini() if engine == "gemini" else TitledOpenAI()


@contextlib.contextmanager
def made_other_team(tmp_path: Path, engine: str) -> Iterator[OtherTeam]:
    with made_model(engine) as model:
        program = made_program(tmp_path, engine, model)
        with made_pen() as pen:
            yield OtherTeam(pen, program, engine)


class Headless:
    """Runs of one agent without a hub: what the engine prepares, carried out."""

    def __init__(self, tmp_path: Path, engine: str, model: Any) -> None:
        self.engine = get_engine(engine)
        self.program: Home = made_program(tmp_path, engine, model)
        self.session = tmp_path / "session"
        self.session.mkdir()
        (self.session / "run").mkdir()

    def start(self, prompt: str, conversation: str = "", **fields: Any) -> Start:
        """With these fields of the role."""
        if self.engine.name == "gemini":
            fields.setdefault("model", GEMINI_MODEL)
        variable = f"BULLPEN_{self.engine.name.upper()}_BIN"
        return Start(
            role=Role(name="worker", agent_type=self.engine.name, **fields),
            words=(),
            prompt=prompt,
            agent="amy",
            cwd=str(self.program.work),
            session=self.session,
            run=self.session / "run",
            person=self.program.home,
            env={
                **self.program.env,
                variable: str(self.program.program),
                "BULLPEN_TOKEN": TOKEN,
            },
            url="http://127.0.0.1:9",
            hook=("true",),
            ask=("true",),
            conversation=conversation,
        )

    def run(self, start: Start) -> tuple[Ran, list[Any]]:
        """Run it; how it ended, and what its lines say."""
        prepared = self.engine.prepare_run(start)
        for name, text in prepared.files.items():
            (self.session / name).write_text(text)
        for name, text in prepared.run_files.items():
            (start.run / name).write_text(text)
        self.engine.make_ready(start, prepared)
        env = {**start.env, **prepared.env, **start.role.env}
        ran = self.program.run(list(prepared.argv), "", 60, env)
        lines = [json.dumps(line).encode() for line in ran.lines]
        return ran, [said for line in lines for said in self.engine.read_line(line)]


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
