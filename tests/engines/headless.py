"""Runs of Gemini CLI and Codex without a hub and without a terminal."""

import json
from pathlib import Path
from typing import Any

from bullpen.engines import Start, get_engine
from bullpen.model.role import Role
from tests.engines.cli import GEMINI_MODEL, SECONDS, Home, Ran
from tests.engines.programs import bare_codex, bare_gemini
from tests.engines.tools import TOKEN


class Headless:
    """Runs of one agent without a hub: what the engine prepares, carried out."""

    def __init__(self, tmp_path: Path, engine: str, model: Any) -> None:
        self.engine = get_engine(engine)
        self.model = model
        make = {"gemini": bare_gemini, "codex": bare_codex}[engine]
        self.program: Home = make(tmp_path, model)
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
        ran = self.program.run(list(prepared.argv), "", SECONDS, env)
        lines = [json.dumps(line).encode() for line in ran.lines]
        return ran, [said for line in lines for said in self.engine.read_line(line)]
