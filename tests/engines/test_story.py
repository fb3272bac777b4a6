"""Trees of real programs, whole stories: every engine, every way to end, hubs that are killed.

The scripted models do as they were told; the test holds and releases them, so that everything
happens in one order, and looks at the tree after each step."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.story import (
    Story,
    bash,
    call,
    made_story,
    report,
    script,
    wait,
    waits,
    worker,
)
from tests.processes import kill
from tests.waiting import wait_until
from tests.worktrees.repos import git

pytestmark = pytest.mark.storm


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with made_story(tmp_path) as made:
        yield made


def test_m2_m3_workers_of_three_engines_are_heard_of_once_and_in_order(story: Story) -> None:
    workers = [
        worker("gem", "hold gem", report("cannot", "failure", "gemini"), "say no", role="gemini"),
        worker("dex", "hold dex", report("done", engine="codex"), "say yes", role="codex"),
        worker("old", "hold old", "say never"),
    ]
    story.run("amy", call("spawn_workers", workers=workers), *waits(3), "say heard all")
    story.wait_held("gem", "dex", "old")
    story.kill_hub()
    expected = []
    for name in ("gem", "dex", "old"):
        if name == "old":
            kill(story.pen.program("amy.w.old"))
        story.release(name)
        kind = "child_exited" if name == "old" else "child_finished"
        expected.append((f"amy.w.{name}", kind))
        story.wait_events("amy", expected)
    story.agent("amy").wait_said("heard all")
    assert story.heard("amy") == expected


def commit(text: str, *more: str) -> str:
    command = f"echo {text} > shared.txt && git commit -qam {text}"
    return bash(" && ".join([*more, command]))


def mend(text: str) -> list[str]:
    """What its author does about a conflict with amy's branch, and says of it."""
    merge = bash("git merge -q amy || echo conflict")
    return ["next", merge, commit(text), report(f"{text} again"), "say mended"]


LANDING = (
    call("merge_child", name="amy.one"),
    call("merge_child", name="amy.two"),
    wait(),
    call("merge_child", name="amy.two"),
    report("all of it"),
    "say landed all",
)


def test_m6_n4_a_child_lands_and_another_conflicts_and_lands_when_it_is_mended(
    story: Story,
) -> None:
    spawns = [
        call(
            "spawn_subtree",
            task=script(
                f"hold {name}",
                commit(name),
                report(name),
                f"say {name} is done",
                *(mend(name) if name == "two" else []),
            ),
            branch_name=name,
            role="worker",
        )
        for name in ("one", "two")
    ]
    amy = story.run("amy", *spawns, *waits(2), *LANDING)
    expected = []
    for name in ("one", "two"):
        story.wait_held(name)
        story.release(name)
        expected.append((f"amy.{name}", "child_finished"))
        story.wait_events("amy", expected)
    amy.wait_said("landed all")
    assert set(story.landings()) == {("amy.one", "landed"), ("amy.two", "landed")}
    assert story.heard("amy") == [*expected, expected[-1]]
    assert git(story.repo, "show", "amy:shared.txt") == "two"
    assert git(story.repo, "show", "main:shared.txt") == "first"


ONE_WORKERS = [
    worker("quiet", "hold quiet", "say i think that is all"),
    worker("gem", "hold gem", report("cannot", "failure", "gemini"), "say no", role="gemini"),
]
TWO_WORKERS = [
    worker("dying", "hold dying", "say never"),
    worker("dex", "hold dex", report("done", engine="codex"), "say yes", role="codex"),
    worker("asking", "hold asking", bash("touch asked"), report("asked"), "say ok", role="asking"),
]
SPAWNED = {
    "amy": ("agent", "root"),
    "amy.one": ("subtree", "amy"),
    "amy.two": ("subtree", "amy"),
    **{f"amy.one.w.{name}": ("worker", "amy.one") for name in ("quiet", "gem")},
    **{f"amy.two.w.{name}": ("worker", "amy.two") for name in ("dying", "dex", "asking")},
}


