"""The tools of agents for the rows that call them: a home with a repository, and relays."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import bullpen
from bench.hubs import hub_home
from bullpen.home.paths import Home
from bullpen.hot.hook_line import mcp_line

PACKAGE = str(Path(bullpen.__file__).parents[1])
PERSON = "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n"
PROGRAM = 'agent_type: command\ncommand: ["cat"]\ndeliver: lines-from-agents\n'
TREE = "worktree: {enabled: true, branch_from: main}\n"


@contextmanager
def grove(files: int) -> Iterator[tuple[Home, dict[str, str], Path]]:
    """A home with a hub, and a repository of so many files; agents of `coder` have worktrees."""
    with hub_home() as (home, env):
        Path(env["HOME"], ".gitconfig").write_text(PERSON)
        config = home.root / "config.yaml"
        config.write_text(f"{config.read_text()}\nmax_children: 500\nmax_agents: 2000\n")
        roles = home.root / "roles"
        (roles / "lead.yaml").write_text(f"name: lead\n{PROGRAM}may_grant: coder\n")
        (roles / "coder.yaml").write_text(f"name: coder\n{PROGRAM}{TREE}")
        repo = Path(env["HOME"], "repo")
        repo.mkdir()
        for number in range(files):
            (repo / f"file{number}.txt").write_text(f"{number}\n")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "--allow-empty", "-m", "x")):
            git(repo, env, *words)
        yield home, env, repo


def git(place: Path, env: dict[str, str], *words: str) -> str:
    """In that directory; its output."""
    done = subprocess.run(
        ["git", "-C", str(place), *words], env=env, check=True, capture_output=True, text=True
    )
    return done.stdout


def relay_line(home: Home, agent: str) -> list[str]:
    """What engines are told to start."""
    python = os.path.realpath(sys.executable)
    return mcp_line(python, PACKAGE, str(home.session(agent) / "api" / "hub.sock"))


class Relay:
    """A running relay of one agent, spoken to as its engine does."""

    def __init__(self, home: Home, agent: str) -> None:
        self._ids = itertools.count(1)
        self.process = subprocess.Popen(
            relay_line(home, agent), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def ask(self, tool: str, **arguments: Any) -> None:
        """Without waiting for the answer."""
        assert self.process.stdin is not None
        params = {"name": tool, "arguments": arguments}
        line = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """To what was asked: JSON."""
        assert self.process.stdout is not None
        result = json.loads(self.process.stdout.readline())["result"]
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(text)
        return json.loads(text)

    def call(self, tool: str, **arguments: Any) -> Any:
        self.ask(tool, **arguments)
        return self.answer()
