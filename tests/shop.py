"""A person with a small repository and Claude Code, for the picture and the commands of the pages.

    with made_shop("standin") as shop:
        shop.run("bullpen init")

`bullpen` and `claude` are on their PATH, and nothing else of Bullpen is there. The prompts of the
pages are plain sentences: `sentences.py` says what the model does at each.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked, sentences
from tests.commands import BULLPEN, Ran
from tests.engines.cli import Claude, StandIn
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.fake_model import Entry
from tests.engines.programs import bare_claude
from tests.waiting import wait_until

ENGINES = Path(__file__).with_name("engines")
STANDIN_FILES = ("script.py", *(path.name for path in ENGINES.glob("standin*.py")))
SECONDS = 120.0
# What `explain` has of an agent that asks, or whose turn has ended.
ASKS, RESTS = '"state":"blocked"', '"hook Stop"'
FILES = {
    ".gitignore": "__pycache__/\n",
    "README.md": "# Shop\n",
    "auth.py": 'def is_expired(token, now):\n    return now > token["expires"]\n',
    "test_auth.py": 'import auth\n\nassert auth.is_expired({"expires": 5}, 5)\nprint("ok")\n',
}


class Sentences(FakeAnthropic):
    """A model that knows these sentences."""

    def read(self, body: Any) -> list[Entry]:
        return [Entry(entry.who, sentences.scripted(entry.text)) for entry in super().read(body)]


@dataclass
class Shop:
    """Where the person stands, and their environment."""

    person: Path
    env: dict[str, str]
    awaited: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def repository(self) -> Path:
        return self.person / "shop"

    def bullpen(self, *words: str, stdin: str = "") -> Ran:
        argv = [str(BULLPEN), *words]
        done = forked.run(argv, self.repository, self.env, stdin.encode(), SECONDS)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def shell(self, line: str) -> Ran:
        """A line as a person types it."""
        self.note(line)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.repository,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def note(self, line: str) -> None:
        """What `wait_still` waits for after this command: a prompt given at a start comes to its
        end or to a question, an answer to the end."""
        if named := re.search(r"--name (\S+) .*--prompt ", line):
            self.awaited[named[1]] = (ASKS, RESTS)
        if named := re.match(r"bullpen approve (\w+)", line):
            self.awaited[named[1]] = (RESTS,)

    def wait_still(self) -> None:
        """Until who types the next command has seen what came of the last."""
        wait_until(self._is_still, SECONDS)
        self.awaited.clear()

    def _is_still(self) -> bool:
        agents = self.bullpen("list", "--json").json["agents"]
        starting = [agent for agent in agents if agent["words"].startswith("starting")]
        return not starting and all(
            any(mark in self.bullpen("explain", name, "--json").out for mark in marks)
            for name, marks in self.awaited.items()
        )

    def close(self) -> None:
        if (self.repository / ".bullpen").exists():
            ended = self.bullpen("kill", "--all")
            assert ended.code == 0, ended


@contextlib.contextmanager
def made_shop(kind: str) -> Iterator[Shop]:
    """With the "real" Claude Code or the "standin"."""
    base = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp")).resolve()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        person = base / "tess"
        (person / ".local" / "bin").mkdir(parents=True)
        env = _environment(person) | _claude(stack, base, person, kind)
        shop = Shop(person, env)
        _make_repository(shop)
        stack.callback(shop.close)
        yield shop


def _environment(person: Path) -> dict[str, str]:
    (person / ".local" / "bin" / "bullpen").symlink_to(BULLPEN)
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {
        **kept,
        "HOME": str(person),
        "PATH": f"{person / '.local' / 'bin'}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/bash",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def _claude(stack: contextlib.ExitStack, base: Path, person: Path, kind: str) -> dict[str, str]:
    """Put it on the PATH; the variables that it needs."""
    if kind == "standin":
        claude = bare_claude(StandIn(base))
        program = _standin(person / ".local" / "share" / "claude")
    else:
        claude = bare_claude(Claude(base, stack.enter_context(Sentences())))
        program = claude.program
    (person / ".local" / "bin" / "claude").symlink_to(program)
    wanted = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "IS_SANDBOX", "TMPDIR")
    return {name: value for name, value in claude.env.items() if name.startswith(wanted)}


def _standin(directory: Path) -> Path:
    """A copy in a directory of its own, as the real one is installed: sandboxes show that."""
    shutil.copytree(
        ENGINES, directory / "engines", ignore=lambda _, names: {*names} - {*STANDIN_FILES}
    )
    program = directory / "claude"
    program.write_text(f"#!{sys.executable} -SE\n{Path(sentences.__file__).read_text()}")
    program.chmod(0o755)
    return program


def _make_repository(shop: Shop) -> None:
    shop.repository.mkdir(parents=True)
    for name, text in FILES.items():
        (shop.repository / name).write_text(text)
    made = shop.shell(
        "git config --global user.name Tess; git config --global user.email tess@example.com;"
        " git init -q -b main && git add -A && git commit -qm 'A small shop'"
    )
    assert made.code == 0, made
    (shop.repository / "README.md").write_text("# Shop\n\nIt sells shoes.\n")
