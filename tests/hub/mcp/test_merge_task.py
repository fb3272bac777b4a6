"""An agent takes what a task that it gave has committed into its own branch (M7, N6, D5). A real
hub; who gives is a plain program in a terminal or in a task, who takes runs what it is told."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from bullpen import worktrees
from bullpen.hot import wire
from bullpen.hub.landing import steps
from bullpen.hub.landing.rows import LandingRows
from bullpen.hub.tasks import merge
from bullpen.hub.tasks.merge import TaskMerger
from bullpen.hub.tasks.merged import MergedTasks
from bullpen.model.task import Giver
from bullpen.worktrees.remove import remove as remove_worktree
from tests.hub.http.inside import made_inside
from tests.hub.pods.support import deadly_hub
from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.steps import after, before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow

OPEN = {"sandbox": {"enabled": False}}
GIVER = {**PROGRAM, **OPEN, "capabilities": ["delegate"], "worktree": {"enabled": True}}
WAITS = {**GIVER, "command": ["sleep", "300"]}  # in a task, which goes on
OVER = ("completed", "failed", "cancelled")
WHO = "-c user.name=Dev -c user.email=dev@example.com"


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        begin(made)
        yield made


def begin(grove: Grove) -> None:
    """Lea gives tasks in a terminal, and dev takes them."""
    for name, fields in (("giver", GIVER), ("goal", WAITS)):
        grove.pen.role(name, **fields)
    grove.pen.role("shell", **{**PROGRAM, "command": ["sh"]}, **OPEN)
    grove.run("lea", role="giver")
    assert grove.pen.cli("agent", "start", "dev", "--role", "shell").code == 0


def write(file: str) -> str:
    return f"echo {file} > {file} && git add {file} && git {WHO} commit -qm {file}"


def done(grove: Grove, prompt: str, giver: str = "lea", **fields: str) -> str:
    """A task that is over; its id."""
    agent = {} if "continue_task" in fields else {"agent": "dev"}
    id = str(grove.call(giver, "delegate_task", prompt=prompt, **agent, **fields)["task_id"])
    return ended(grove, id)


def ended(grove: Grove, id: str) -> str:
    client = grove.pen.client
    wait_until(lambda: client().get("task", id)["state"] in OVER)
    return id


def count(grove: Grove, branch: str) -> int:
    """Of what has landed there."""
    return int(git(grove.repo, "rev-list", "--count", "--merges", branch))


def test_n6_d5_what_a_task_committed_lands_in_the_branch_of_the_agent_that_gave_it(
    grove: Grove,
) -> None:
    lea = grove.pen.root / "worktrees" / "lea"
    tip = commit(lea, "own.txt")
    task = done(grove, f"git rev-parse HEAD; {write('a.txt')}", branch_name="side/a")
    assert grove.pen.client().get("task", task)["output"].strip() == tip  # begun there
    (lea / "a.txt").write_text("mine\n")
    refused = grove.call("lea", "merge_task", task_id=task)
    assert (refused["state"], refused["files"]) == ("refused", ["a.txt"]), refused
    assert refused["hint"].endswith("call merge_task again")
    (lea / "a.txt").unlink()
    landed = grove.call("lea", "merge_task", task_id=task)
    assert (landed["state"], landed["into"]) == ("landed", "lea"), landed
    assert (lea / "a.txt").read_text() == "a.txt\n"
    assert grove.call("lea", "merge_task", task_id=task) == landed
    # Its conversation can be continued as long as lea runs.
    more = done(grove, write("b.txt"), continue_task=task)
    assert grove.call("lea", "merge_task", task_id=more, strategy="squash")["state"] == "landed"
    assert (lea / "b.txt").exists() and grove.worktrees() == {"lea", "side~a"}
    grove.pen.stop("lea")
    wait_until(lambda: grove.worktrees() == {"lea"})
    wait_until(lambda: grove.branches() == {"main", "lea"})


def test_n6_d5_what_is_not_over_or_not_committed_or_on_no_branch_does_not_land(
    grove: Grove,
) -> None:
    left = done(grove, f"{write('a.txt')}; echo b > b.txt", branch_name="a")
    words = rf"uncommitted files \(b.txt\).*continue_task {left}; then merge_task again"
    with pytest.raises(ToolError, match=words):
        grove.call("lea", "merge_task", task_id=left)
    going = grove.call("lea", "delegate_task", prompt="sleep 300", continue_task=left)["task_id"]
    for task in (going, left):
        with pytest.raises(ToolError, match=f"{going} is not over"):
            grove.call("lea", "merge_task", task_id=task)
    grove.call("lea", "cancel_task", task_id=going)
    ended(grove, going)
    with pytest.raises(ToolError, match="has no branch that could land"):
        grove.call("lea", "merge_task", task_id=done(grove, "true"))
    clean = done(grove, "rm b.txt", continue_task=left)
    assert grove.call("lea", "merge_task", task_id=clean)["state"] == "landed"
    # What landed but has got more since stays when nobody can go on in it.
    commit(grove.pen.root / "worktrees" / "a", "more.txt")
    grove.pen.stop("lea")
    wait_until(lambda: not grove.pen.client().get("landings")["landings"])
    assert "a" in grove.worktrees()


@pytest.mark.storm
def test_n6_d5_who_works_on_no_branch_of_its_own_takes_no_work(grove: Grove) -> None:
    grove.pen.role("bare", **{**GIVER, "worktree": {"enabled": False}})
    grove.run("bob", role="bare")
    client = grove.pen.client()
    task = done(grove, write("a.txt"), "bob")
    with pytest.raises(ToolError, match="bob works on no branch of its own"):
        grove.call("bob", "merge_task", task_id=task)
    assert client.get("landings")["landings"] == []


# ── attacks: whose work it is ──


def of_another_agent(grove: Grove) -> str:
    grove.run("bob", role="giver")
    return done(grove, write("a.txt"), "bob", branch_name="a")


def of_another_goal(grove: Grove) -> str:
    """Of the same agent, whose present task is another."""
    assert grove.pen.cli("agent", "start", "leo", "--role", "goal").code == 0
    first = begin_goal(grove, "first")
    task = done(grove, write("a.txt"), "leo", branch_name="a")
    grove.pen.client().post("task", first, "cancel")
    ended(grove, first)
    begin_goal(grove, "second")
    return task


def of_a_stranger(grove: Grove) -> str:
    """The worktree of the task is gone, and a person has made one of its name."""
    task = done(grove, write("a.txt"), branch_name="a")
    assert grove.pen.cli("worktree", "remove", "--force", "a", cwd=grove.repo).code == 0
    assert grove.pen.cli("worktree", "create", "a", cwd=grove.repo).code == 0
    commit(grove.pen.root / "worktrees" / "a", "secret.txt")
    return task


def begin_goal(grove: Grove, branch: str) -> str:
    client = grove.pen.client
    body = {"prompt": "x", "agent": "leo", "workdir": str(grove.repo), "branch": branch}
    id = str(client().post("tasks", body=body)["task_id"])
    wait_until(lambda: client().get("task", id)["state"] == "working")
    return id


def is_all(giver: Giver, other: Giver) -> bool:
    return True


ATTACKS: dict[str, tuple[Callable[[Grove], str], str, tuple[object, str, object]]] = {
    "another agent": (of_another_agent, "lea", (Giver, "is_same", is_all)),
    "another goal": (of_another_goal, "leo", (Giver, "is_same", is_all)),
    "a stranger": (of_a_stranger, "lea", (merge, "is_of_task", lambda _record, _session: True)),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "is_defended", [True, pytest.param(False, marks=pytest.mark.storm)], ids=["defended", "not"]
)
@pytest.mark.few(3)
def test_i2_d5_an_agent_takes_the_work_of_its_own_tasks_alone(
    attack: str, is_defended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, taker, check = ATTACKS[attack]
    with made_grove() as grove:
        monkeypatch.setenv("HOME", grove.pen.env["HOME"])  # of the hub in this process
        if not is_defended:
            monkeypatch.setattr(*check)
        with made_inside(grove.pen, has_tools=True):
            begin(grove)
            task = prepare(grove)
            if is_defended:
                with pytest.raises(ToolError, match=r"that you delegated|was removed, or is"):
                    grove.call(taker, "merge_task", task_id=task)
            else:
                assert grove.call(taker, "merge_task", task_id=task)["state"] == "landed"


# ── killed between two steps ──

MERGE = {
    "about to be asked": before(TaskMerger._plan),
    "about to be kept": before(LandingRows.put),
    "kept": after(LandingRows.put),
    "about to be built": before(steps.build_chain),
    "about to move": before(steps.move_target),
    "moved": after(steps.move_target),
    "about to be said": before(LandingRows.put, 4),
    "said": after(LandingRows.put, 4),
}
CLEAN_UP = {
    "about to go": before(remove_worktree),
    "gone": after(MergedTasks._remove),
    "about to be noted": before(LandingRows.put),
    "noted": after(LandingRows.put),
}


def few(steps_of: dict[str, str], quick: str) -> list[object]:
    """One of them in every run, the others in a storm."""
    return [
        pytest.param(step, id=name, marks=() if name == quick else pytest.mark.storm)
        for name, step in steps_of.items()
    ]


@pytest.mark.parametrize("step", few(MERGE, "moved"))
def test_n5_d5_a_merge_that_is_cut_off_lands_once(grove: Grove, step: str) -> None:
    task = done(grove, write("a.txt"), branch_name="a")
    grove.pen.kill_hub()
    with deadly_hub(grove.pen, step), contextlib.suppress(wire.HubError, OSError, AssertionError):
        grove.call("lea", "merge_task", "once", task_id=task)
    grove.pen.start()
    assert grove.call("lea", "merge_task", "once", task_id=task)["state"] == "landed"
    assert count(grove, "lea") == 1
    assert (grove.pen.root / "worktrees" / "lea" / "a.txt").exists()
    grove.pen.stop("lea")
    wait_until(lambda: grove.worktrees() == {"lea"})


@pytest.mark.storm
@pytest.mark.parametrize("step", few(CLEAN_UP, ""))
def test_n5_d5_a_clean_up_that_is_cut_off_is_done_again(grove: Grove, step: str) -> None:
    task = done(grove, write("a.txt"), branch_name="a")
    assert grove.call("lea", "merge_task", task_id=task)["state"] == "landed"
    grove.pen.kill_hub()
    with deadly_hub(grove.pen, step), contextlib.suppress(wire.HubError, OSError):
        grove.pen.ask("DELETE", "/agents/lea?grace=0")
    grove.pen.start()
    wait_until(lambda: grove.worktrees() == {"lea"})
    wait_until(lambda: grove.branches() == {"main", "lea"})
    wait_until(lambda: not grove.pen.client().get("landings")["landings"])
    assert worktrees.exists(worktrees.open_site(grove.repo, grove.pen.root / "worktrees"), "lea")
