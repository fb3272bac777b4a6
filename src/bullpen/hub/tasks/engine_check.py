"""Whether the program of an engine is there and new enough. Called by `tasks/agents` before an
agent takes tasks."""

from collections.abc import Mapping

from bullpen import proc
from bullpen.engines.programs import find_program
from bullpen.engines.versions import PROGRAMS, is_enough, parse_version, written
from bullpen.errors import BullpenError, Kind

VERSION_SECONDS = 60.0


def find_version(engine: str, env: Mapping[str, str]) -> str:
    """Of the engine's program; raises if there is none that serves. Blocks."""
    needed = PROGRAMS.get(engine)
    if needed is None:  # whatever program the role names
        return ""
    program = find_program(env, needed)
    done = proc.run([program, "--version"], env=dict(env), timeout=VERSION_SECONDS)
    version = parse_version(done.text)
    if done.code or version is None:
        raise BullpenError(
            f"{program} --version failed: {_why(done)}",
            hint=needed.install,
            kind=Kind.UNAVAILABLE,
        )
    if not is_enough(version, needed.oldest):
        raise BullpenError(
            f"{engine} {written(version)} is too old, {written(needed.oldest)} is needed",
            hint=needed.install,
            kind=Kind.UNAVAILABLE,
        )
    return written(version)


def _why(done: proc.Done) -> str:
    """What it said, wherever; else how it ended."""
    text = (done.error_text.strip() or done.text.strip())[:200]
    if not done.code:
        return f"no version in {text!r}" if text else "it says nothing"
    return f"{text} (exit code {done.code})" if text else f"exit code {done.code}"
