"""The environment of an agent: the shell's that asked for it, cleaned, and what is added; and
what a command inside of it can do with that."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.hub.agents import sessions
from bullpen.hub.agents.environment import own_variables
from bullpen.model.agent import Agent
from bullpen.sandboxes.base import Policy
from bullpen.sandboxes.environment import cut
from tests.commands import BULLPEN
from tests.hub.pen import Pen, made_pen
from tests.hub.programs import python
from tests.listing import read_files
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Writes what it was born with to argv[1], and stays.
TELL = """
import json, os, sys, time
mask = os.umask(0)
told = {"env": dict(os.environ), "umask": mask, "cwd": os.getcwd(), "size": os.get_terminal_size(0),
        "tty": os.isatty(0), "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:-1]}
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(told, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def told_pen() -> Iterator[Pen]:
    with made_pen() as pen:
        pen.start()
        yield pen


@pytest.fixture
def inside(told_pen: Pen) -> Iterator[Pen]:
    yield told_pen
    for name, agent in told_pen.agents().items():
        if agent["running"]:
            told_pen.stop(name)


def told(pen: Pen, tmp_path: Path, name: str, **fields: Any) -> dict[str, Any]:
    """What a program says that was started like that."""
    note = tmp_path / f"{name}.json"
    env = {**pen.env, **fields.pop("env", {})}
    pen.run(*python(TELL, note), name=name, env=env, **fields)
    wait_until(note.exists)
    found: dict[str, Any] = json.loads(note.read_text())
    return found


def test_h7_agent_gets_the_shells_environment_cleaned(inside: Pen, tmp_path: Path) -> None:
    dropped = {
        "BULLPEN_DIR": "/another/home",
        "BULLPEN_ACTOR": "somebody",
        "BULLPEN_TOKEN": "bullpen_of_somebody",
        "BULLPEN_PORT": "1",
        "_BULLPEN_COMPLETE": "x",
        "GIT_DIR": "/x",
        "GIT_WORK_TREE": "/x",
        "GIT_INDEX_FILE": "/x",
        "TERM": "dumb",
        "TMUX": "/tmp/tmux",
        "COLUMNS": "7",
    }
    kept = {"VIRTUAL_ENV": "/venv", "GIT_AUTHOR_NAME": "Tess", "EMPTY": "", "ÜML": "äöü €"}
    found = told(inside, tmp_path, "born", pod="pond", env={**dropped, **kept})["env"]
    assert {name: found.get(name) for name in kept} == kept
    assert found["PATH"] == inside.env["PATH"]
    expected = {
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "BULLPEN_DIR": str(inside.root),
        "BULLPEN_ACTOR": "born",
        "BULLPEN_POD": "pond",
        "BULLPEN_SESSION_DIR": str(inside.session("born")),
    }
    assert {name: found[name] for name in expected} == expected
    assert found["BULLPEN_TOKEN"] not in ("", "bullpen_of_somebody")
    ours = {name for name in found if name.startswith(("BULLPEN_", "_BULLPEN_"))}
    assert ours == {name for name in expected if name.startswith("BULLPEN")} | {"BULLPEN_TOKEN"}
    assert not {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "TMUX", "COLUMNS"} & set(found)


def test_h7_agent_starts_in_the_shells_directory_umask_and_size(
    inside: Pen, tmp_path: Path
) -> None:
    place = tmp_path / "some where"
    place.mkdir()
    found = told(inside, tmp_path, "placed", cwd=str(place), umask=0o027, rows=33, cols=111)
    assert found["cwd"] == str(place)
    assert found["umask"] == 0o027
    assert found["size"] == [111, 33]
    assert found["tty"]
    assert found["fds"] == [0, 1, 2]
    again = inside.client().post("agents", "placed", "restart", grace=0)
    assert again["cwd"] == str(place)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"LANG": "C.UTF-8"}),
        ({"LANG": "de_DE.UTF-8"}, {"LANG": "de_DE.UTF-8"}),
        ({"LC_ALL": "C"}, {"LC_ALL": "C"}),
    ],
)
def test_h7_locale_is_utf8_if_none_is_set(
    inside: Pen, tmp_path: Path, given: dict[str, str], expected: dict[str, str]
) -> None:
    note = tmp_path / "note"
    env = {name: value for name, value in inside.env.items() if name != "LANG"}
    inside.run(*python(TELL, note), name="local", env={**env, **given})
    wait_until(note.exists)
    found = json.loads(note.read_text())["env"]
    names = ("LANG", "LC_ALL")  # Python adds LC_CTYPE where a locale is not installed
    assert {name: found[name] for name in names if name in found} == expected


