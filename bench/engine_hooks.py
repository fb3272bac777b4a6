"""What a hook costs per tool call of the real Claude Code: over HTTP, as we do it, against a
command for each event. Row `h`; nothing without the program (scripts/engines)."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.engines.cli import PROGRAMS, Claude
from tests.engines.fake_anthropic import FakeAnthropic

import bullpen
from bench.hub import hub_home, run
from bench.table import Row, interleaved, timed
from bullpen.client.hook_line import hook_line
from bullpen.engines.claude.settings import make_settings
from bullpen.model.role import Role

CALLS = 40
ROUNDS = 5
# Of a pair of events per call: what a command would have to be started for.
PER_CALL = ("PreToolUse", "PostToolUse")


def rows() -> list[Row]:
    """Extra time per tool call, HTTP beside a command."""
    if not (PROGRAMS / "claude").exists():
        print("h    skipped: run scripts/engines")
        return []
    with (
        tempfile.TemporaryDirectory(prefix="bench") as place,
        FakeAnthropic() as model,
        hub_home() as (home, env),
    ):
        run(env, "run", "--detach", "--name", "amy", "--", "sleep", "infinity")
        claude = Claude(Path(place), model)
        token = json.loads((home / "sessions/amy/env").read_text())["env"]["BULLPEN_TOKEN"]
        claude.env |= {
            "BULLPEN_TOKEN": token,
            "BULLPEN_DIR": str(home),
            "BULLPEN_ACTOR": "amy",
            "BULLPEN_SESSION_DIR": str(home / "sessions/amy"),
        }
        (claude.work / "file").write_text("x\n")
        port = json.loads((home / "hub.json").read_text())["port"]
        line = hook_line(sys.executable, str(Path(bullpen.__file__).parents[1]), "amy")
        url = f"http://127.0.0.1:{port}/agents/amy/hooks"
        own = make_settings(Role(name="bench"), url, line, ["true"])
        none, http, command = interleaved(
            ROUNDS,
            lambda: timed(lambda: _turn(claude, {})),
            lambda: timed(lambda: _turn(claude, own)),
            lambda: timed(lambda: _turn(claude, _as_commands(own))),
        )
    each = [max(0.0, seconds - none) / CALLS for seconds in (http, command)]
    return [Row("h", "hooks of a tool call, HTTP beside commands", each[0], each[1], 0.5)]


def _as_commands(settings: dict[str, Any]) -> dict[str, Any]:
    start = settings["hooks"]["SessionStart"]
    return {**settings, "hooks": {**settings["hooks"], **dict.fromkeys(PER_CALL, start)}}


def _turn(claude: Claude, settings: dict[str, Any]) -> None:
    path = claude.root / "settings.json"
    path.write_text(json.dumps(settings))
    call = json.dumps({"file_path": str(claude.work / "file")})
    script = " ; ".join(f"tool Read {call}" for _ in range(CALLS))
    ran = claude.run_headless(f"[[{script} ; say over]]", "--settings", str(path), seconds=120)
    assert ran.result["result"] == "over", ran
