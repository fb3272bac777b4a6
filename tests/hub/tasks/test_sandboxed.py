"""Walls as the hub builds them: from a role and a directory, and shut when they cannot be built."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import ENGINES, Start, get_engine
from bullpen.errors import BullpenError, Kind
from bullpen.hub.sandbox.policy import (
    SandboxError,
    SandboxPlan,
    _is_known_to_work,
    _network,
    _prefixes,
    plan,
    tunnel_hosts,
    wrap_command,
)
from bullpen.model.role import Role
from bullpen.sandboxes import limits
from bullpen.worktrees.changes import VerifiedCheckout
from bullpen.worktrees.git import Repository
from tests.hub.tasks.desk import Desk

pytestmark = pytest.mark.slow

WHO = ("-c", "user.name=me", "-c", "user.email=me@example.com")
NO_NAMESPACES = "bwrap: No permissions to create new namespace, likely because the kernel does not"


def bash(command: str) -> str:
    return f"[[tool Bash {json.dumps({'command': command})} ; say done]]"


# ── a person's own checkout ──


@pytest.fixture
def checkout(desk: Desk) -> Path:
    """Below the directory that holds the home: tasks may work there."""
    path = desk.pen.root.parent / "shop"
    git("init", "-q", "-b", "main", str(path))
    git("-C", str(path), *WHO, "commit", "-q", "--allow-empty", "-m", "first")
    return path


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True, timeout=60)


PLANT = "git config core.fsmonitor ./planted; echo 'echo planted >>ran' >planted; chmod +x planted"


def plant(desk: Desk, checkout: Path, *, walls: bool) -> bool:
    """Whether what an agent left in a person's checkout runs when the person asks git something."""
    desk.agent("amy", walls=walls, role={"permissions": {"allow": ["Bash"]}})
    desk.done(desk.give("amy", bash(f"{PLANT}; echo hi >made"), workdir=str(checkout)))
    assert (checkout / "made").read_text() == "hi\n", "its files are the agent's to change"
    git("-C", str(checkout), "status")
    return (checkout / "ran").exists()


@pytest.mark.storm
def test_x5_nothing_runs_that_an_agent_planted_in_a_persons_checkout(
    desk: Desk, checkout: Path
) -> None:
    assert not plant(desk, checkout, walls=True)
    # Nor when one that worked around it before could have made it.
    desk.done(desk.give("amy", "[[say x]]", workdir=str(checkout.parent)))
    desk.done(desk.give("amy", bash(PLANT), workdir=str(checkout)))
    git("-C", str(checkout), "status")
    assert not (checkout / "ran").exists()


@pytest.mark.storm
def test_x5_without_walls_it_runs(desk: Desk, checkout: Path) -> None:
    assert plant(desk, checkout, walls=False)


@pytest.mark.storm
def test_x2_a_role_may_make_its_own_directory_read_only(desk: Desk, checkout: Path) -> None:
    box = {
        "read_only_paths": [
            ".",
            str(Path(__file__).parents[3]),
            str(desk.claude.program.parent),
        ]
    }
    desk.agent("amy", role={"sandbox": box})
    desk.done(desk.give("amy", bash("echo hi >made"), workdir=str(checkout)))
    assert not (checkout / "made").exists()


@pytest.mark.storm
def test_x2_a_repository_that_an_agent_made_stays_its_own(desk: Desk) -> None:
    """Nobody else works in the directory of its session."""
    desk.agent("amy", role={"permissions": {"allow": ["Bash"]}})
    first = desk.done(desk.give("amy", bash("git init -q -b main . && echo one >a")))
    commit = f"git {' '.join(WHO)} add a && git {' '.join(WHO)} commit -q -m one"
    session = first["session_id"]
    desk.done(desk.give("amy", bash(f"{commit} && git log --oneline >log"), session_id=session))
    assert "one" in (Path(first["directory"]) / "log").read_text()


# ── shut ──


@pytest.fixture
def no_namespaces(desk: Desk, tmp_path: Path) -> None:
    """As on a system that does not let ordinary programs have them."""
    program = tmp_path / "without" / "bwrap"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{NO_NAMESPACES}' >&2\nexit 1\n")
    program.chmod(0o755)
    desk.pen.env["PATH"] = f"{program.parent}:{desk.pen.env['PATH']}"
    desk.pen.start()


