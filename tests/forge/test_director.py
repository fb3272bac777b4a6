"""Directors of GitHub and GitLab as processes: D2, D3, D4, D8. Real hub, real sandbox and worktree,
real git; the agent is the stand-in (in the storm the real Claude Code)."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.client import AsyncHub
from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.forge.tasks import HubTasks
from tests.directors.running import RunningDirector
from tests.forge.server import Forge, git, served_github, served_gitlab
from tests.forge.world import World
from tests.hub.tasks.desk import Desk, made_desk
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
WHO = "git -c user.name=Amy -c user.email=amy@example.com"
GREET = f"echo hello > greeting && git add greeting && {WHO} commit -qm Greet"


@pytest.fixture
def kind() -> str:
    """Which forge; a test with both says so."""
    return "github"


@pytest.fixture
def forge(tmp_path: Path, kind: str) -> Iterator[Forge]:
    served = {"github": served_github, "gitlab": served_gitlab}[kind]
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    (tmp_path / "forge").mkdir()
    with served(tmp_path / "forge", world) as made:
        yield made
        assert made.faults == []


@pytest.fixture(params=["standin", pytest.param("real", marks=pytest.mark.storm)])
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    (tmp_path / "desk").mkdir()
    with made_desk(tmp_path / "desk", request.param) as made:
        made.pen.start()
        yield made


@contextlib.contextmanager
def director(
    desk: Desk, forge: Forge, type: str = "github", **config: Any
) -> Iterator[RunningDirector]:
    """Running, until the end of the block."""
    made = RunningDirector(desk.pen, "robo")
    fields = {
        "type": type,
        "repo": "acme/shop",
        "server": forge.url,
        "role": "amy",
        "port": desk.pen.free_port(),
        "poll_interval": "1s",
        **config,
    }
    made.file.write_text(json.dumps(fields))
    made.start()
    try:
        yield made
        ran = made.cli("director", "stop", "robo")
        assert ran.code == 0, ran
    finally:
        with contextlib.suppress(AssertionError):
            made.kill()


def script(*steps: str) -> str:
    return f"[[{' ; '.join(steps)}]]"


def bash(command: str) -> str:
    return f"tool Bash {json.dumps({'command': command})}"


@pytest.mark.parametrize("kind", ["github", "gitlab"])
@pytest.mark.few(1)
def test_d2_d4_an_issue_becomes_an_approved_pull_by_an_agent_in_its_sandbox(
    desk: Desk, forge: Forge, kind: str
) -> None:
    """And the agent finds the forge's token nowhere (D3)."""
    token = forge.token("bot")
    secret = desk.pen.home.credentials / f"{kind}-token"
    secret.write_text(token + "\n")
    secret.chmod(0o600)
    desk.agent("amy")
    look = f"cat {secret} /proc/[0-9]*/environ; env; git config --list; git remote -v; ls -a .git"
    # It forgets to commit at first; what it saw stays outside of the commit.
    body = script(bash(f"echo hello > greeting; ({look}) > seen 2>&1"), "say I greet")
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet people", body)
    review = script(bash(f"test -e .done || {{ {GREET}; touch .done; }}"), "say LGTM")
    prompts = {"review": f"Look at {{{{.Number}}}} {review}"}
    with director(desk, forge, kind, prompts=prompts) as robo:
        wait_until(lambda: bool(world.said(number, "bot")), 120)
        held = robo.ask("GET", "/tasks")["tasks"]
        assert [(one["id"], one["title"]) for one in held] == [
            (f"#{number}", "[robo] Greet people")
        ]
        [listed] = json.loads(robo.cli("director", "list", "--json").out)["directors"]
        assert (listed["state"], listed["problems"]) == ("working", [])
        robo.kill()
        robo.start()
        wait_until(lambda: bool(world.pulls), 120)
        [pull] = world.pulls
        assert pull.pull is not None and not pull.pull.draft
        assert "I greet" in pull.body
        assert git(forge.bare, "show", "claude/issue-1:greeting") == "hello"
        world.react(pull.number, "ann", "+1")
        wait_until(lambda: pull.labels == ["approved"], 120)
        wait_until(lambda: robo.ask("GET", "/history")["total"] == 1, 60)
        [row] = robo.ask("GET", "/history")["items"]
        assert (row["id"], row["state"]) == (f"#{number}", "approved")
        assert robo.ask("GET", "/tasks") == {"tasks": [], "problems": []}
        memory = json.loads((robo.file.with_suffix("") / "memory.json").read_text())
        assert memory["memory"]["origin"] == f"{kind} {forge.url} acme/shop"
    assert len(world.said(pull.number, "bot")) == 1
    assert len(world.pulls) == 1
    [claim] = world.said(number, "bot")
    assert "works on this" in claim
    [status] = [each for each in world.issues.values() if each.title == "Status of robo"]
    assert status.state == "closed"
    [seen] = desk.pen.home.worktrees.glob("*/seen")
    assert "BULLPEN_" in seen.read_text() and token not in seen.read_text()


@pytest.mark.storm
def test_d3_agents_without_a_sandbox_are_refused(desk: Desk, forge: Forge) -> None:
    desk.role("amy", sandbox={"enabled": False})
    with pytest.raises(AssertionError, match="role amy works without a sandbox"):  # noqa: SIM117
        with director(desk, forge):
            pass
    assert forge.asked == []


def test_d3_what_a_director_gives_is_never_done_without_a_sandbox(
    desk: Desk,
) -> None:
    clone = desk.pen.root.parent / "shop"  # tasks may work there
    git(desk.pen.root.parent, "init", "-q", "-b", "main", "shop")
    git(clone, "commit", "-q", "--allow-empty", "-m", "first")
    desk.agent("amy", walls=False)
    config = ForgeConfig.model_validate({"type": "github", "repo": "acme/shop", "agent": "amy"})

    async def fail() -> str:
        tasks = HubTasks(AsyncHub(desk.pen.home), config)
        given = await tasks.give(
            "1" * 32, "[[say hi]]", session_id="", repo=str(clone), branch="claude/issue-1"
        )
        desk.over(given.task_id)
        assert await tasks.find_refused(given.task_id) == ""
        return (await tasks.look(given.task_id)).failure

    assert "amy works without one" in asyncio.run(fail())


@pytest.mark.storm
def test_d2_a_director_does_not_start_on_what_it_remembers_of_another_repository(
    desk: Desk, forge: Forge
) -> None:
    desk.role("amy", sandbox={"enabled": True})
    memory = desk.pen.home.directors / "robo" / "memory.json"
    memory.parent.mkdir(mode=0o700, parents=True)
    before = json.dumps({"memory": {"origin": f"github {forge.url} acme/other"}})
    memory.write_text(before)
    with pytest.raises(AssertionError, match=r"is about github .* acme/other, and not"):  # noqa: SIM117
        with director(desk, forge):
            pass
    assert (memory.read_text(), forge.asked) == (before, [])
