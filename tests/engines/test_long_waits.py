"""M0, M4: a call that waits for hours is cut by no engine: what each is given, and that it does so.

By itself Claude Code moves a call of a terminal to the background after two minutes, and Codex ends
one after five, whatever progress is told.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import Prepared, get_engine
from bullpen.hub.mcp.family_tools import MOST_WAIT_SECONDS
from tests.engines.starts import sandboxed, start_of
from tests.engines.story import call
from tests.engines.team import made_team

pytestmark = pytest.mark.slow


def claude_reads(prepared: Prepared, env: Mapping[str, str]) -> float:
    path = prepared.argv[prepared.argv.index("--mcp-config") + 1]
    server = json.loads(Path(path).read_text())["mcpServers"]["bullpen"]
    return float(server["timeout"]) / 1000


def gemini_reads(prepared: Prepared, env: Mapping[str, str]) -> float:
    path = Path(env["GEMINI_CLI_HOME"]) / ".gemini" / "settings.json"
    return float(json.loads(path.read_text())["mcpServers"]["bullpen"]["timeout"]) / 1000


def codex_reads(prepared: Prepared, env: Mapping[str, str]) -> float:
    config = tomllib.loads((Path(env["CODEX_HOME"]) / "config.toml").read_text())
    return float(config["mcp_servers"]["bullpen"]["tool_timeout_sec"])


READERS = {"claude": claude_reads, "gemini": gemini_reads, "codex": codex_reads}


@pytest.mark.parametrize("way", ["prepare", "prepare_run"])
@pytest.mark.parametrize("is_boxed", [False, True], ids=["plain", "sandboxed"])
@pytest.mark.parametrize("engine", READERS)
def test_m0_a_program_is_told_to_let_a_call_last_as_long_as_a_wait_may(
    tmp_path: Path, engine: str, is_boxed: bool, way: str
) -> None:
    start = replace(start_of(tmp_path, engine), relay=("python", "relay"))
    start = sandboxed(start) if is_boxed else start
    prepared = getattr(get_engine(engine), way)(start)
    for directory, files in ((start.session, prepared.files), (start.run, prepared.run_files)):
        for name, text in files.items():
            (directory / name).write_text(text)
    get_engine(engine).make_ready(start, prepared)
    env = {**start.env, **prepared.env}
    assert READERS[engine](prepared, env) >= MOST_WAIT_SECONDS
    if (engine, way) == ("claude", "prepare"):
        assert env["CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"] == "0"


@pytest.mark.parametrize(
    ("engine", "kind", "seconds"), [("claude", "real", 140), ("codex", "codex", 320)]
)
@pytest.mark.storm
def test_m4_a_wait_lasts_longer_than_its_program_would_let_it(
    tmp_path: Path, engine: str, kind: str, seconds: int
) -> None:
    with made_team(tmp_path, kind) as team:
        team.role("worker", permissions={"allow": ["mcp__bullpen"]})
        amy = team.run(name="amy")
        waiting = call("wait_for_event", engine, timeout_seconds=seconds)
        amy.submit(f"[[{waiting} ; say that was long]]")
        amy.wait("working (waiting for children)")
        amy.wait("idle", seconds=seconds + 120)
        results: list[Any] = [turn.body for turn in team.claude.model.turns]
        text = json.dumps(results).replace("\\", "")
        assert '"kind": "timeout"' in text
        assert "moved to the background" not in text
        amy.wait_said("that was long")
