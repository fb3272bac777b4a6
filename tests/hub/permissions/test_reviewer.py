"""The reviewer: a program that is asked, and never trusted further than its verdict."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen import proc
from bullpen.home.paths import Home, make_directories
from bullpen.hub.agents import sessions
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.permissions import reviewer as reviewing
from bullpen.hub.permissions.reviewer import Reviewed, Reviewer
from bullpen.model.agent import Agent
from bullpen.model.approval import ToolRequest
from bullpen.model.role import ReviewerSettings
from tests.engines.cli import program as installed
from tests.hub.pen import Pen, change_hub
from tests.hub.permissions.asking import ALLOW, Asking, request
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
SETTINGS = ReviewerSettings(instructions="ALLOW: make", model="haiku")
LS = ToolRequest(tool="Bash", input={"command": "ls"})


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

    def waits(self, go: Path) -> None:
        """For that file, before it says what it says."""
        says = (self.directory / "script").read_text()
        self.does(f"import time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{says}")

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
    sessions.create(found, agent(), LaunchEnv(env=env))
    return found


def agent(run: str = "r1") -> Agent:
    return Agent(name="amy", run=run, cwd="/work", command=("x",), created="now")


def review(
    home: Home, *requests: ToolRequest, settings: ReviewerSettings = SETTINGS
) -> list[Reviewed]:
    """One after the other, by one reviewer."""

    async def all_of_them() -> list[Reviewed]:
        asked = Reviewer(home)
        return [await asked.review(agent(), each, settings) for each in requests]

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
    assert json.loads(Path(options["--settings"]).read_text()) == {}
    kept = home.session("amy") / "permission-reviewer.md"
    assert options["--system-prompt-file"] == str(kept)
    assert kept.read_text().endswith("ALLOW: make\n")
    assert (kept.stat().st_mode & 0o777, "make" in " ".join(words)) == (0o600, False)
    assert '"command": "ls"' in note["stdin"]
    assert note["cwd"] == "/"
    assert (note["env"]["ANTHROPIC_API_KEY"], note["env"]["CLAUDE_CONFIG_DIR"]) == ("k", "/c")
    assert not [name for name in note["env"] if name.startswith(("BULLPEN_", "OTEL_"))]
    assert "CLAUDE_CODE_ENABLE_TELEMETRY" not in note["env"]


# What Claude Code keeps of a company's settings in its configuration directory.
PLANTED = "remote-settings.json"


def planted_in(directory: Path, mark: Path) -> None:
    """As an agent in a sandbox can write it into its own: hooks that leave a mark."""
    directory.mkdir(parents=True)
    hook = [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]
    (directory / PLANTED).write_text(json.dumps({"hooks": {"UserPromptSubmit": hook}}))
    (directory / PLANTED).chmod(0o600)
    (directory / ".claude.json").write_text('{"hasCompletedOnboarding": true}')


@pytest.mark.parametrize("persons", ["", "mine"])
@pytest.mark.few(1)
def test_x5_what_a_sandboxed_agent_plants_in_its_configuration_is_not_run_by_its_reviewer(
    tmp_path: Path, persons: str
) -> None:
    """With the real program, which reaches nothing. Without the defence, the hook runs outside of
    the sandbox."""
    own, mark = tmp_path / "session/claude-config", tmp_path / "mark"
    planted_in(own, mark)
    nowhere = "http://127.0.0.1:9"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HTTPS_PROXY": nowhere,
        "HTTP_PROXY": nowhere,
    }
    env |= {"ANTHROPIC_API_KEY": "sk-ant-api03-" + "k" * 80, "CLAUDE_CODE_MAX_RETRIES": "0"}
    env |= {"CLAUDE_CONFIG_DIR": str(tmp_path / persons)} if persons else {}
    launch_env = LaunchEnv(env=env, added={"CLAUDE_CONFIG_DIR": str(own)})
    (tmp_path / "system.md").write_text("Judge.")
    (tmp_path / "login.json").write_text("{}")
    files = tmp_path / "system.md", tmp_path / "login.json"

    def ask(given: Agent) -> bool:
        """Whether the hook ran."""
        argv = reviewing.command(str(installed("claude")), "haiku", *files)
        done = proc.run(
            argv,
            cwd=reviewing.NOWHERE,
            env=reviewing.environment(given, launch_env),
            stdin=b"ls",
            timeout=120,
        )
        assert b"connection_failed" in done.out, done
        return mark.exists()

    assert not ask(agent().model_copy(update={"is_sandboxed": True}))
    assert ask(agent()), "one that may use its directory runs what is in it"


def test_q2_it_reaches_the_model_as_the_agent_does(
    home: Home, program: Program, tmp_path: Path
) -> None:
    """By helpers and variables of the person's settings and of the role; nothing else of them."""
    own = tmp_path / "own"
    own.mkdir()
    persons = {"apiKeyHelper": "pass key", "env": {"ANTHROPIC_BASE_URL": "http://a"}, "hooks": {}}
    (own / "settings.json").write_text(json.dumps(persons))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(own)}
    sessions.write_files(home, "amy", {"settings.json": '{"env": {"A": "b"}, "permissions": {}}'})
    (home.session("amy") / sessions.ENVIRONMENT).write_text(json.dumps(vars(LaunchEnv(env=env))))
    review(home, LS)
    words = program.notes()[0]["argv"]
    login = json.loads(Path(words[words.index("--settings") + 1]).read_text())
    assert login == {
        "apiKeyHelper": "pass key",
        "env": {"ANTHROPIC_BASE_URL": "http://a", "A": "b"},
    }


