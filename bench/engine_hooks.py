"""What a hook costs per tool call of the real Claude Code: over HTTP, as we do it, against a
command for each event. Row `h`."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.cli import Claude, program
from tests.engines.fake_anthropic import FakeAnthropic

import bullpen
from bench.hubs import hub_file, hub_home, run
from bench.table import NOISE_SECONDS, Row, Skipped, interleaved, timed
from bullpen.engines.claude.settings import make_settings
from bullpen.hot.hook_line import hook_line
from bullpen.model.role import Role

# Of a pair of events per call: what a command would have to be started for.
PER_CALL = ("PreToolUse", "PostToolUse")


def rows(short: bool) -> Iterator[Row]:
    """Extra time per tool call, HTTP beside a command."""
    try:
        program("claude")
    except pytest.skip.Exception as why:
        raise Skipped(str(why)) from None
    calls, rounds = (1, 1) if short else (40, 3)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place,
        FakeAnthropic() as model,
        hub_home() as (home, env),
    ):
        run(env, "run", "--detach", "--name", "amy", "--", "sleep", "infinity")
        claude = Claude(Path(place), model)
        kept = json.loads((home.private("amy") / "env").read_text())
        claude.env |= {
            "BULLPEN_TOKEN": kept["env"]["BULLPEN_TOKEN"],
            "BULLPEN_DIR": str(home.root),
            "BULLPEN_ACTOR": "amy",
            "BULLPEN_SESSION_DIR": str(home.session("amy")),
        }
        (claude.work / "file").write_text("x\n")
        line = hook_line(sys.executable, str(Path(bullpen.__file__).parents[1]), "amy")
        url = f"http://127.0.0.1:{hub_file(home)['port']}/agents/amy/hooks"
        own = make_settings(Role(name="bench"), url, line, ["true"])
        none, http, command = interleaved(
            rounds,
            lambda: timed(lambda: _turn(claude, {}, calls)),
            lambda: timed(lambda: _turn(claude, own, calls)),
            lambda: timed(lambda: _turn(claude, _as_commands(own), calls)),
        )
    each = [max(seconds - none, NOISE_SECONDS) / calls for seconds in (http, command)]
    yield Row("h", "hooks of a tool call, HTTP, against commands", each[0], each[1], 0.5)


def _as_commands(settings: dict[str, Any]) -> dict[str, Any]:
    start = settings["hooks"]["SessionStart"]
    return {**settings, "hooks": {**settings["hooks"], **dict.fromkeys(PER_CALL, start)}}


def _turn(claude: Claude, settings: dict[str, Any], calls: int) -> None:
    path = claude.root / "settings.json"
    path.write_text(json.dumps(settings))
    call = json.dumps({"file_path": str(claude.work / "file")})
    script = " ; ".join(f"tool Read {call}" for _ in range(calls))
    ran = claude.run_headless(f"[[{script} ; say over]]", "--settings", str(path), seconds=120)
    assert ran.result["result"] == "over", ran
