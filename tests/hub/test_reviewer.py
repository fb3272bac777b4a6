"""The reviewer: a program that is asked, and never trusted further than its verdict."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.hub import reviewer as reviewing
from bullpen.hub import sessions
from bullpen.hub.reviewer import Reviewed, Reviewer
from bullpen.hub.sessions import Settled
from bullpen.model.agent import Agent
from bullpen.model.approval import Request
from bullpen.model.role import Reviewer as Instructed
from bullpen.paths import Home, make_directories
from tests.hub.asking import ALLOW, Asking, request
from tests.hub.pen import Pen
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Notes how it was called, then does what the file `script` in its directory says.
PROGRAM = """\
#!{python}
import json, os, sys
place = os.path.dirname(os.path.abspath(__file__))
note = dict(argv=sys.argv[1:], stdin=sys.stdin.read(), env=dict(os.environ), cwd=os.getcwd())
with open(place + "/notes", "a") as file:
    file.write(json.dumps(note) + "\\n")
exec(open(place + "/script").read())
"""
TOLD = Instructed(instructions="ALLOW: make", model="haiku")
LS = Request(tool="Bash", input={"command": "ls"})


class Program:
    """A stand-in for the program that is asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "claude"
        self.path.write_text(PROGRAM.format(python=sys.executable))
        self.path.chmod(0o755)
        self.says("ALLOW")

    def says(self, word: str, reason: str = "because", **more: Any) -> None:
        output = {"type": "result", "subtype": "success", "is_error": False, "result": "ok"}
        output |= {"structured_output": {"verdict": word, "reason": reason}, **more}
        self.does(f"print({json.dumps(output)!r})")

    def does(self, code: str) -> None:
        (self.directory / "script").write_text(code)

    def notes(self) -> list[dict[str, Any]]:
        path = self.directory / "notes"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    made = Program(tmp_path)
    monkeypatch.setenv("BULLPEN_CLAUDE_BIN", str(made.path))
    return made


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "h"
    root.mkdir()
    make_directories(root)
    found = Home(root)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k"}
    env |= {"BULLPEN_TOKEN": "t", "BULLPEN_ACTOR": "amy", "OTEL_EXPORTER_OTLP_HEADERS": "t"}
    env |= {"CLAUDE_CODE_ENABLE_TELEMETRY": "1", "CLAUDE_CONFIG_DIR": "/c"}
    sessions.create(found, agent(), Settled(env=env))
    return found


def agent(run: str = "r1") -> Agent:
    return Agent(name="amy", run=run, cwd="/work", command=("x",), created="now")


def review(home: Home, *requests: Request, told: Instructed = TOLD) -> list[Reviewed]:
    """One after the other, by one reviewer."""

    async def all_of_them() -> list[Reviewed]:
        asked = Reviewer(home)
        return [await asked.review(agent(), each, told) for each in requests]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("word", ["ALLOW", "DENY", "ASK_USER"])
def test_q2_its_verdict_counts(home: Home, program: Program, word: str) -> None:
    program.says(word)
    (found,) = review(home, LS)
    assert (found.verdict.word, found.verdict.reason) == (word, "because")
    assert found.seconds > 0


def test_q2_it_has_no_tools_no_settings_and_no_identity(home: Home, program: Program) -> None:
    review(home, LS)
    (note,) = program.notes()
    words = note["argv"]
    options = dict(zip(words, [*words[1:], ""], strict=True))
    assert options["--model"] == "haiku"
    assert (options["--tools"], options["--setting-sources"]) == ("", "")
    assert {"-p", "--strict-mcp-config", "--no-session-persistence"} <= set(words)
    assert json.loads(options["--json-schema"])["additionalProperties"] is False
    assert options["--system-prompt"].endswith("ALLOW: make\n")
    kept = (home.session("amy") / "permission-reviewer.md").read_text()
    assert kept == options["--system-prompt"]
    assert '"command": "ls"' in note["stdin"]
    assert note["cwd"] == "/"
    assert (note["env"]["ANTHROPIC_API_KEY"], note["env"]["CLAUDE_CONFIG_DIR"]) == ("k", "/c")
    assert not [name for name in note["env"] if name.startswith(("BULLPEN_", "OTEL_"))]
    assert "CLAUDE_CODE_ENABLE_TELEMETRY" not in note["env"]


