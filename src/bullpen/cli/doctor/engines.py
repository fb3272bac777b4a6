"""The programs behind agents: whether they start, what they log in with, what they cannot do."""

import os
from pathlib import Path

from bullpen import proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.paths import Home, person_home

ANSWER_SECONDS = 60.0  # programs in Node, from a cold disk
LOG_IN = {
    "claude": "bullpen auth claude · or: bullpen auth set anthropic-api-key",
    "gemini": "bullpen auth set gemini-api-key",
    "codex": "bullpen auth set openai-api-key",
}


def check_engine(name: str, home: Home | None) -> Check:
    """The program of an engine: its version, what it would log in with, what it cannot do."""
    from bullpen.engines import ENGINES

    version = _engine_version(name)
    if isinstance(version, Check):
        return version
    try:
        login = credentials.find_login(home, name, os.environ, person_home())
    except BullpenError as error:
        return Check("fail", name, error.message, error.hint)
    text = f"{version}   login: {login.text}"
    if login.kind == "none":
        return Check("warn", name, text, LOG_IN[name])
    is_file = login.kind in ("own", "home")  # which no sandbox sees
    fix = f"tasks run in a sandbox and need: {LOG_IN[name]}" if is_file else ""
    return Check("ok", name, text, fix, lacks=ENGINES[name].lacks)  # of no use without a login


def _engine_version(name: str) -> str | Check:
    """What the program says, or what is wrong with it."""
    from bullpen.engines.programs import find_program
    from bullpen.engines.versions import PROGRAMS, is_enough, parse_version, written

    needed = PROGRAMS[name]
    try:
        program = find_program(os.environ, needed)
    except BullpenError as error:
        if os.environ.get(needed.variable):
            return Check("fail", name, error.message, f"{needed.variable} has to name a program")
        return Check("warn", name, "not installed", needed.install)
    try:
        # Not where the person stands: such programs read settings of the current directory.
        done = proc.run([program, "--version"], cwd=Path("/"), timeout=ANSWER_SECONDS)
    except (BullpenError, OSError) as error:  # the latter: what the kernel cannot execute
        text = f"cannot start {program}: {error}" if isinstance(error, OSError) else error.message
        return Check("fail", name, text, needed.install)
    version = parse_version(done.text)
    if done.code != 0 or version is None:
        lines = [line for line in (done.error_text or done.text).splitlines() if line.strip()]
        says = f", says {lines[-1].strip()[:100]!r}" if lines else ""
        text = f"{program} --version ends with {done.code}{says}"
        return Check("fail", name, text, needed.install)
    if not is_enough(version, needed.oldest):
        text = f"{written(version)}, needs {written(needed.oldest)}"
        return Check("fail", name, text, needed.install)
    return written(version)