def test_h7_roles_variables_win_over_the_shells_and_ours_over_both(
    inside: Pen, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    program = json.dumps(list(python(TELL, note)))
    (inside.root / "roles" / "worldly.yaml").write_text(
        f"name: worldly\nagent_type: command\ncommand: {program}\n"
        "env:\n  COLOUR: blue\n  TERM: vt100\n"
    )
    inside.run(words=[], role="worldly", env={**inside.env, "COLOUR": "red"})
    wait_until(note.exists)
    found = json.loads(note.read_text())["env"]
    assert (found["COLOUR"], found["TERM"]) == ("blue", "vt100")
    assert (found["BULLPEN_ACTOR"], found["BULLPEN_ROLE"]) == ("worldly", "worldly")


def test_h7_ssh_agent_is_a_link_that_follows_the_person(inside: Pen, tmp_path: Path) -> None:
    link = inside.root / "sockets" / "ssh-agent"
    assert "SSH_AUTH_SOCK" not in told(inside, tmp_path, "without")["env"]
    with socket.socket(socket.AF_UNIX) as first:
        first.bind(str(tmp_path / "first"))
        found = told(inside, tmp_path, "one", env={"SSH_AUTH_SOCK": str(tmp_path / "first")})
        assert found["env"]["SSH_AUTH_SOCK"] == str(link)
        assert link.readlink() == tmp_path / "first"
    told(inside, tmp_path, "two", env={"SSH_AUTH_SOCK": str(tmp_path / "second")})
    assert link.readlink() == tmp_path / "second"
    # From inside an agent: the link must not come to point at itself.
    told(inside, tmp_path, "three", env={"SSH_AUTH_SOCK": str(link)})
    assert link.readlink() == tmp_path / "second"


def test_h7_environment_is_kept_for_restarts_and_only_there(inside: Pen, tmp_path: Path) -> None:
    secret = "s3cret-of-the-shell"
    found = told(inside, tmp_path, "kept", env={"API_KEY": secret})["env"]
    assert found["API_KEY"] == secret
    (tmp_path / "kept.json").unlink()
    inside.client().post("agents", "kept", "restart", grace=0)
    wait_until((tmp_path / "kept.json").exists)
    assert json.loads((tmp_path / "kept.json").read_text())["env"] == found
    files = read_files(inside.root)
    holding = [path for path, data in files.items() if secret.encode() in data]
    assert holding == [inside.session("kept") / "private" / "env"]
    assert holding[0].stat().st_mode & 0o777 == 0o600


def test_h7_command_inside_an_agent_acts_as_it_in_its_home_and_pod(
    inside: Pen, tmp_path: Path
) -> None:
    found = told(inside, tmp_path, "caller", pod="pond")["env"]
    inside.run(name="stranger", pod="sea")
    elsewhere = {**found, "HOME": str(tmp_path)}

    def bullpen(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BULLPEN, *words],
            cwd=tmp_path,
            env=elsewhere,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    listed = bullpen("list")
    assert listed.returncode == 0, listed
    assert "caller" in listed.stdout
    assert "stranger" not in listed.stdout  # of another pod
    assert "stranger" in bullpen("list", "--pod", "*").stdout
    for words in (("stop", "stranger"), ("kill", "caller"), ("send-keys", "stranger", "x")):
        refused = bullpen(*words)
        assert refused.returncode == 6, (words, refused)
        assert "may do that" in refused.stderr
    assert {inside.state(name) for name in ("caller", "stranger")} == {
        "unknown (it reports no state)"
    }
    hooked = subprocess.run(
        [BULLPEN, "hook"],
        env=elsewhere,
        input=json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Bash"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, "", "")
    assert inside.state("caller") == "working (Bash)"


def test_h7_variables_that_no_json_can_carry_stay_behind(inside: Pen, tmp_path: Path) -> None:
    note = tmp_path / "note"
    done = subprocess.run(
        [BULLPEN, "run", "--name", "bytes", "--", *python(TELL, note)],
        env={
            **{os.fsencode(k): os.fsencode(v) for k, v in inside.env.items()},
            b"BULLPEN_DIR": os.fsencode(inside.root),
            b"LATIN": b"\xe4",
            b"PLAIN": b"yes",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    wait_until(note.exists)
    found = json.loads(note.read_text())["env"]
    assert found["PLAIN"] == "yes"
    assert "LATIN" not in found


def test_h7_large_environment_and_many_words(inside: Pen, tmp_path: Path) -> None:
    env = {f"V{number}": "x" * 1000 for number in range(1000)}
    assert len(told(inside, tmp_path, "large", env=env)["env"]) > 1000
    with pytest.raises(BullpenError) as refused:  # more than the kernel gives to a program
        inside.run(sys.executable, *["y" * 100_000] * 40, name="larger")
    assert "Argument list too long" in refused.value.message
    assert "larger" not in inside.agents()


def test_x5_an_environment_of_before_sandboxes_is_moved_out_of_their_sight(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.sessions / "amy").mkdir(parents=True)
    (home.sessions / "amy" / "env").write_text('{"env": {"API_KEY": "x"}}')
    sessions.delete_half_made(home)
    assert not (home.sessions / "amy" / "env").exists()
    assert sessions.load_launch_env(home, "amy").env == {"API_KEY": "x"}
    assert home.private("amy").stat().st_mode & 0o777 == 0o700


def test_h7_what_every_agent_gets_reaches_a_sandbox(tmp_path: Path) -> None:
    agent = Agent(name="amy", run="r", role="a", pod="b", parent="c", cwd="/", created="now")
    own = own_variables(Home(tmp_path), agent, "token")
    policy = Policy(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
    assert all(own.values())
    assert cut(own, policy) == own, "list the new name in sandboxes/environment.py, too"
