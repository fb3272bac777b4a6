"""The programs that a home's agents are: the real ones against the fakes of their models, or the
stand-in.

Nothing that quiets them or answers their questions at a start is set here: that is Bullpen's.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.engines.cli import Claude, Codex, Gemini, StandIn
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.fake_gemini import FakeGemini
from tests.engines.fake_openai import FakeOpenAI
from tests.hub.pen import Pen

Program = Claude | Codex | Gemini


class TitledOpenAI(FakeOpenAI):
    """In a terminal, Codex also asks for a title of each conversation, with the prompt in it, and
    what that links to behind it."""

    def side(self, body: Any) -> str | None:
        last = json.dumps(body["input"][-2:])
        return json.dumps({"title": "a title"}) if "task title" in last else None


def bare_claude(claude: Claude) -> Claude:
    """Without the files that make its start free of dialogs."""
    (claude.config / ".claude.json").unlink()
    (claude.config / "settings.json").unlink()
    return claude


def bare_gemini(root: Path, model: Any) -> Gemini:
    gemini = Gemini(root, model)
    (gemini.config / "settings.json").unlink()
    gemini.env["GEMINI_CLI_HOME"] = str(gemini.home)
    return gemini


def bare_codex(root: Path, model: Any) -> Codex:
    """With a configuration that holds no more than where the model is."""
    codex = Codex(root, model)
    whole = (codex.config / "config.toml").read_text()
    provider = whole[whole.index("[model_providers") :]
    (codex.config / "config.toml").write_text(f'model_provider = "fake"\n{provider}')
    # Nothing else keeps 0.166.0 from asking githubusercontent.com for an announcement.
    codex.env["HTTPS_PROXY"] = "http://127.0.0.1:9"
    return codex


@contextlib.contextmanager
def made_claude(root: Path, kind: str) -> Iterator[Claude]:
    """Claude Code, the "real" one or the "standin"."""
    if kind == "standin":
        yield bare_claude(StandIn(root))
        return
    assert kind == "real", kind
    with FakeAnthropic() as model:
        yield bare_claude(Claude(root, model))


@contextlib.contextmanager
def made_program(root: Path, kind: str) -> Iterator[Program]:
    """As `made_claude`; or "gemini" or "codex", which are real."""
    with contextlib.ExitStack() as stack:
        if kind == "gemini":
            yield bare_gemini(root, stack.enter_context(FakeGemini()))
        elif kind == "codex":
            yield bare_codex(root, stack.enter_context(TitledOpenAI()))
        else:
            yield stack.enter_context(made_claude(root, kind))


def install(pen: Pen, engine: str, program: Program) -> None:
    """Agents of the home that are of this engine run this program."""
    pen.env |= program.env | {
        "HOME": pen.env["HOME"],
        "PATH": os.environ["PATH"],
        f"BULLPEN_{engine.upper()}_BIN": str(program.program),
    }
