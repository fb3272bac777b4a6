"""Sequences: the next member goes on from the branch of the one before, with its result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.hub.agents.start import Starter
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.tasks.queue import TaskQueue
from bullpen.hub.workflows import plan
from bullpen.hub.workflows.sequence import Workflows
from tests.hub.pods.support import asked, deadly_hub, launch, write_template
from tests.hub.tasks.desk import Desk, made_desk
from tests.hub.workflows.sequences import script, tasks_of, wait_end, write_pod
from tests.steps import after, before
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_desk(tmp_path_factory.mktemp("sequence")) as made:
        yield made


@pytest.mark.storm
def test_p4_the_next_goes_on_from_the_branch_and_the_result_of_the_one_before(desk: Desk) -> None:
    """And the hub is killed while the first works, and while the second does."""
    repo = write_pod(
        desk,
        "relay",
        ("ann", script("one", "hold first", "say It is in line 3.")),
        ("ben", script("two", "hold second", "say Mended.")),
    )
    ran = desk.pen.cli("pod", "launch", "relay", "--prompt", "Find the bug", cwd=repo)
    assert (ran.code, ran.err) == (0, ""), ran
    assert ran.out.startswith("pod relay is running: ann, then ben\n")
    for hold in ("first", "second"):
        desk.claude.wait_held(hold)
        desk.pen.kill_hub()
        desk.pen.start()
        desk.claude.release(hold)
    assert wait_end(desk, "relay") == ""
    assert git(repo, "log", "--format=%s", "-2", "ben").split() == ["two", "one"]
    assert git(repo, "log", "--format=%s", "-1", "main") != "one"
    commit(repo, "later")
    trees = desk.pen.cli("worktree", "list", "--json", cwd=repo).json["worktrees"]
    far = {each["name"]: (each["base"], each["ahead"], each["behind"]) for each in trees}
    assert far == {"ann": ("main", 1, 1), "ben": ("main", 2, 1)}  # what would land
    [one] = tasks_of(desk, "ann")
    [two] = tasks_of(desk, "ben")
    assert (one["state"], two["state"]) == ("completed", "completed")
    told = desk.prompt_of(str(two["task_id"]))
    assert "Find the bug" in told and "It is in line 3." in told
    agents = desk.pen.agents()
    assert {name: agents[name]["pod"] for name in ("ann", "ben")} == {
        "ann": "relay",
        "ben": "relay",
    }
    assert not agents["ann"]["running"] and not agents["ben"]["running"]
    assert "pod relay is finished, on branch ben" in desk.pen.cli("inbox").out
    again = desk.pen.cli("pod", "launch", "relay", cwd=repo)
    assert (again.code, "there is a worktree ann already" in again.err) == (5, True)


@pytest.mark.storm
def test_p4_a_plain_program_is_told_its_prompt_alone(desk: Desk) -> None:
    repo = write_pod(desk, "printed", ("ida", "[[say It is in line 3.]]"))
    rules = {"worktree": {"enabled": True}, "sandbox": {"enabled": False}}
    desk.role("printer", agent_type="command", command=["/bin/cat"], **rules)
    write_template(
        desk.pen,
        "printed",
        'name: ida, role: worker, prompt: "[[say It is in line 3.]]"',
        "name: jon, role: printer, prompt: print this",
        workflow="sequence",
    )
    assert desk.pen.cli("pod", "launch", "printed", cwd=repo).code == 0
    assert wait_end(desk, "printed") == ""
    [printed] = tasks_of(desk, "jon")
    assert desk.task(str(printed["task_id"]))["output"] == "print this"


@pytest.mark.storm
def test_p4_a_failure_stops_the_pod(desk: Desk) -> None:
    repo = write_pod(desk, "broken", ("cat", "[[status 400]]"), ("dan", "[[say never]]"))
    assert desk.pen.cli("pod", "launch", "broken", cwd=repo).code == 0
    assert wait_end(desk, "broken").startswith("cat: task t-")
    assert tasks_of(desk, "dan") == []
    assert not any(desk.pen.agents()[name]["running"] for name in ("cat", "dan"))
    assert "pod broken stopped: cat: task t-" in desk.pen.cli("inbox").out


@pytest.mark.storm
def test_p6_stop_ends_a_sequence(desk: Desk) -> None:
    repo = write_pod(desk, "stopped", ("eve", "[[hold third ; say x]]"), ("flo", "[[say never]]"))
    assert desk.pen.cli("pod", "launch", "stopped", cwd=repo).code == 0
    desk.claude.wait_held("third")
    assert desk.pen.cli("pod", "stop", "stopped", "--force").code == 0
    assert wait_end(desk, "stopped")
    assert tasks_of(desk, "flo") == []
    assert not any(desk.pen.agents()[name]["running"] for name in ("eve", "flo"))


def test_p4_a_sequence_needs_worktrees(desk: Desk) -> None:
    desk.role("plain", sandbox={"enabled": False})
    write_template(desk.pen, "flat", "name: gus, role: plain, prompt: x", workflow="sequence")
    ran = desk.pen.cli("pod", "launch", "flat", cwd=make_repo(desk.pen.root.parent / "flat"))
    assert (ran.code, "gus: role plain has no worktree" in ran.err) == (2, True), ran
    assert "gus" not in desk.pen.agents()


# ── the hub is killed ──

STEPS = {
    "begun": before(Workflows._start),
    "first started": after(Starter.start),
    "all started": after(Workflows._start),
    "first worktree made": after(plan.make_tree),
    "first task about to be given": before(TaskQueue.offer),
    "first task given": after(TaskQueue.offer),
    "second worktree made": after(plan.make_tree, 2),
    "second task given": after(TaskQueue.offer, 2),
    "end about to be noted": before(Workflows._end),
    "one stopped at the end": after(Stopper.stop),
    "person told": after(Delivery.send),
}
NEVER_STARTED = ("begun", "first started")


@pytest.mark.parametrize(
    "step",
    [
        "first worktree made",
        *(
            pytest.param(step, marks=pytest.mark.storm)
            for step in STEPS
            if step != "first worktree made"
        ),
    ],
)
@pytest.mark.storm
def test_p4_hub_killed_anywhere_gives_each_task_once(tmp_path: Path, step: str) -> None:
    with made_desk(tmp_path) as desk:
        repo = write_pod(desk, "relay", ("ann", script("one", "say A.")), ("ben", script("two")))
        with deadly_hub(desk.pen, STEPS[step]):
            launch(desk.pen, asked(desk.pen, "relay", repo))
        desk.pen.start()
        end = wait_end(desk, "relay")
        counts = [len(tasks_of(desk, name)) for name in ("ann", "ben")]
        if step in NEVER_STARTED:
            assert end.endswith("was stopped") and counts == [0, 0]
        else:
            assert (end, counts) == ("", [1, 1])
            assert git(repo, "log", "--format=%s", "-2", "ben").split() == ["two", "one"]
        assert desk.pen.cli("inbox").out.count("pod relay") == 1
        assert not any(agent["running"] for agent in desk.pen.agents().values())
