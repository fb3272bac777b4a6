"""Ports of worktrees, as agents and people see them: in the environment, and in commands."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import BULLPEN
from tests.engines.team import Agent, Team, made_team
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import asked as pod_body
from tests.hub.pods.support import launch, write_role, write_template
from tests.hub.programs import SLEEP
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until
from tests.worktrees.port_ranges import own_range
from tests.worktrees.repos import git, make_repo

pytestmark = pytest.mark.slow

TREE = "worktree: {enabled: true, branch_from: main, ports: 3}"


def set_range(pen: Pen, ports: range) -> None:
    with (pen.root / "config.yaml").open("a") as file:
        file.write(f"worktrees:\n  port_range: {ports[0]}-{ports[-1]}\n")


@pytest.fixture
def ports() -> Iterator[range]:
    """Room for two blocks of three."""
    with own_range(6) as ports:
        yield ports


@pytest.fixture
def home(ports: range) -> Iterator[Pen]:
    with made_pen() as pen:
        make_repo(repo_of(pen))
        set_range(pen, ports)
        write_role(pen, "worker", list(SLEEP), TREE)
        yield pen


def repo_of(pen: Pen) -> Path:
    return pen.root.parent / "repo"


def environment(pen: Pen, name: str) -> dict[str, str]:
    """Of the program that runs, as the kernel has it. Between fork and exec it is another's."""
    pid = json.loads((pen.session(name) / "holder.json").read_text())["child"]
    found: dict[str, str] = {}

    def is_there() -> bool:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found.update(os.fsdecode(pair).split("=", 1) for pair in pairs if pair)
        return found.get("BULLPEN_ACTOR") == name

    wait_until(is_there)
    return found


def shown(pen: Pen, name: str) -> list[int]:
    ran = pen.cli("worktree", "info", name, "--json")
    assert ran.code == 0, ran
    found: list[int] = json.loads(ran.out)["ports"]
    return found


def variables(name: str, ports: list[int]) -> dict[str, str]:
    return {
        "PORT": str(ports[0]),
        "COMPOSE_PROJECT_NAME": name,
        **{f"BULLPEN_PORT_{number}": str(port) for number, port in enumerate(ports)},
    }


def of_ports(env: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name in ("PORT", "COMPOSE_PROJECT_NAME") or name.startswith("BULLPEN_PORT_")
    }


def run(pen: Pen, name: str, *words: str, **env: str) -> None:
    words = ("run", "--detach", "--role", "worker", "--name", name, *words)
    ran = pen.cli(*words, cwd=repo_of(pen), **env)
    assert ran.code == 0, ran


@pytest.mark.storm
def test_w17_agents_in_terminals_have_ports_of_their_own_whatever_becomes_of_the_hub(
    home: Pen, ports: range
) -> None:
    run(home, "amy", PORT="80", COMPOSE_PROJECT_NAME="shop")
    run(home, "bob")
    amy, bob = shown(home, "amy"), shown(home, "bob")
    assert sorted(amy + bob) == list(ports)
    assert of_ports(environment(home, "amy")) == variables("amy", amy)
    assert of_ports(environment(home, "bob")) == variables("bob", bob)
    assert f"ports        {amy[0]}-{amy[-1]}\n" in home.cli("worktree", "info", "amy").out
    home.kill_hub()
    home.start()
    assert home.cli("restart", "amy").code == 0
    assert of_ports(environment(home, "amy")) == variables("amy", amy)
    home.stop("bob")
    run(home, "bob")
    assert of_ports(environment(home, "bob")) == variables("bob", bob)


@pytest.mark.storm
def test_w17_a_range_without_a_free_block_refuses_the_start_and_leaves_nothing(home: Pen) -> None:
    run(home, "amy")
    run(home, "bob")
    words = ("run", "--detach", "--role", "worker", "--name", "cleo")
    refused = home.cli(*words, cwd=repo_of(home))
    assert refused.code != 0
    assert "no 3 ports in a row are free" in refused.err
    assert "worktrees.port_range" in refused.err
    assert "cleo" not in home.agents()
    assert not (home.root / "worktrees" / "cleo").exists()
    assert "cleo" not in git(repo_of(home), "branch", "--list")
    # A worktree that was deleted by hand has given its own back.
    freed = shown(home, "bob")
    home.stop("bob")
    shutil.rmtree(home.root / "worktrees" / "bob")
    git(repo_of(home), "worktree", "unlock", str(home.root / "worktrees" / "bob"), check=False)
    git(repo_of(home), "worktree", "prune")
    run(home, "cleo")
    assert shown(home, "cleo") == freed


@pytest.mark.storm
def test_w17_the_roles_own_variables_win_and_a_worktree_without_ports_has_none(home: Pen) -> None:
    write_role(home, "worker", list(SLEEP), TREE, 'env: {PORT: "8080"}')
    run(home, "amy")
    amy = shown(home, "amy")
    assert of_ports(environment(home, "amy")) == {**variables("amy", amy), "PORT": "8080"}
    run(home, "bob", "--override", "worktree.ports=0", PORT="80")
    assert shown(home, "bob") == []
    assert of_ports(environment(home, "bob")) == {"PORT": "8080"}


def test_w17_members_of_a_pod_have_ports_of_their_own(home: Pen, ports: range) -> None:
    write_template(home, "pair", "name: amy, role: worker", "name: bob, role: worker")
    home.start()
    lines = launch(home, pod_body(home, "pair", repo_of(home)))
    assert lines[-1].get("step") == "running", lines
    assert sorted(shown(home, "amy") + shown(home, "bob")) == list(ports)
    assert of_ports(environment(home, "bob")) == variables("bob", shown(home, "bob"))


