"""Gives a program in a terminal its first prompt without writing it on a command line, which every
user of the machine can read. Pure.

Called by engines whose program is JavaScript. Its command line says where the prompt is; a small
file that its runtime loads first (Bun and Node have a variable for that) puts the prompt in that
place. So the program gets it byte for byte as an argument, also one that is longer than an argument
can be. Where no runtime loads the file, the model reads where its prompt is: it is never lost.

Tried and rejected: standard input (Claude Code's external editor inherits it, and nano needs a
terminal there); keys (a dialog may be open, and Gemini CLI loses early ones).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bullpen.engines import parse
from bullpen.engines.base import Start

TEXT, SCRIPT = "first-prompt.md", "first-prompt.cjs"
ENV = "/usr/bin/env"
LOAD = """\
'use strict';
const word = process.argv.indexOf(%(pointer)s);
if (word > 0 && (%(ready)s)) {
  try {
    process.argv[word] = %(flag)s + require('node:fs').readFileSync(%(file)s, 'utf8');
  } catch {}
  for (const [name, value] of Object.entries(%(before)s)) {
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
}
"""


@dataclass(frozen=True)
class FirstPrompt:
    """What a start with a first prompt needs more than one without."""

    before: tuple[str, ...] = ()  # in front of the command line
    word: tuple[str, ...] = ()  # in the prompt's place
    files: Mapping[str, str] = field(default_factory=dict)  # of the session


def make_first_prompt(start: Start, flag: str = "", ready: str = "true") -> FirstPrompt:
    """For a program that takes its prompt in one word, behind `flag`. `ready`: in which of its
    processes, as JavaScript; others pass their command lines on, for everybody to read."""
    if not start.prompt:
        return FirstPrompt()
    file, script = start.session / TEXT, start.session / SCRIPT
    pointer = f"{flag}Your first prompt is in {file}: read that file, and do what it says."
    options = _options(start)
    values: dict[str, object] = {
        "pointer": pointer,
        "ready": ready,
        "flag": flag,
        "file": str(file),
        "before": options,
    }
    written = {
        name: ready if name == "ready" else json.dumps(value) for name, value in values.items()
    }
    loads = [
        f"{name}={' '.join(filter(None, (options[name], load(str(script)))))}"
        for name, load in LOADS.items()
    ]
    return FirstPrompt(
        before=(ENV, *loads),
        word=(pointer,),
        files={TEXT: parse.sound(start.prompt), SCRIPT: LOAD % written},
    )


def _options(start: Start) -> dict[str, str | None]:
    """What these variables are without us. A sandbox has those of the role alone."""
    env = start.role.env if start.is_sandboxed and start.role else start.env
    return {name: env.get(name) for name in LOADS}


def _bun(path: str) -> str:
    return "--preload " + "".join(c if c.isalnum() or c in "/._-" else f"\\{c}" for c in path)


def _node(path: str) -> str:
    return '--require "' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


LOADS: Mapping[str, Callable[[str], str]] = {"BUN_OPTIONS": _bun, "NODE_OPTIONS": _node}