def subtree(name: str, *steps: str) -> str:
    return call("spawn_subtree", task=script(*steps), branch_name=name, role="worker")


def test_m1_m6_i3_a_tree_of_eight_agents_of_three_engines_with_a_hub_that_is_killed_five_times(
    story: Story,
) -> None:
    one = subtree(
        "one",
        call("spawn_workers", workers=ONE_WORKERS),
        *waits(2),
        commit("one"),
        report("one"),
        "say one is done",
    )
    two = subtree(
        "two",
        call("spawn_workers", workers=TWO_WORKERS),
        *waits(4),
        commit("two", "git add -A"),
        report("two"),
        "say two is done",
        "next",
        "hold mending",
        *mend("two")[1:],
    )
    amy = story.run("amy", one, two, *waits(2), *LANDING)
    story.wait_held("quiet", "gem", "dying", "dex", "asking")
    assert story.shape() == SPAWNED
    for parent in ("amy", "amy.one", "amy.two"):
        story.agent(parent).wait("working (waiting for children)")
    story.kill_hub()  # all three wait

    of_two = [("amy.two.w.dying", "child_exited")]
    kill(story.pen.program("amy.two.w.dying"))
    story.kill_hub()  # while it ends
    story.wait_events("amy.two", of_two)
    assert not story.pen.agents()["amy.two.w.dying"]["running"]
    story.release("dex")
    of_two.append(("amy.two.w.dex", "child_finished"))
    story.wait_events("amy.two", of_two)
    story.release("asking")
    asking = story.agent("amy.two.w.asking")
    asking.wait_listed()
    story.kill_hub()  # while a person is asked
    of_two.append(("amy.two.w.asking", "child_blocked"))
    story.wait_events("amy.two", of_two)

    of_one = []
    for name, kind in (("quiet", "child_idle"), ("gem", "child_finished")):
        story.release(name)
        of_one.append((f"amy.one.w.{name}", kind))
        story.wait_events("amy.one", of_one)
    of_amy = [("amy.one", "child_finished")]
    story.wait_events("amy", of_amy)

    asking.answer("1")
    of_two.append(("amy.two.w.asking", "child_finished"))
    story.wait_events("amy.two", of_two)
    of_amy.append(("amy.two", "child_finished"))
    story.wait_events("amy", of_amy)

    story.wait_held("mending")  # amy.one has landed, and amy.two was told that it conflicts
    assert [state for _, state in story.landings()] == ["landed", "came_back"]
    assert git(story.repo, "show", "amy:shared.txt") == "one"
    story.kill_hub()
    story.release("mending")
    story.kill_hub()
    of_amy.append(("amy.two", "child_finished"))
    story.wait_events("amy", of_amy)
    amy.wait_said("landed all")

    assert story.kills == 5
    assert story.shape() == SPAWNED
    assert story.events("root") == [("amy", "child_finished")]
    for parent, heard in (("amy", of_amy), ("amy.one", of_one), ("amy.two", of_two)):
        assert story.events(parent) == heard
        assert story.heard(parent) == heard
    assert {state for _, state in story.landings()} == {"landed"}
    assert git(story.repo, "show", "amy:shared.txt") == "two"
    subjects = git(story.repo, "log", "--format=%s", "amy").splitlines()
    assert [subjects.count(text) for text in ("one", "Merge branch 'amy.one' into amy")] == [1, 1]
    assert git(story.repo, "status", "--porcelain") == ""

    stopped = story.team.cli("stop", "amy", "--tree")
    assert stopped.code == 0, stopped
    wait_until(lambda: not any(each["running"] for each in story.pen.agents().values()))
    assert story.team.cli("land", "amy", "--into", "main").code == 0
    assert git(story.repo, "show", "main:shared.txt") == "two"
    assert (story.repo / "shared.txt").read_text() == "two\n"
    wait_until(lambda: not (story.pen.root / "worktrees" / "amy.two").exists())
    assert git(story.repo, "fsck", "--no-dangling", "--no-progress") == ""
