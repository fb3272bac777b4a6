"""`bullpen run`: words that nobody can have meant; the options that change a role for one start."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import BULLPEN, Ran
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            "--role coder --prompt Fix the login bug",
            "--prompt 'Fix the login bug'",
        ),
        (
            "--role coder --prompt Fix the --name amy bug -- --verbose",
            "--prompt 'Fix the bug'",
        ),
        (
            "--role coder Fix it",
            "bullpen run --role coder --prompt 'Fix it'",
        ),
        (
            "htop -d",
            "bullpen run -- htop · bullpen run --role ROLE --prompt htop",
        ),
    ],
)
@pytest.mark.few(1)
def test_a1_words_that_follow_nothing_are_refused_with_the_quoted_form(
    tmp_path: Path, words: str, hint: str
) -> None:
    ran = subprocess.run(
        [BULLPEN, "run", *words.split()], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[1] == f"hint:  {hint}"
    assert not (tmp_path / ".bullpen").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("coder", "bullpen run --role coder"),
        ("coder fix it", "bullpen run --role coder --prompt 'fix it'"),
        ("codex-cli", "bullpen run -- codex-cli · bullpen run --role ROLE --prompt codex-cli"),
    ],
)
def test_a1_the_name_of_a_role_is_taken_for_one(
    bullpen: Callable[..., Ran], home: Path, words: str, hint: str
) -> None:
    ran = bullpen("run", *words.split(), cwd=home)
    assert (ran.code, ran.err.splitlines()[1]) == (2, f"hint:  {hint}")


@pytest.fixture(scope="module")
def pen() -> Iterator[Pen]:
    with made_pen() as pen:
        make_repo(pen.root.parent / "repo")
        write_role(pen, "plain", list(SLEEP), "worktree: {use_detached_head: true}")
        yield pen


@pytest.mark.slow
@pytest.mark.storm
def test_r7_model_branch_and_base_are_changed_for_one_start(pen: Pen) -> None:
    repo = pen.root.parent / "repo"
    git(repo, "branch", "older", "HEAD")
    options = ["--model", "opus", "--branch", "fix/login", "--base", "older"]
    ran = pen.cli("run", "-d", "--role", "plain", "--name", "amy", *options, "--json", cwd=repo)
    agent = ran.json
    assert (agent["model"], agent["birth_branch"]) == ("opus", "fix/login")
    tree = Path(agent["worktree"]["path"])
    assert git(tree, "symbolic-ref", "--short", "HEAD").strip() == "fix/login"
    assert agent["overrides"][0] == "model=opus"


@pytest.mark.slow
def test_r7_options_of_roles_need_one_and_a_branch_a_worktree(pen: Pen) -> None:
    ran = pen.cli("run", "--model", "opus", "--", "sh")
    assert (ran.code, ran.err) == (
        2,
        "error: --model, --branch and --base change a role, and none is given\n"
        "hint:  --role ROLE · a program in a worktree: bullpen worktree create NAME, then"
        " bullpen run --dir DIR -- PROGRAM\n",
    )
    pen.start()
    status, answer = pen.ask(
        "POST", "/agents", {"cwd": "/", "role": "plain", "name": "bob", "branch": "x"}
    )
    assert (status, answer["message"]) == (400, "bob has no worktree, and so no branch of its own")


@pytest.mark.slow
def test_r7_a_prompt_without_a_role_is_refused_before_anything_starts(pen: Pen) -> None:
    for prompt in ("echo hi", "-"):
        ran = pen.cli("run", "-d", "--name", "p", "--prompt", prompt, "--", "sh")
        assert ran.code == 2
        assert ran.err.startswith("error: --prompt needs a role: ")
    pen.start()
    asked = {"cwd": "/", "words": ["sh"], "name": "p", "prompt": "echo hi"}
    status, answer = pen.ask("POST", "/agents", asked)
    assert (status, answer["message"]) == (400, "a prompt needs a role, and none is given")
    assert "p" not in pen.agents()


@pytest.mark.parametrize("option", ["--model", "--branch", "--base", "--prompt"])
def test_r7_the_help_says_which_options_need_a_role(tmp_path: Path, option: str) -> None:
    ran = subprocess.run(
        [BULLPEN, "run", "--help"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    [line] = [line for line in ran.stdout.splitlines() if line.strip().startswith(option)]
    assert "With --role: " in line


@pytest.mark.parametrize(
    ("data", "says"), [(b" \n", "the prompt is empty"), (b"a\xff", "no UTF-8: byte 2")]
)
def test_r7_a_prompt_is_read_from_standard_input(tmp_path: Path, data: bytes, says: str) -> None:
    words = ["run", "--role", "plain", "--prompt", "-"]
    ran = subprocess.run(
        [BULLPEN, *words], input=data, capture_output=True, cwd=tmp_path, check=False
    )
    assert says in ran.stderr.decode()


@pytest.mark.slow
def test_r5_what_standard_input_says_is_the_first_prompt(pen: Pen) -> None:
    role = "name: typist\nagent_type: command\ncommand: [/bin/cat]\ndeliver: lines\n"
    (pen.root / "roles" / "typist.yaml").write_text(role)
    ran = pen.cli("run", "--role", "typist", "--prompt", "-", stdin=b"Fix the login bug\n")
    assert ran.code == 0, ran
    wait_until(lambda: b"Fix the login bug" in pen.log("typist"))


def test_r5_who_resumes_without_a_role_is_led_to_the_command_that_does(pen: Pen) -> None:
    refused = pen.cli("run", "-d", "--resume", "--name", "eve")
    assert (refused.code, refused.err.splitlines()[-1]) == (
        2,
        "hint:  as it was: bullpen resume eve",
    )