@pytest.mark.usefixtures("no_namespaces")
def test_x3_a_task_fails_shut_and_says_what_to_do(desk: Desk, tmp_path: Path) -> None:
    desk.agent("amy", role={"permissions": {"allow": ["Bash"]}})
    task = desk.over(desk.give("amy", bash(f"touch {tmp_path}/ran")))
    assert (task["state"], task["error"]["type"]) == ("failed", "sandbox_error")
    said = task["error"]["message"]
    assert NO_NAMESPACES in said
    for help in ("apparmor_restrict_unprivileged_userns=0", "container", "sandbox.enabled: false"):
        assert help in said
    assert not (tmp_path / "ran").exists()
    assert task["runs"] == [], "nothing was started"


@pytest.mark.usefixtures("no_namespaces")
def test_x3_so_does_an_agent_in_a_terminal(desk: Desk) -> None:
    desk.role("walled", sandbox={"enabled": True})
    ran = desk.cli("run", "--role", "walled", "--name", "bob", "--detach")
    assert ran.code == 3
    assert NO_NAMESPACES in ran.err
    assert "bob" not in desk.cli("list").out


def test_x3_a_task_for_a_sandbox_alone_does_not_run_when_that_was_turned_off(desk: Desk) -> None:
    desk.agent("amy")
    desk.role("amy", sandbox={"enabled": False})
    task = desk.over(desk.offer("[[say hi]]", role="amy", sandboxed="required"))
    assert (task["state"], task["error"]["type"]) == ("failed", "sandbox_error")
    assert "amy works without one" in task["error"]["message"]
    assert task["runs"] == [], "nothing was started"
    assert desk.done(desk.offer("[[say hi]]", role="amy"))["output"] == "hi"


@pytest.mark.storm
def test_x3_a_wall_that_breaks_while_it_is_built_is_no_way_out(desk: Desk, tmp_path: Path) -> None:
    """It works when it is tried, and not when it counts."""
    program = tmp_path / "sometimes" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/broken ] || exec /usr/bin/bwrap "$@"\n'
        f"echo '{NO_NAMESPACES}' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    desk.pen.env["PATH"] = f"{program.parent}:{desk.pen.env['PATH']}"
    desk.pen.start()
    desk.agent("amy")
    desk.done(desk.give("amy", "[[say hi]]"))
    (tmp_path / "broken").touch()
    task = desk.over(desk.give("amy", "[[say hi]]"))
    assert (task["state"], task["error"]["type"]) == ("failed", "sandbox_error")
    assert len(task["runs"]) == 1, "not tried again"


@pytest.mark.storm
def test_x7_links_in_its_git_are_not_in_the_repository_and_its_commit_is(
    desk: Desk, checkout: Path
) -> None:
    """A log of git's that is a link would have the next git outside write where it leads."""
    victim = desk.pen.root.parent / "victim"
    victim.write_text("as it was")
    desk.agent("amy", role={"permissions": {"allow": ["Bash"]}})
    logs = checkout / ".git" / "logs" / "refs" / "heads"
    link = f"mkdir -p {logs} && ln -sf {victim} {logs}/main && ls -l {logs}/main >seen"
    link += f" && git {' '.join(WHO)} commit -q --allow-empty -m Mine"
    task = desk.give("amy", bash(link), repo=str(checkout), worktree="work")
    found = desk.done(task)
    assert str(victim) in (Path(found["directory"]) / "seen").read_text(), "it could be made"
    assert not (logs / "main").is_symlink()
    assert [line.partition(" ")[2] for line in found["commits"]] == ["Mine"]
    git("-C", str(checkout), "merge-base", "--is-ancestor", "work~1", "work")
    git("-C", str(checkout), *WHO, "commit", "-q", "--allow-empty", "-m", "second")
    assert victim.read_text() == "as it was"


@pytest.mark.storm
def test_x2_limits_of_agents_that_ended_are_removed(desk: Desk) -> None:
    where = limits.find().pids
    if where is None:
        pytest.skip("processes are not limited by a cgroup here")

    def groups() -> list[str]:
        own = f"{limits.prefix(desk.pen.root)}limited-*"
        return [path.name for path in where.parent.glob(own)]

    assert groups() == []
    desk.agent("limited")
    desk.done(desk.give("limited", "[[say hi]]"))
    assert len(groups()) == 1
    desk.pen.client().delete("agents", "limited")
    assert groups() == []


def test_x2_an_engine_sees_its_own_variables_and_a_plain_program_those_of_all() -> None:
    own = {name: set(_prefixes(engine)) for name, engine in ENGINES.items()}
    assert "ANTHROPIC_" in own["claude"] and "OPENAI_" in own["codex"]
    models = [name for name in own if name != "command"]
    assert all(not own[a] & own[b] for a in models for b in models if a != b)
    assert own["command"] == set().union(*(own[name] for name in models))


# ── from a role and a directory to a policy, without a hub ──


