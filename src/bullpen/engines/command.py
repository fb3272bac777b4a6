"""Any program at all: held, not understood.

In a terminal it has no prompt and no conversation to resume. What it does is unknown unless it says
so itself with `bullpen hook`. A task is its standard input, what it prints is the result, and its
exit code says whether it went well.
"""

from collections.abc import Mapping
from typing import Any

from bullpen.engines import parse
from bullpen.engines.base import Engine, Prepared, Start, fed, role_of, run_file
from bullpen.engines.hooks import observe_hook
from bullpen.engines.lines import Line, ModelText, RunOutcome
from bullpen.engines.parts import PlainConverse, PlainObserve, PlainPrepare
from bullpen.errors import BullpenError, Kind
from bullpen.model.state import EngineReport

PROMPT = "prompt.txt"


class Command(PlainPrepare, PlainObserve, PlainConverse):
    """See the module."""

    name = "command"
    missing = "it reports no state"
    lacks: tuple[str, ...] = ("prompts in a terminal", "conversations", "permissions", "usage")

    def prepare(self, start: Start) -> Prepared:
        if start.role is None:
            return Prepared(start.words)
        if start.prompt and not start.role.deliver:
            raise BullpenError(
                f"role {start.role.name} runs a plain program, which takes no prompt",
                hint=f"deliver: lines in the role {start.role.name} has it typed as a line",
                kind=Kind.UNSUPPORTED,
            )
        line = " ".join(start.prompt.split()).encode() + b"\n" if start.prompt else b""
        return Prepared((*start.role.command, *start.words), first_input=line)

    def prepare_run(self, start: Start) -> Prepared:
        argv = fed(run_file(start, PROMPT), (*role_of(start).command, *start.words))
        return Prepared(argv, run_files={PROMPT: parse.sound(start.prompt)})

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        return (ModelText(line.decode("utf-8", "replace").rstrip("\r"), is_line=True),)

    def outcome_of_exit(self, code: int | None, signal: int | None, stderr_tail: str) -> RunOutcome:
        if code == 0:
            return RunOutcome("", "", "")
        return super().outcome_of_exit(code, signal, stderr_tail)

    def observe(self, hook: Mapping[str, Any], at: float) -> EngineReport | None:
        return observe_hook(hook, at)


COMMAND: Engine = Command()