@pytest.mark.storm
def test_w17_a_heartbeats_condition_knows_the_ports(home: Pen) -> None:
    told = home.root.parent / "told"
    is_idle = f"""echo '{{"hook_event_name": "Stop"}}' | {BULLPEN} hook; exec sleep 1000"""
    beat = {"idle_timeout": "1s", "message": "x", "condition": f"echo $PORT > {told}"}
    write_role(home, "worker", ["/bin/sh", "-c", is_idle], TREE, f"heartbeat: {json.dumps(beat)}")
    run(home, "amy")
    wait_until(lambda: told.exists() and told.read_text() != "")
    assert told.read_text() == f"{shown(home, 'amy')[0]}\n"


@pytest.mark.storm
def test_w17_two_homes_on_one_machine(ports: range) -> None:
    """What one of them uses the other does not get."""
    listen = (
        "import os, socket, time\n"
        "server = socket.create_server(('', int(os.environ['BULLPEN_PORT_1'])))\n"
        "open('listening', 'w').close()\n"
        "time.sleep(1000)\n"
    )
    with made_pen() as one, made_pen() as two:
        for pen in (one, two):
            make_repo(repo_of(pen))
            set_range(pen, ports)
            write_role(pen, "worker", ["python3", "-c", listen], TREE)
        run(one, "amy")
        wait_until((one.root / "worktrees" / "amy" / "listening").exists)
        run(two, "bob")
        wait_until((two.root / "worktrees" / "bob" / "listening").exists)
        used = shown(one, "amy")[1]
        assert used not in shown(two, "bob")


# ── tasks, and the engines' own programs ──


def told(desk: Desk, repo: Path, command: str, **fields: object) -> tuple[str, dict[str, object]]:
    """What the command prints in a task of amy's, and the task."""
    script = f"[[tool Bash {json.dumps({'command': f'{command} > told'})} ; say done]]"
    where = {} if "session_id" in fields else {"repo": str(repo), "worktree": "feature/One"}
    found = desk.done(desk.give("amy", script, **where, **fields))
    return (Path(found["directory"]) / "told").read_text(), found


@pytest.mark.storm
def test_w17_a_sandboxed_task_knows_the_ports_of_its_worktree(tmp_path: Path, ports: range) -> None:
    with made_desk(tmp_path) as desk:
        set_range(desk.pen, ports)
        repo = make_repo(desk.pen.root.parent / "shop")
        role = {"permissions": {"allow": ["Bash"]}, "worktree": {"enabled": True, "ports": 3}}
        desk.agent("amy", role=role)
        line = "echo $PORT $BULLPEN_PORT_0 $BULLPEN_PORT_1 $BULLPEN_PORT_2 $COMPOSE_PROJECT_NAME"
        text, task = told(desk, repo, line)
        first, *rest = text.split()
        block = shown(desk.pen, "feature~One")
        assert block in (list(ports[:3]), list(ports[3:]))
        assert [first, *rest[:3]] == [*map(str, [block[0], *block])]
        assert rest[3].startswith("feature-one-"), "a name that Compose takes"
        # In the same session, and in another one in the same worktree.
        again, _ = told(desk, repo, line, session_id=task["session_id"])
        other, _ = told(desk, repo, line, env={"PORT": "99"})
        assert again == text
        assert other.split() == ["99", *rest]
        desk.role("amy", **role, sandbox=box(desk), env={"COMPOSE_PROJECT_NAME": "mine"})
        changed, _ = told(desk, repo, line)
        assert changed.split() == [first, *rest[:3], "mine"]


@pytest.mark.storm
def test_w17_a_session_whose_worktree_has_no_ports_gets_them_with_its_next_task(
    tmp_path: Path, ports: range
) -> None:
    with made_desk(tmp_path) as desk:
        set_range(desk.pen, ports)
        repo = make_repo(desk.pen.root.parent / "shop")
        role = {"permissions": {"allow": ["Bash"]}}
        desk.agent("amy", role=role)
        text, task = told(desk, repo, "echo ${PORT-none}")
        assert text == "none\n"
        role["worktree"] = {"enabled": True, "ports": 3}
        desk.role("amy", **role, sandbox=box(desk))
        text, _ = told(desk, repo, "echo ${PORT-none}", session_id=task["session_id"])
        assert text == f"{shown(desk.pen, 'feature~One')[0]}\n"


def box(desk: Desk) -> dict[str, object]:
    root = Path(__file__).parents[3]
    return {"enabled": True, "read_only_paths": [str(root), str(desk.claude.program.parent)]}


@pytest.mark.storm
def test_w17_commands_of_a_real_agent_in_its_sandbox_listen_at_its_ports(
    tmp_path: Path, ports: range
) -> None:
    with made_team(tmp_path, "real") as team:
        set_range(team.pen, ports)
        repo = make_repo(repo_of(team.pen))
        team.role(
            "worker",
            sandbox={"enabled": True},
            permissions={"allow": ["Bash"]},
            worktree={"enabled": True, "branch_from": "main", "ports": 3},
        )
        amy = start(team, repo)
        block = shown(team.pen, "amy")
        code = "import os,socket;socket.create_server(('127.0.0.1',int(os.environ['PORT'])))"
        command = f'python3 -c "{code}" && env | grep -E "^(PORT|COMPOSE_|BULLPEN_PORT_)" > told'
        amy.submit(f"[[tool Bash {json.dumps({'command': command})} ; say listened]]")
        amy.wait_said("listened")
        lines = (team.pen.root / "worktrees" / "amy" / "told").read_text().splitlines()
        assert dict(line.split("=", 1) for line in lines) == variables("amy", block)


def start(team: Team, repo: Path) -> Agent:
    team.pen.run(role="worker", name="amy", words=[], cwd=str(repo))
    amy = Agent(team, "amy")
    amy.wait("idle")
    return amy