def test_q2_no_two_questions_have_the_same_fence(home: Home, program: Program) -> None:
    review(home, LS, ToolRequest(tool="Bash", input={"command": "pwd"}))
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
    long = ToolRequest(tool="Bash", input={"command": "ls " + "x" * 30_000 + " && rm -rf /"})
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


OTHERS: dict[str, Callable[[], tuple[Agent, ToolRequest, ReviewerSettings]]] = {
    "input": lambda: (agent(), ToolRequest(tool="Bash", input={"command": "ls "}), SETTINGS),
    "more input": lambda: (
        agent(),
        ToolRequest(tool="Bash", input={"command": "ls", "x": 1}),
        SETTINGS,
    ),
    "tool": lambda: (agent(), ToolRequest(tool="Shell", input={"command": "ls"}), SETTINGS),
    "run": lambda: (agent("r2"), LS, SETTINGS),
    "instructions": lambda: (
        agent(),
        LS,
        SETTINGS.model_copy(update={"instructions": "DENY: all"}),
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_q2_another_question_is_not_the_same(home: Home, program: Program, other: str) -> None:
    async def both() -> Reviewed:
        asked = Reviewer(home)
        await asked.review(agent(), LS, SETTINGS)
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
        several = [ToolRequest(tool="Bash", input={"command": f"ls {n}"}) for n in range(10)]
        same = [several[0]] * 3
        await asyncio.gather(*(asked.review(agent(), one, SETTINGS) for one in [*several, *same]))

    asyncio.run(many())
    assert len(program.notes()) == 10
    assert max(map(int, (tmp_path / "most").read_text().split())) <= reviewing.AT_ONCE


# ── in the hub ──


def asking_of(pen: Pen, program: Program) -> Asking:
    """An agent whose reviewer is that program."""
    role = {"name": "sleeper", "agent_type": "command", "command": ["/bin/sleep", "1000000"]}
    role["permissions"] = {"agent": {"instructions": "ALLOW: make"}}
    (pen.root / "roles" / "sleeper.yaml").write_text(json.dumps(role))
    pen.env["BULLPEN_CLAUDE_BIN"] = str(program.path)
    pen.start()
    pen.run(role="sleeper", name="amy", words=[])
    return Asking(pen)


@pytest.fixture
def asking(pen: Pen, program: Program) -> Iterator[Asking]:
    made = asking_of(pen, program)
    yield made
    for hook in made.hooks:
        hook.kill()


def reviewed(pen: Pen) -> list[tuple[str, str, bool]]:
    found = pen.events("amy", "permission.reviewed")
    assert all(event["seconds"] >= 0 for event in found)
    return [(event["verdict"], event["reason"], event["reused"]) for event in found]


def test_q2_what_it_allows_runs_and_nobody_is_asked(asking: Asking, program: Program) -> None:
    program.says("ALLOW", "builds only")
    assert asking.send(request("make")).decision() == ALLOW
    assert asking.pen.state("amy") == "working (Bash)"
    assert asking.send(request("make")).decision() == ALLOW
    assert reviewed(asking.pen) == [("ALLOW", "builds only", False), ("ALLOW", "builds only", True)]
    ended = [one["state"] for one in asking.inbox(all=1)]
    assert [(end["decision"], end["by"]) for end in ended] == [("allow", "reviewer")] * 2
    assert asking.inbox() == []
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
    said = "nothing usable (its answer was no JSON)" if code else "deletes a directory"
    wait_until(lambda: f"\n     reviewer said: {said}\n" in asking.pen.cli("approvals").out)
    wait_until(lambda: asking.pen.state("amy") == "blocked (permission: Bash)")
    asking.pen.cli("deny", "1")
    assert hook.decision()["behavior"] == "deny"


def test_s3_while_it_judges_the_agent_is_not_blocked(
    asking: Asking, program: Program, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    program.does(f"import time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    hook = asking.send(request("make"))
    wait_until(lambda: asking.pen.state("amy") == "working (review: Bash)")
    wait_until(lambda: [one["state"]["reviewing"] for one in asking.inbox()] == [True])
    assert "\n     being reviewed · you may answer" in asking.pen.cli("approvals").out
    assert "approval" not in asking.pen.cli("list").out
    go.touch()
    wait_until(lambda: asking.pen.state("amy") == "blocked (permission: Bash)")
    wait_until(lambda: [one["state"]["reviewing"] for one in asking.inbox()] == [False])
    assert hook.process.poll() is None


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_q4_what_is_reviewed_can_be_answered_and_the_late_verdict_changes_nothing(
    asking: Asking, program: Program, tmp_path: Path, verb: str
) -> None:
    program.says("DENY" if verb == "approve" else "ALLOW", "too late")
    program.waits(tmp_path / "go")
    hook = asking.send(request("make"))
    wait_until(lambda: [one["state"]["reviewing"] for one in asking.inbox()] == [True])
    wait_until(lambda: len(program.notes()) == 1)
    assert asking.pen.cli(verb, "1").code == 0
    (tmp_path / "go").touch()
    behavior, state = {"approve": ("allow", "Bash"), "deny": ("deny", "thinking")}[verb]
    assert hook.decision()["behavior"] == behavior
    assert asking.last()["by"] == "owner"
    assert asking.pen.state("amy") == f"working ({state})"


def test_q2_a_hub_killed_while_it_judges_is_asked_again(asking: Asking, program: Program) -> None:
    program.does("import time; time.sleep(5)")  # nobody is left to end it
    hook = asking.send(request("make"))
    wait_until(lambda: len(program.notes()) == 1)
    asking.pen.kill_hub()
    program.says("DENY", "no")
    asking.pen.start()
    assert hook.decision() == {"behavior": "deny", "message": "no"}


CHANGED = {
    "other instructions": '"permissions": {"agent": {"instructions": "DENY: all"}}',
    "no reviewer": '"description": "nobody judges"',
    "broken": '"modle": "x"',
}


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.few(1)
def test_q2_its_reviewer_is_the_one_that_its_role_had_at_the_launch(
    asking: Asking, program: Program, changed: str
) -> None:
    session = asking.pen.session("amy")
    assert (session / "permission-reviewer.md").read_text().endswith("ALLOW: make\n")
    (session / "permission-reviewer.md").write_text("ALLOW: everything")
    role = '{"name": "sleeper", "agent_type": "command", "command": ["/bin/sleep", "1000000"], '
    (asking.pen.root / "roles" / "sleeper.yaml").write_text(role + CHANGED[changed] + "}")
    asking.pen.kill_hub()
    asking.pen.start()
    assert asking.send(request("make")).decision() == ALLOW
    (note,) = program.notes()
    told = Path(note["argv"][note["argv"].index("--system-prompt-file") + 1]).read_text()
    assert told.endswith("ALLOW: make\n"), "as it was launched"


def test_q2_the_next_launch_has_the_reviewer_that_its_role_has_then(
    asking: Asking, program: Program
) -> None:
    told = asking.pen.session("amy") / "permission-reviewer.md"
    role = {"name": "sleeper", "agent_type": "command", "command": ["/bin/sleep", "1000000"]}
    role["permissions"] = {"agent": {"instructions": "DENY: all"}}
    (asking.pen.root / "roles" / "sleeper.yaml").write_text(json.dumps(role))
    assert asking.pen.cli("restart", "amy").code == 0
    assert told.read_text().endswith("DENY: all\n")
    del role["permissions"]
    (asking.pen.root / "roles" / "sleeper.yaml").write_text(json.dumps(role))
    assert asking.pen.cli("restart", "amy").code == 0
    assert not told.exists()
    asking.ask("make")
    wait_until(lambda: asking.pen.state("amy") == "blocked (permission: Bash)")
    assert program.notes() == []


@pytest.mark.parametrize("text", ["", "{", '{"instructions": "ALLOW: make", "modle": "x"}'])
@pytest.mark.few(1)
def test_q2_a_reviewer_that_cannot_be_read_is_none(
    asking: Asking, program: Program, text: str
) -> None:
    (asking.pen.session("amy") / "private" / "reviewer").write_text(text)
    asking.ask("make")
    wait_until(lambda: asking.pen.state("amy") == "blocked (permission: Bash)")
    assert program.notes() == []


@pytest.mark.storm
def test_q2_one_that_is_left_to_the_person_stays_open(pen: Pen, program: Program) -> None:
    """The hook waits all the time, first for the verdict, then for the person."""
    change_hub(pen, "from bullpen.hub.permissions import approvals as it; it.BACK_SECONDS = 0.01")
    program.says("ASK_USER", "deletes a directory")
    asking = asking_of(pen, program)
    hook = asking.send(request("rm -rf build"))
    wait_until(lambda: len(reviewed(pen)) == 1)
    assert asking.inbox() != []
    assert pen.cli("approve", "1").code == 0
    assert hook.decision() == ALLOW
