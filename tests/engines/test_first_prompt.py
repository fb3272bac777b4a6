"""The first prompt of an agent in a terminal: what the model gets, and who else can read it."""

import json
import shutil
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines.base import Start
from bullpen.engines.codex import first_prompt as codex
from bullpen.engines.first_prompt import SCRIPT, TEXT, make_first_prompt
from bullpen.model.role import Role
from tests.engines.team import Team, made_team

AWKWARD = {
    "lines": "[[say ok]]\n\n  indented\nlast\n",
    "dash": "-p --help [[say ok]]",
    "hash": "# a heading [[say ok]]",
    "unicode": "h\u00e9llo \u65e5\u672c \U0001f389 \u00ab\u00bb [[say ok]]",
    "template": "{{args}} !{ls} $HOME `id` %s 'q' \"q\" \\ [[say ok]]",
    "long": "[[say ok]]\n" + ("x" * 79 + "\n") * 2600,  # longer than an argument can be
}
# As the one who is nobody: the kernel shows command lines to all.
READ_ALL = """
import os, pathlib, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for entry in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (entry / "cmdline").read_bytes()
    except OSError:
        continue
    if entry.name != str(os.getpid()) and sys.argv[1].encode() in words:
        print(words)
"""


def seen_by_others(text: str) -> str:
    """The command lines of this machine that hold it."""
    argv = [sys.executable, "-I", "-c", READ_ALL, text]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def told(team: Team) -> str:
    """What the model was asked first, by its user."""
    body: Any = team.claude.model.turns[0].body
    if "contents" in body:
        return str(body["contents"][-1]["parts"][-1]["text"])
    if "input" in body:
        asked = [one["content"][-1]["text"] for one in body["input"] if one.get("role") == "user"]
        return codex.find_prompt(asked[-1])
    content = [one["content"] for one in body["messages"] if one["role"] == "user"][-1]
    return str(content if isinstance(content, str) else content[-1]["text"])


def start_of(session: Path, **fields: Any) -> Start:
    role = Role(name="worker", agent_type="claude", env=fields.pop("role_env", {}))
    return Start(role=role, words=(), prompt="heron", session=session, **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["codex", *(pytest.param(k, marks=pytest.mark.storm) for k in ("real", "gemini"))]
)
def test_b6_another_user_reads_no_prompt_on_a_command_line(tmp_path: Path, kind: str) -> None:
    marker = f"heron{uuid.uuid4().hex}"
    with made_team(tmp_path, kind) as team:
        team.run(name="amy", prompt=f"[[hold a ; say ok]] {marker}")
        team.claude.model.wait_held("a")
        assert seen_by_others(marker) == ""
        assert told(team) == f"[[hold a ; say ok]] {marker}"
        flag = "--prompt-interactive" if kind == "gemini" else "--"
        words = [flag, f"[[hold b ; say ok]] {marker}"]
        team.pen.run(role="worker", name="bob", words=words, cwd=str(team.claude.work))
        team.claude.model.wait_held("b")
        assert marker in seen_by_others(marker), "an argument is there for all to read"
        team.claude.model.release("a")
        team.claude.model.release("b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("real", "long"),
        ("gemini", "template"),
        ("codex", "lines"),
        *(
            pytest.param(kind, name, marks=pytest.mark.storm)
            for kind in ("real", "gemini", "codex")
            for name in AWKWARD
        ),
    ],
)
@pytest.mark.few(1)
def test_b6_the_model_gets_the_first_prompt_as_it_is(tmp_path: Path, kind: str, name: str) -> None:
    prompt = AWKWARD[name]
    with made_team(tmp_path, kind) as team:
        amy = team.run(name="amy", prompt=prompt)
        amy.wait_said("ok")
        # Gemini CLI cuts blanks at the end, also of an argument.
        assert told(team) == (prompt.strip() if kind == "gemini" else prompt)
        assert len(team.claude.model.turns) == 1


@pytest.mark.slow
@pytest.mark.storm
def test_b6_a_sandboxed_agent_gets_its_first_prompt_and_nobody_else_reads_it(
    tmp_path: Path,
) -> None:
    marker = f"egret{uuid.uuid4().hex}"
    with made_team(tmp_path, "real") as team:
        team.role("inside", sandbox={"enabled": True, "allow_network": True})
        amy = team.run("inside", prompt=f"[[hold a ; say ok]]\n{marker}")
        team.claude.model.wait_held("a")
        assert seen_by_others(marker) == ""
        assert told(team) == f"[[hold a ; say ok]]\n{marker}"
        team.claude.model.release("a")
        amy.wait_said("ok")


