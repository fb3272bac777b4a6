"""Hubs killed between two steps of a spawn, a report, a wait, a merge or a hand-over of orphans:
all of it has happened, or nothing; and the same request, sent again, ends well and once."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from bullpen.hot import wire
from bullpen.hub.agents import intent as launch_intent
from bullpen.hub.agents import sessions
from bullpen.hub.agents.intent import LaunchUndo
from bullpen.hub.agents.remove import Remover
from bullpen.hub.agents.start import Starter
from bullpen.hub.landing import steps
from bullpen.hub.landing.rows import LandingRows
from bullpen.hub.messages.box import Messages
from bullpen.hub.tree import children, queue
from bullpen.hub.tree.orphans import Orphans
from bullpen.hub.tree.queue import Queue
from bullpen.hub.tree.spawn import Spawner
from tests.hub.pods.support import deadly_hub
from tests.hub.tree.support import PROGRAM, Grove, made_grove
from tests.processes import kill
from tests.steps import after, before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow

SPAWN = {
    "intent about to be kept": before(launch_intent.launching),
    "about to start": before(Spawner._carry_out),
    "first about to start": before(Starter._start),
    "second about to start": before(Starter._start, 2),
    "first session made": after(sessions.create),
    "second session made": after(sessions.create, 2),
    "all started": before(launch_intent.outcome),
    "outcome kept": after(Spawner._carry_out),
}
REPORT = {
    "about to be put": before(children.Children._tell),
    "in the transaction": before(Queue.write),
    "written, not committed": after(Queue.write),
    "committed": after(children.Children._tell),
}
WAIT = {
    "about to be acknowledged": before(Queue.acknowledge),
    "acknowledged": after(Queue.acknowledge),
    "about to be marked": before(queue._mark_returned),
    "marked": after(queue._mark_returned),
    "about to be answered": after(Queue.next_event),
}
ORPHANS = {
    "about to be adopted": before(Orphans._adopt),
    "messages about to move": before(Messages.redirect),
    "messages moved": after(Messages.redirect),
    "first adopted": after(sessions.rewrite),
    "adopted": after(Orphans._adopt),
    "events about to move": before(Queue.move),
    "events moved": after(Queue.move),
}
EXIT = {
    "about to be told": before(children.Children._tell_exit),
    "in the transaction": before(Queue.write),
    "written, not committed": after(Queue.write),
    "told": after(children.Children._tell_exit),
}
IDLE = {
    "about to be told": before(children.Children._tell_idle),
    "written, not committed": after(Queue.write),
    "told": after(children.Children._tell_idle),
}
MERGE = {
    "about to be kept": before(LandingRows.put),
    "kept": after(LandingRows.put),
    "about to be built": before(steps.build_chain),
    "about to move": before(steps.move_target),
    "moved": after(steps.move_target),
    "about to be said": before(LandingRows.put, 4),
    "said": after(LandingRows.put, 4),
    "about to be removed": before(Remover.remove),
    "worktree about to go": before(Remover._remove_tree),
    "worktree gone": after(Remover._remove_tree),
    "session about to go": before(sessions.remove),
    "session gone": after(sessions.remove),
    "removed": after(Remover.remove),
    "clean-up noted": after(LandingRows.put, 5),
}
SUBTREE = {
    "about to start": before(Starter._start),
    "session made": after(sessions.create),
    "started": after(Starter._start),
    "outcome about to be kept": before(launch_intent.outcome),
    "outcome kept": after(launch_intent.outcome),
}
WORKERS = [{"name": "a", "task": "x"}, {"name": "b", "task": "x"}]


def few(steps: dict[str, str], quick: str) -> list[object]:
    """One of them in every run, the others in a storm."""
    return [
        pytest.param(step, id=name, marks=() if name == quick else pytest.mark.storm)
        for name, step in steps.items()
    ]


def attempt(grove: Grove, *words: str, **arguments: object) -> None:
    """A call under which the hub may die."""
    with contextlib.suppress(wire.HubError, OSError, AssertionError):
        grove.call(*words, **arguments)


def wait_taken_back(grove: Grove) -> None:
    """All that was begun. A hub that starts waits for that, but not for ever."""

    def ids(*kinds: str) -> set[str]:
        return {event["id"] for kind in kinds for event in grove.pen.events("lead", kind)}

    wait_until(lambda: ids("spawn.launching") <= ids("spawn.launched", "spawn.failed"))


@pytest.mark.parametrize("step", few(SPAWN, "second about to start"))
def test_m2_a_spawn_that_is_cut_off_leaves_nothing_or_all(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step):
            attempt(grove, "lead", "spawn_workers", "r1", workers=WORKERS)
        grove.pen.start()
        wait_taken_back(grove)
        both = {"lead.w.a", "lead.w.b"}
        assert grove.names() - {"lead"} in (set(), both)
        answer = grove.call("lead", "spawn_workers", "r1", workers=WORKERS)
        assert {each["name"] for each in answer["started"]} == both
        agents = grove.pen.agents()
        assert all(agents[name]["running"] for name in both)
        assert agents.keys() == {"lead", *both}
        assert [kind for _, kind in grove.kinds("lead")] == []


@pytest.mark.parametrize("step", few(SUBTREE, ""))
def test_m1_a_subtree_that_is_cut_off_is_one_in_the_end(step: str) -> None:
    asked = {"task": "x", "branch_name": "csv", "role": "coder"}
    with made_grove() as grove:
        grove.run("lead")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step):
            attempt(grove, "lead", "spawn_subtree", "r1", **asked)
        grove.pen.start()
        wait_taken_back(grove)
        assert grove.call("lead", "spawn_subtree", "r1", **asked)["name"] == "main.csv"
        assert grove.pen.agents()["main.csv"]["running"]
        assert grove.names() == {"lead", "main.csv"}
        assert (grove.branches(), grove.worktrees()) == ({"main", "main.csv"}, {"main.csv"})
        assert grove.kinds("lead") == []


@pytest.mark.parametrize("step", few(EXIT, ""))
def test_m3_an_end_that_is_cut_off_is_told_once(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        child = grove.spawn("lead", "csv")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step):
            kill(grove.pen.program(child))
        grove.pen.start()
        assert grove.wait("lead")["kind"] == "child_exited"
        grove.pen.kill_hub()
        grove.pen.start()
        assert grove.kinds("lead") == [(child, "child_exited")]


@pytest.mark.parametrize("step", few(IDLE, ""))
def test_m3_a_turn_without_a_report_is_told_once_whoever_is_killed(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        child = grove.spawn("lead", "csv")
        grove.pen.kill_hub()
        end = ("POST", f"/agents/{child}/hooks", {"hook_event_name": "Stop"})
        with deadly_hub(grove.pen, step), contextlib.suppress(Exception):
            grove.pen.ask(*end)
        grove.pen.start()
        grove.pen.ask(*end)
        assert grove.wait("lead")["kind"] == "child_idle"
        assert grove.kinds("lead") == [(child, "child_idle")]


@pytest.mark.parametrize("step", few(MERGE, "session gone"))
def test_m6_a_merge_that_is_cut_off_lands_once_and_forgets_nothing_that_was_spent(
    step: str,
) -> None:
    with made_grove() as grove:
        tree = {"enabled": True}
        grove.pen.role("coder", **PROGRAM, worktree=tree, budget={"tokens": 1000})
        grove.run("lead", role="coder")
        child = grove.spawn("lead", "csv")
        commit(grove.pen.root / "worktrees" / child, "a.txt", "a\n")
        grove.spend(child, 200)
        grove.pen.stop(child)
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step):
            attempt(grove, "lead", "merge_child", name=child)
        grove.pen.start()
        assert grove.call("lead", "merge_child", name=child)["state"] == "landed"
        wait_until(lambda: child not in grove.names())
        wait_until(lambda: grove.worktrees() == {"lead"})
        assert (grove.pen.root / "worktrees" / "lead" / "a.txt").read_text() == "a\n"
        assert git(grove.repo, "rev-list", "--count", "--merges", "lead") == "1"
        again = grove.spawn("lead", "csv")
        assert grove.pen.agents()[again]["budget"]["tokens"] == 400


@pytest.mark.parametrize("step", few({"worktree": after(LaunchUndo.take_back)}, ""))
def test_m1_taking_back_that_is_cut_off_is_done_again(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, before(launch_intent.outcome)):
            attempt(grove, "lead", "spawn_subtree", "r1", task="x", branch_name="a", role="coder")
        with deadly_hub(grove.pen, step):
            pass
        grove.pen.start()
        wait_until(lambda: grove.names() == {"lead"})
        wait_until(lambda: grove.worktrees() == set())
        assert grove.branches() == {"main"}


@pytest.mark.parametrize("step", few(REPORT, "written, not committed"))
@pytest.mark.storm
def test_m3_a_report_that_is_cut_off_is_told_once(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        child = grove.spawn("lead", "csv")
        grove.pen.kill_hub()
        report = {"status": "success", "message": "done"}
        with deadly_hub(grove.pen, step):
            attempt(grove, child, "notify_parent", "r1", **report)
        grove.pen.start()
        grove.call(child, "notify_parent", "r1", **report)
        assert grove.wait("lead")["data"] == report
        grove.pen.stop(child)
        assert grove.kinds("lead") == [(child, "child_finished")]


@pytest.mark.parametrize("step", few(WAIT, "about to be answered"))
@pytest.mark.storm
def test_m4_an_event_that_was_not_answered_comes_again(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        children_ = [grove.spawn("lead", name) for name in ("a", "b")]
        for child in children_:
            grove.call(child, "notify_parent", status="success", message=child)
        first = grove.wait("lead")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step), ThreadPoolExecutor(1) as pool:
            pool.submit(attempt, grove, "lead", "wait_for_event", after=first["id"])
        grove.pen.start()
        assert grove.wait("lead", after=first["id"])["from"] == children_[1]


@pytest.mark.parametrize("step", few(ORPHANS, "messages moved"))
def test_i4_a_hand_over_that_is_cut_off_is_finished_by_the_next_hub(step: str) -> None:
    with made_grove() as grove:
        grove.run("lead")
        middle = grove.spawn("lead", "mid")
        leaf = grove.spawn(middle, "leaf")
        # From now on what agents write to it waits.
        grove.pen.role("coder", **{**PROGRAM, "deliver": "lines"}, worktree={"enabled": True})
        grove.pen.client().post("agents", middle, "restart")
        grove.call(leaf, "notify_parent", status="success", message="first")
        grove.call(leaf, "send_message", to="parent", text="hello")
        grove.pen.kill_hub()
        with deadly_hub(grove.pen, step), contextlib.suppress(Exception):
            grove.pen.ask("DELETE", f"/agents/{middle}?grace=0")
        grove.pen.start()
        wait_until(lambda: grove.pen.agents()[leaf]["parent"] == "lead")
        wait_until(lambda: (leaf, "child_finished") in grove.kinds("lead"))
        heard = [event["data"].get("message") for event in grove.queue("lead")]
        assert heard.count("first") == 1
        inbox = ("agents", "lead", "messages")
        wait_until(
            lambda: [m["text"] for m in grove.pen.client().get(*inbox)["messages"]] == ["hello"]
        )