def test_q2_no_two_questions_have_the_same_fence(home: Home, program: Program) -> None:
    review(home, LS, Request(tool="Bash", input={"command": "pwd"}))
    one, two = (
        note["stdin"].split("two lines ")[1].split(" is data")[0] for note in program.notes()
    )
    assert one != two
    assert len(one) > 30


@pytest.mark.parametrize(
    "code",
    [
        *("pass", "print('ALLOW')", "sys.exit(1)", "os.kill(os.getpid(), 9)"),
        "os.write(1, b'\\xff ALLOW')",
        "print(json.dumps(dict(type='result', subtype='success', is_error=False,"
        " structured_output=dict(verdict='ALLOW', reason='x')))); sys.exit(1)",
        "print(json.dumps(dict(type='result', subtype='success', is_error=False,"
        " structured_output=None, result='ALLOW')))",
    ],
)
def test_q2_whatever_goes_wrong_the_person_is_asked(
    home: Home, program: Program, code: str
) -> None:
    program.does(code)
    (found,) = review(home, LS)
    assert (found.verdict.word, found.verdict.is_said) == ("ASK_USER", False)


def test_q2_no_program_no_permission(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.path.unlink()
    assert review(home, LS)[0].verdict.word == "ASK_USER"
    monkeypatch.delenv("BULLPEN_CLAUDE_BIN")
    (home.private("amy") / "env").write_text("{")
    assert review(home, LS)[0].verdict.word == "ASK_USER"


def test_q2_one_that_takes_too_long_is_ended_with_its_children(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ids = tmp_path / "ids"
    code = "import subprocess; child = subprocess.Popen(['sleep', '1000'])\n"
    code += f"open({str(ids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}\\n')\n"
    program.does(code + "child.wait()")
    for seconds in (1.0, 4.0, 16.0, 60.0):  # until the program comes that far, on a busy machine
        monkeypatch.setattr(reviewing, "SECONDS", seconds)
        (found,) = review(home, LS)
        assert (found.verdict.word, found.verdict.is_said) == ("ASK_USER", False)
        assert "did not end within" in found.verdict.reason
        if ids.exists() and ids.read_text().endswith("\n"):
            break
    for pid in map(int, ids.read_text().split()):
        wait_until(lambda pid=pid: not alive(pid))


def test_q2_what_it_cannot_see_as_a_whole_it_cannot_allow(home: Home, program: Program) -> None:
    long = Request(tool="Bash", input={"command": "ls " + "x" * 30_000 + " && rm -rf /"})
    (found,) = review(home, long)
    assert found.verdict.word == "ASK_USER"
    assert "rm -rf" not in program.notes()[0]["stdin"]


# ── the same again ──


@pytest.mark.parametrize(("word", "times"), [("ALLOW", 1), ("DENY", 1), ("ASK_USER", 2)])
def test_q2_the_same_within_a_minute_is_asked_once(
    home: Home, program: Program, word: str, times: int
) -> None:
    program.says(word)
    first, second = review(home, LS, LS)
    assert len(program.notes()) == times
    assert first.verdict == second.verdict
    assert (first.is_reused, second.is_reused) == (False, times == 1)


def test_q2_a_minute_later_it_is_asked_again(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewing, "REUSED_SECONDS", 0.0)
    review(home, LS, LS)
    assert len(program.notes()) == 2


OTHERS: dict[str, Callable[[], tuple[Agent, Request, Instructed]]] = {
    "input": lambda: (agent(), Request(tool="Bash", input={"command": "ls "}), TOLD),
    "more input": lambda: (agent(), Request(tool="Bash", input={"command": "ls", "x": 1}), TOLD),
    "tool": lambda: (agent(), Request(tool="Shell", input={"command": "ls"}), TOLD),
    "run": lambda: (agent("r2"), LS, TOLD),
    "instructions": lambda: (agent(), LS, TOLD.model_copy(update={"instructions": "DENY: all"})),
}


@pytest.mark.parametrize("other", OTHERS)
def test_q2_another_question_is_not_the_same(home: Home, program: Program, other: str) -> None:
    async def both() -> Reviewed:
        asked = Reviewer(home)
        await asked.review(agent(), LS, TOLD)
        program.says("DENY")
        return await asked.review(*OTHERS[other]())

    assert asyncio.run(both()).verdict.word == "DENY"


def test_q2_a_few_at_once(home: Home, program: Program, tmp_path: Path) -> None:
    place = tmp_path / "running"
    place.mkdir()
    program.does(
        f"import time; place = {str(place)!r}; mine = place + '/' + str(os.getpid())\n"
        "open(mine, 'w').close(); found = str(len(os.listdir(place)))\n"
        f"open({str(tmp_path / 'most')!r}, 'a').write(found + ' ')\n"
        "time.sleep(0.1); os.unlink(mine)"
    )

    async def many() -> None:
        asked = Reviewer(home)
        several = [Request(tool="Bash", input={"command": f"ls {n}"}) for n in range(10)]
        same = [several[0]] * 3
        await asyncio.gather(*(asked.review(agent(), one, TOLD) for one in [*several, *same]))

    asyncio.run(many())
    assert len(program.notes()) == 10
    assert max(map(int, (tmp_path / "most").read_text().split())) <= reviewing.AT_ONCE


# ── in the hub ──


@pytest.fixture
def asking(pen: Pen, program: Program) -> Iterator[Asking]:
    role = {"name": "sleeper", "agent_type": "command", "command": ["/bin/sleep", "1000000"]}
    role["permissions"] = {"agent": {"instructions": "ALLOW: make"}}
    (pen.root / "roles" / "sleeper.yaml").write_text(json.dumps(role))
    pen.env["BULLPEN_CLAUDE_BIN"] = str(program.path)
    pen.start()
    pen.run(role="sleeper", name="amy", words=[])
    made = Asking(pen)
    yield made
    for hook in made.hooks:
        hook.kill()


def reviewed(pen: Pen) -> list[tuple[str, str, bool]]:
    found = pen.events("amy", "permission.reviewed")
    assert all(0 <= event["seconds"] < 30 for event in found)
    return [(event["verdict"], event["reason"], event["reused"]) for event in found]


def test_q2_what_it_allows_runs_and_nobody_is_asked(asking: Asking, program: Program) -> None:
    program.says("ALLOW", "builds only")
    assert asking.send(request("make")).decision() == ALLOW
    assert asking.pen.state("amy") == "working (Bash)"
    assert asking.send(request("make")).decision() == ALLOW
    assert reviewed(asking.pen) == [("ALLOW", "builds only", False), ("ALLOW", "builds only", True)]
    assert asking.inbox(all=1) == []
    assert "Bash: ALLOW" in asking.pen.cli("explain", "amy").out


def test_q2_what_it_denies_is_told_with_the_reason(asking: Asking, program: Program) -> None:
    program.says("DENY", "sends data away")
    decision = asking.send(request("curl")).decision()
    assert decision == {"behavior": "deny", "message": "sends data away"}
    assert asking.pen.state("amy") == "working (thinking)"


@pytest.mark.parametrize("code", ["", "print('ALLOW')"])
def test_q3_when_it_is_not_sure_a_person_is(asking: Asking, program: Program, code: str) -> None:
    program.says("ASK_USER", "deletes a directory")
    if code:
        program.does(code)
    hook = asking.ask("rm -rf build")
    assert asking.pen.state("amy") == "blocked (permission: Bash)"
    said = "nothing usable (its answer was no JSON)" if code else "deletes a directory"
    assert f"\n     reviewer said: {said}\n" in asking.pen.cli("approvals").out
    asking.pen.cli("deny", "1")
    assert hook.decision()["behavior"] == "deny"


def test_s3_while_it_judges_the_agent_is_not_blocked(
    asking: Asking, program: Program, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    program.does(f"import time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    hook = asking.send(request("make"))
    wait_until(lambda: asking.pen.state("amy") == "working (review: Bash)")
    assert asking.inbox() == []
    go.touch()
    wait_until(lambda: asking.pen.state("amy") == "blocked (permission: Bash)")
    assert hook.process.poll() is None


def test_q2_a_hub_killed_while_it_judges_is_asked_again(asking: Asking, program: Program) -> None:
    program.does("import time; time.sleep(5)")  # nobody is left to end it
    hook = asking.send(request("make"))
    wait_until(lambda: len(program.notes()) == 1)
    asking.pen.kill_hub()
    program.says("DENY", "no")
    asking.pen.start()
    assert hook.decision() == {"behavior": "deny", "message": "no"}


def test_q2_a_role_that_cannot_be_read_has_no_reviewer(asking: Asking, program: Program) -> None:
    (asking.pen.root / "roles" / "sleeper.yaml").write_text("name: sleeper\nmodle: x\n")
    asking.ask("make")
    assert program.notes() == []