@pytest.mark.slow
@pytest.mark.storm
def test_b6_what_an_agent_starts_knows_nothing_of_how_it_got_its_prompt(tmp_path: Path) -> None:
    """A Node or Bun program that it runs does not load our file."""
    with made_team(tmp_path, "real") as team:
        team.role("free", permissions={"allow": ["Bash"]})
        tool = json.dumps({"command": "env >seen", "description": "look"})
        amy = team.run("free", prompt=f"[[tool Bash {tool} ; say ok]]")
        amy.wait_said("ok")
        seen = (team.claude.work / "seen").read_text()
        assert "OPTIONS" not in seen


@pytest.mark.slow
@pytest.mark.storm
def test_b6_a_restart_does_not_give_the_first_prompt_again(tmp_path: Path) -> None:
    with made_team(tmp_path, "real") as team:
        amy = team.run(name="amy", prompt="[[say ok]]")
        amy.wait_said("ok")
        assert team.cli("restart", "amy").code == 0
        amy.wait("idle")
        amy.submit("[[say again]]")
        amy.wait_said("again")
        assert len(team.claude.model.turns) == 2


def test_b6_where_no_runtime_loads_the_file_the_model_is_told_where_its_prompt_is(
    tmp_path: Path,
) -> None:
    first = make_first_prompt(start_of(tmp_path))
    assert str(tmp_path / TEXT) in first.word[0]
    assert first.files[TEXT] == "heron"
    assert "heron" not in json.dumps([first.before, first.word])


def test_b6_a_runtime_keeps_the_options_that_it_had(tmp_path: Path) -> None:
    own = {"NODE_OPTIONS": "--max-old-space-size=4096"}
    first = make_first_prompt(start_of(tmp_path, env=own))
    assert f'NODE_OPTIONS=--max-old-space-size=4096 --require "{tmp_path / SCRIPT}"' in first.before
    assert "--max-old-space-size=4096" in first.files[SCRIPT]
    inside = make_first_prompt(start_of(tmp_path, env=own, is_sandboxed=True))
    assert "4096" not in json.dumps([inside.before, dict(inside.files)])
    role = make_first_prompt(start_of(tmp_path, role_env=own, is_sandboxed=True))
    assert "4096" in json.dumps(role.before)


def test_b6_an_agent_without_a_first_prompt_starts_as_ever(tmp_path: Path) -> None:
    first = make_first_prompt(Start(role=None, words=(), session=tmp_path))
    assert (first.before, first.word, dict(first.files)) == ((), (), {})


@pytest.mark.slow
def test_b6_codex_in_a_sandbox_gets_its_first_prompt_and_no_link_in_its_way_is_followed(
    tmp_path: Path,
) -> None:
    marker, bait = f"stork{uuid.uuid4().hex}", tmp_path / "bait"
    (bait / "first-prompt").mkdir(parents=True)
    (bait / "first-prompt" / "kept").touch()
    with made_team(tmp_path, "codex") as team:
        key = {"FAKE_KEY": team.claude.env["FAKE_KEY"]}
        team.role("inside", env=key, sandbox={"enabled": True, "allow_network": True})
        amy = team.run("inside")
        amy.wait_ready()
        assert team.cli("stop", "amy").code == 0
        skills = team.pen.home.session("amy") / "codex-sandboxed" / "skills"
        shutil.rmtree(skills)
        skills.symlink_to(bait)  # as its program could have left it
        amy = team.run("inside", prompt=f"[[hold a ; say ok]]\n{marker}")
        team.claude.model.wait_held("a")
        assert seen_by_others(marker) == ""
        assert told(team) == f"[[hold a ; say ok]]\n{marker}"
        team.claude.model.release("a")
        amy.wait_said("ok")
    assert [path.name for path in bait.rglob("*")] == ["first-prompt", "kept"]


def make_codex_ready(session: Path, prompt: str) -> tuple[str, ...]:
    """Its files; what its command line has."""
    start = Start(role=Role(name="w", agent_type="codex"), words=(), prompt=prompt, session=session)
    first = codex.make_first_prompt(start)
    codex.write_skill(start, first.files)
    return first.word


def test_b6_codex_finds_its_prompt_in_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    (word,) = make_codex_ready(tmp_path, "heron")
    file = tmp_path / "codex/skills/first-prompt/SKILL.md"
    assert str(file) in word, "also for a model that has to read it itself"
    assert file.read_text().endswith("---\nheron")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_b6_codex_started_without_a_prompt_has_none_of_before(tmp_path: Path) -> None:
    make_codex_ready(tmp_path, "heron")
    assert make_codex_ready(tmp_path, "") == ()
    assert list((tmp_path / "codex/skills").iterdir()) == []


def test_b6_what_codex_shows_of_a_first_prompt_is_read_as_that_prompt() -> None:
    text = f"{codex.HEADER}a\n</skill>\nb\n"
    shown = f"<skill>\n<name>first-prompt</name>\n<path>/x</path>\n{text}\n</skill>"
    assert codex.find_prompt(shown) == "a\n</skill>\nb\n"
    assert codex.find_prompt(shown.replace("first-prompt</name>", "other</name>")) == ""