class Planned:
    """The walls of amy in that directory."""

    def __init__(
        self, root: Path, checkout: VerifiedCheckout | None = None, **sandbox: Any
    ) -> None:
        self.root = root
        env = sandbox.pop("env", {})
        role = Role.model_validate(
            {"name": "r", "agent_type": "command", "command": ["x"], "sandbox": sandbox}
        )
        start = Start(
            role=role,
            words=(),
            agent="amy",
            cwd=str(root / "cwd"),
            session=root / "session",
            home=root / "home",
            person=root / "person",
            env=env,
        )
        unsure = root / "unsure"
        engine = get_engine("command")
        self.sandbox_plan = plan(
            9000,
            role,
            engine,
            start,
            checkout,
            unsure=unsure,
            real_cwd="",
            keep=("A",),
            is_terminal=True,
        )
        self.policy = self.sandbox_plan.policy


@pytest.mark.parametrize("is_main", [True, False])
def test_x5_the_repository_of_a_main_checkout_is_not_the_agents_to_write(
    tmp_path: Path, is_main: bool
) -> None:
    common = tmp_path / "repo" / ".git"
    own = common if is_main else common / "worktrees" / "amy"
    tree = tmp_path / "tree"
    policy = Planned(tmp_path, VerifiedCheckout(Repository(own, common, tree), tree)).policy
    assert policy.git is not None
    assert (policy.git.common, policy.git.admin) == (common, own)
    assert (tree in policy.writable) == (not is_main)
    assert policy.read_only == (tmp_path / "unsure",)  # git is not run there, nobody writes there
    assert policy.sockets == tmp_path / "session" / "api"
    assert policy.keep == {"A"}


def test_x2_the_network_is_the_roles_to_allow_and_leads_nowhere_by_itself(tmp_path: Path) -> None:
    assert Planned(tmp_path, allow_network=True).policy.network is None
    closed = Planned(tmp_path, allow_network=False)
    assert closed.policy.network is not None
    assert closed.policy.network.hosts == tunnel_hosts(closed.sandbox_plan) == ()
    assert tunnel_hosts(None) == ()
    # Of three who want to listen inside, none takes the place of another.
    network = _network(3128, ("api:443", "near:3129"))
    assert (network.hub_port, network.proxy_port) == (3128, 3130)


def test_x2_an_ssh_agent_is_given_when_the_role_says_so_and_it_is_there(tmp_path: Path) -> None:
    socket = tmp_path / "agent"
    env = {"SSH_AUTH_SOCK": str(socket)}
    assert Planned(tmp_path, ssh_agent=True, env=env).policy.ssh_agent is None
    socket.touch()
    assert Planned(tmp_path, ssh_agent=True, env=env).policy.ssh_agent == socket
    assert Planned(tmp_path, ssh_agent=False, env=env).policy.ssh_agent is None


def test_x2_paths_and_limits_are_as_the_role_writes_them(tmp_path: Path) -> None:
    named = {"read_only_paths": ["/etc/x", "~/.y", "z/../a"], "read_write_paths": ["~", "b"]}
    policy = Planned(tmp_path, **named, memory_mb=64, processes=16).policy
    person, cwd = tmp_path / "person", tmp_path / "cwd"
    assert policy.read_only[:3] == (Path("/etc/x"), person / ".y", cwd / "a")
    assert policy.writable[-2:] == (person, cwd / "b")
    assert (policy.memory_bytes, policy.processes) == (64 << 20, 16)


class FailingSandbox:
    """Looks fine until walls are to be built."""

    name = "failing"

    def __init__(self, step: str) -> None:
        self.step = step

    def unavailable(self) -> str:
        return "not here" if self.step == "unavailable" else ""

    def prepare(self, _policy: object) -> None:
        if self.step == "prepare":
            raise BullpenError("cannot prepare", hint="mend it", kind=Kind.DENIED)

    def wrap(self, *_: object) -> None:
        raise BullpenError("cannot wrap", kind=Kind.DENIED)


@pytest.mark.parametrize("step", ["unavailable", "prepare", "wrap"])
def test_x3_whatever_step_of_a_wall_fails_nothing_is_started(tmp_path: Path, step: str) -> None:
    sandbox_plan = SandboxPlan(FailingSandbox(step), Planned(tmp_path).policy)  # type: ignore[arg-type]
    for _ in range(2):  # what was not there once is looked for again
        with pytest.raises(SandboxError) as failed:
            wrap_command(sandbox_plan, ("x",), {})
        assert (
            failed.value.message
            == {
                "unavailable": "not here",
                "prepare": "cannot prepare",
                "wrap": "cannot wrap",
            }[step]
        )
    _is_known_to_work.discard("failing")
