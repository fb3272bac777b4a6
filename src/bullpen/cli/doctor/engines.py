"""The programs behind agents: whether they start, what they log in with, what they cannot do."""

import os

from bullpen import credentials, proc
from bullpen.cli.doctor.check import Check
from bullpen.errors import BullpenError
from bullpen.paths import Home, person_home

ANSWER_SECONDS = 60.0  # programs in Node, from a cold disk
LOG_IN = {
    "claude": "bullpen auth claude · or claude setup-token, then bullpen auth set claude-token",
    "gemini": "bullpen auth set gemini-api-key",
    "codex": "bullpen auth set openai-api-key",
}


def check_engine(name: str, home: Home | None) -> Check:
    """The program of an engine: its version, what it would log in with, what it cannot do."""
    from bullpen.engines import ENGINES

    found = _engine_version(name)
    if isinstance(found, Check):
        return found
    try:
        login = credentials.find_login(home, name, os.environ, person_home())
    except BullpenError as error:
        return Check("fail", name, error.message, error.hint)
    text = f"{found}   login: {login.text}"
    if login.kind == "none":
        return Check("warn", name, text, LOG_IN[name])
    return Check("ok", name, text, lacks=ENGINES[name].lacks)  # of no use to who cannot use it


def _engine_version(name: str) -> str | Check:
    """What the program says, or what is wrong with it."""
    from bullpen.engines.programs import find_program
    from bullpen.engines.versions import PROGRAMS, is_enough, parse_version, written

    needed = PROGRAMS[name]
    try:
        program = find_program(os.environ, needed.variable, needed.program, needed.package)
    except BullpenError as error:
        if os.environ.get(needed.variable):
            return Check("fail", name, error.message, f"{needed.variable} has to name a program")
        return Check("warn", name, "not installed", needed.install)
    try:
        done = proc.run([program, "--version"], timeout=ANSWER_SECONDS)
    except (BullpenError, OSError) as error:  # the latter: what the kernel cannot execute
        text = f"cannot start {program}: {error}" if isinstance(error, OSError) else error.message
        return Check("fail", name, text, needed.install)
    version = parse_version(done.text)
    if done.code != 0 or version is None:
        said = [line for line in (done.error_text or done.text).splitlines() if line.strip()]
        says = f", says {said[-1].strip()[:100]!r}" if said else ""
        text = f"{program} --version ends with {done.code}{says}"
        return Check("fail", name, text, needed.install)
    if not is_enough(version, needed.oldest):
        text = f"{written(version)}, needs {written(needed.oldest)}"
        return Check("fail", name, text, needed.install)
    return written(version)
