"""What an engine is asked for, where everything that a start needs is there; nothing runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bullpen.engines import Start
from bullpen.model.agent import Agent
from bullpen.model.role import Role

KEYS = {
    "BULLPEN_TOKEN": "bullpen-token-of-amy",
    "ANTHROPIC_API_KEY": "sk-ant-" + "1" * 30,
    "GEMINI_API_KEY": "gemini-" + "2" * 30,
    "CODEX_API_KEY": "sk-codex-" + "3" * 30,
}


def start_of(place: Path, engine: str, **fields: Any) -> Start:
    """A start of an agent of that engine; `fields` are those of its role."""
    programs = place / "bin"
    for directory in (programs, place / "session/run", place / "work", place / "person"):
        directory.mkdir(parents=True, exist_ok=True)
    program = programs / engine
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return Start(
        role=Role(name="worker", agent_type=engine, **fields),
        words=(),
        agent="amy",
        cwd=str(place / "work"),
        session=place / "session",
        run=place / "session/run",
        home=place / "home",
        person=place / "person",
        env={"PATH": str(programs), **KEYS},
        url="http://127.0.0.1:7",
        hook=("hand-over",),
        ask=("ask",),
    )


def sandboxed(start: Start) -> Start:
    """The same inside walls."""
    return replace(start, is_sandboxed=True)


def agent_of(transcripts: Path) -> Agent:
    """An agent whose program writes there."""
    return Agent(
        name="amy", run="r", cwd="/", command=("x",), created="now", state_files=str(transcripts)
    )
