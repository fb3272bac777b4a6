"""Pods: all members of a template start, or none does; whoever is killed meanwhile."""

import contextlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.home.paths import HUB
from bullpen.home.settings import Settings, Worktrees
from bullpen.hot import wire
from bullpen.hub.agents import intent as launch_intent
from bullpen.hub.agents import sessions
from bullpen.hub.agents import worktrees as agent_worktrees
from bullpen.hub.agents.intent import LaunchUndo
from bullpen.hub.holders.factory import Factory
from bullpen.hub.pods import launch as pod_launch
from bullpen.hub.pods.launch import Pods
from bullpen.hub.pods.plan import branches_of, joined_prompt
from bullpen.model.launch import PodLaunch
from bullpen.model.pod import AgentEntry, PodTemplate, members_of
from bullpen.worktrees.create import _conclude, _create_branches, _put_in_place
from tests.commands import Ran
from tests.hub.parts import Parts, in_parts
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import (
    asked,
    deadly_hub,
    holders,
    launch,
    on_disk,
    write_role,
    write_template,
)
from tests.hub.programs import SLEEP
from tests.processes import kill
from tests.steps import after, before
from tests.threads import together
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

Scene = tuple[Pen, Path, dict[str, str], dict[str, Any]]
TREE = "worktree: {enabled: true, branch_from: main}"
OPEN = "sandbox: {enabled: false}"  # its set-up reaches what the test has outside


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Pen, Path]]:
    """A home with roles, templates and a repository for all tests of this file."""
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_role(pen, "plain", list(SLEEP))
        write_role(pen, "typist", ["/bin/cat"], "deliver: lines")
        write_role(pen, "missing", ["/no/such/program"], TREE)
        write_template(pen, "team", "name: ann, role: worker", "name: ben, role: plain")
        write_template(pen, "crew", "name: cy, role: worker, count: 3", branch_prefix="crew")
        write_template(
            pen,
            "doomed",
            "name: dan, role: worker",
            "name: eve, role: missing",
            "name: flo, role: plain",
        )
        yield pen, repo


@pytest.fixture
def home(place: tuple[Pen, Path]) -> Iterator[Pen]:
    """The same, with a running hub; as empty at the end as at the beginning."""
    pen, repo = place
    pen.start()
    yield pen
    pen.start()
    for name, agent in pen.agents().items():
        if agent["running"]:
            pen.stop(name)
    pen.cli("gc", "--older-than", "0s", "--force")
    assert pen.agents() == {}
    assert git(repo, "branch", "--format=%(refname:short)") == "main"


@pytest.fixture
def repo(place: tuple[Pen, Path]) -> Path:
    return place[1]


def pods_of(pen: Pen, kind: str) -> list[str]:
    return [event["pod"] for event in pen.events(kind=kind)]


# ── what starts ──


def test_p5_launch_shows_worktrees_then_starts_then_the_pod(home: Pen, repo: Path) -> None:
    before = len(home.events("ann", "worktree.created"))
    ran = home.cli("pod", "launch", "team", cwd=repo)
    assert (ran.code, ran.err) == (0, "")
    first, second, last = ran.out.splitlines()
    assert first.startswith("worktrees   ann   ")
    assert second.startswith("started     ann ben   ")
    assert last == "pod team is running · bullpen pod attach team"
    assert {name: agent["pod"] for name, agent in home.agents().items()} == {
        "ann": "team",
        "ben": "team",
    }
    created = home.events("ann", "worktree.created")[before:]
    assert [event["branch"] for event in created] == ["ann"]


def test_p4_count_makes_numbered_members_on_branches_with_the_prefix(home: Pen, repo: Path) -> None:
    ran = home.cli("pod", "launch", "crew", cwd=repo)
    assert ran.code == 0, ran
    agents = home.agents()
    assert sorted(agents) == ["cy-1", "cy-2", "cy-3"]
    assert [agents[name]["birth_branch"] for name in sorted(agents)] == [
        "crew/cy-1",
        "crew/cy-2",
        "crew/cy-3",
    ]
    assert git(repo, "branch", "--list", "crew/*", "--format=%(refname:short)").split() == [
        "crew/cy-1",
        "crew/cy-2",
        "crew/cy-3",
    ]


def test_w3_session_of_a_pod_names_its_branches(home: Pen, repo: Path) -> None:
    for template, branches in (
        ("team", {"ann": "swarm/worker-17", "ben": ""}),
        ("crew", {f"cy-{number}": f"crew/worker-17-cy-{number}" for number in (1, 2, 3)}),
    ):
        for _again in range(2):  # the second time in the same worktrees
            ran = home.cli("pod", "launch", template, "--session", "17", cwd=repo)
            assert ran.code == 0, ran
            agents = home.agents()
            assert {name: agents[name]["birth_branch"] for name in branches} == branches
            assert home.cli("pod", "stop", template, "--force").code == 0
    other = home.cli("pod", "launch", "team", "--session", "18", cwd=repo)
    assert other.code == 5
    assert other.err.startswith(
        "error: ann: ann has a worktree on swarm/worker-17 already, not on swarm/worker-18\n"
    )


def test_w3_branches_of_a_session_have_the_prefix_of_the_template_else_of_the_settings() -> None:
    async def story(parts: Parts) -> None:
        parts.hub.context.settings = Settings(worktrees=Worktrees(branch_prefix="team"))
        template = PodTemplate(pod_name="pair", agents=(AgentEntry(role="coder", name="ann"),))
        members = members_of(template, "pair", {})

        def branch(template: PodTemplate, session: str | None) -> str:
            request = PodLaunch(template="pair", cwd="/", env={}, session=session)
            return branches_of(parts.hub.context, request, template, members)["ann"]

        assert branch(template, "17") == "team/coder-17"
        assert branch(template, None) == ""
        own = template.model_copy(update={"branch_prefix": "crew"})
        assert (branch(own, "17"), branch(own, None)) == ("crew/coder-17", "crew/ann")

    in_parts(story)


def test_p4_overrides_of_a_member_are_its_own(home: Pen, repo: Path) -> None:
    write_template(
        home,
        "odd",
        "name: gus, role: worker, overrides: {worktree.use_detached_head: true}",
        "name: hal, role: worker",
    )
    assert home.cli("pod", "launch", "odd", cwd=repo).code == 0
    agents = home.agents()
    assert (agents["gus"]["birth_branch"], agents["hal"]["birth_branch"]) == ("", "hal")
    assert agents["gus"]["overrides"] == ["worktree.use_detached_head=true"]
    assert agents["hal"]["overrides"] == []


@pytest.mark.parametrize(
    ("own", "given", "told"),
    [
        (None, "", ""),
        (None, "Add CSV export", "Add CSV export"),
        ("Review the task below.\n", "Add CSV export", "Review the task below.\n\nAdd CSV export"),
        ("Look around.", "", "Look around."),
    ],
)
def test_p4_prompt_of_a_member_comes_before_that_of_all(
    own: str | None, given: str, told: str
) -> None:
    assert joined_prompt(own, given) == told


def test_p4_members_are_told_their_prompts(home: Pen, repo: Path) -> None:
    write_template(
        home,
        "told",
        "name: ida, role: typist, prompt: 'Look for it.'",
        "name: jo, role: typist",
    )
    assert home.cli("pod", "launch", "told", "--prompt", "the key", cwd=repo).code == 0
    wait_until(lambda: b"Look for it. the key" in home.log("ida"))
    wait_until(lambda: b"the key" in home.log("jo"))
    assert b"Look" not in home.log("jo")


@pytest.mark.parametrize(
    ("words", "env", "pod"),
    [
        ([], {}, "team"),
        ([], {"BULLPEN_POD": "around"}, "around"),
        (["--pod", "given"], {"BULLPEN_POD": "around"}, "given"),
    ],
)
def test_p2_flag_before_environment_before_template(
    home: Pen, repo: Path, words: list[str], env: dict[str, str], pod: str
) -> None:
    ran = home.cli("pod", "launch", "team", *words, "--json", cwd=repo, **env)
    assert ran.json["steps"][-1] == {"step": "running", "pod": pod}
    assert {agent["pod"] for agent in home.agents().values()} == {pod}


def test_p3_roles_of_pods_come_first_and_only_for_pods(home: Pen, repo: Path) -> None:
    write_role(home, "plain", ["/bin/sleep", "123456"], folder="pods/roles")
    try:
        assert home.cli("pod", "launch", "team", cwd=repo).code == 0
        assert home.cli("run", "--role", "plain", "--name", "lea", cwd=repo).code == 0
        ran = home.cli("run", "--role", "plain", "--name", "max", "--pod", "x", cwd=repo)
        assert ran.code == 0
        commands = {name: agent["command"] for name, agent in home.agents().items()}
        assert commands["ben"] == commands["max"] == ["/bin/sleep", "123456"]
        assert commands["lea"] == list(SLEEP)
    finally:
        (home.root / "pods" / "roles" / "plain.yaml").unlink()


def test_p5_ended_members_start_again_in_their_worktrees(home: Pen, repo: Path) -> None:
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    (home.root / "worktrees" / "ann" / "half.txt").write_text("half done\n")
    assert home.cli("pod", "stop", "team", "--force").code == 0
    first = {name: agent["run"] for name, agent in home.agents().items()}
    ran = home.cli("pod", "launch", "team", cwd=repo)
    assert (ran.code, "worktrees" in ran.out) == (0, False)
    assert (home.root / "worktrees" / "ann" / "half.txt").read_text() == "half done\n"
    agents = home.agents()
    assert all(agents[name]["running"] and agents[name]["run"] != first[name] for name in first)
    assert not list((home.root / "sessions").glob("*/private/before-*"))


def test_w5_member_whose_branch_lost_its_worktree_gets_it_again(home: Pen, repo: Path) -> None:
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    tip = commit(home.root / "worktrees" / "ann", "mine.txt")
    assert home.cli("pod", "stop", "team", "--force").code == 0
    assert home.cli("worktree", "remove", "ann", cwd=repo).code == 0
    assert git(repo, "rev-parse", "ann") == tip
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    assert git(home.root / "worktrees" / "ann", "rev-parse", "HEAD") == tip


def test_p5_members_of_a_second_pod_have_its_name_in_front(home: Pen, repo: Path) -> None:
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    ran = home.cli("pod", "launch", "team", "--pod", "t2", cwd=repo)
    assert (ran.code, "t2.ann t2.ben" in ran.out) == (0, True), ran
    pods = {name: agent["pod"] for name, agent in home.agents().items()}
    assert pods == {"ann": "team", "ben": "team", "t2.ann": "t2", "t2.ben": "t2"}
    assert home.agents()["t2.ann"]["birth_branch"] == "t2.ann"
    again = home.cli("pod", "launch", "team", "--pod", "t2", cwd=repo)
    assert (again.code, "already running: t2.ann, t2.ben" in again.err) == (5, True)


# ── refusals, before anything is touched ──


def test_p5_member_that_runs_is_refused_before_anything(home: Pen, repo: Path) -> None:
    assert home.cli("run", "--name", "ben", "--", *SLEEP, cwd=repo).code == 0
    before = on_disk(home, repo)
    ran = home.cli("pod", "launch", "team", cwd=repo)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "error: already running: ben\nhint:  bullpen pod stop team · bullpen stop ben\n"
    )
    assert on_disk(home, repo) == before
    assert home.agents()["ben"]["running"]


@pytest.mark.parametrize(
    ("agents", "says"),
    [
        (["name: ann, role: worker", "name: ben, role: nobody"], "ben: no role called nobody"),
        (["name: ann, role: worker", "name: ben, role: coder"], "ben: no role called coder"),
    ],
)
def test_p5_member_that_cannot_be_planned_is_named(
    home: Pen, repo: Path, agents: list[str], says: str
) -> None:
    write_template(home, "wrong", *agents)
    before = on_disk(home, repo)
    ran = home.cli("pod", "launch", "wrong", cwd=repo)
    assert (ran.code, says in ran.err) == (4, True), ran
    assert on_disk(home, repo) == before


def test_p5_prompt_that_a_member_cannot_take_is_refused(home: Pen, repo: Path) -> None:
    before = on_disk(home, repo)
    ran = home.cli("pod", "launch", "team", "--prompt", "x", cwd=repo)
    assert ran.code == 7
    assert ran.err.startswith("error: ann: role worker runs a plain program")
    assert on_disk(home, repo) == before


@pytest.mark.storm
def test_p5_members_with_a_broken_session_are_refused(home: Pen, repo: Path) -> None:
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    assert home.cli("pod", "stop", "team", "--force").code == 0
    assert home.cli("hub", "stop").code == 0
    session = home.session("ben") / "session.json"
    whole = session.read_text()
    session.write_text("{")
    home.start()
    ran = home.cli("pod", "launch", "team", cwd=repo)
    assert (ran.code, "cannot read" in ran.err) == (5, True)
    assert not home.agents()["ann"]["running"]
    assert home.cli("hub", "stop").code == 0
    session.write_text(whole)


# ── all or nothing ──


def test_p5_member_without_a_program_stops_the_others_and_is_named(home: Pen, repo: Path) -> None:
    before = on_disk(home, repo)
    ran = home.cli("pod", "launch", "doomed", cwd=repo)
    assert ran.code == 4
    assert ran.err.startswith("error: eve cannot start: No such file or directory")
    assert "/no/such/program" in ran.err
    assert on_disk(home, repo) == before
    wait_until(lambda: holders(home) == set())
    assert home.agents() == {}
    assert pods_of(home, "pod.failed")[-1] == "doomed"


def test_p5_all_that_cannot_start_are_named(home: Pen, repo: Path) -> None:
    write_template(home, "worse", "name: eve, role: missing, count: 2", "name: flo, role: plain")
    ran = home.cli("pod", "launch", "worse", cwd=repo)
    assert "eve-1 cannot start" in ran.err
    assert "neither can eve-2" in ran.err
    assert home.agents() == {}


def test_p5_earlier_sessions_and_worktrees_are_as_they_were(home: Pen, repo: Path) -> None:
    assert home.cli("run", "--role", "worker", "--name", "dan", cwd=repo).code == 0
    assert home.cli("run", "--name", "flo", "--", *SLEEP, cwd=repo, EXTRA="of before").code == 0
    dirty = home.root / "worktrees" / "dan" / "half.txt"
    dirty.write_text("half done\n")
    for name in ("dan", "flo"):
        home.stop(name)
    before, shown = on_disk(home, repo), home.agents()
    assert home.cli("pod", "launch", "doomed", cwd=repo).code == 4
    assert on_disk(home, repo) == before
    assert home.agents() == shown
    assert dirty.read_text() == "half done\n"
    home.kill_hub()  # and the next hub knows them as they were
    assert home.agents() == shown


def test_p5_files_of_a_set_up_go_with_the_worktrees(home: Pen, repo: Path) -> None:
    write_role(home, "setup", list(SLEEP), TREE.replace("}", ", setup: 'echo made > made.txt'}"))
    write_template(home, "prepared", "name: dan, role: setup", "name: eve, role: missing")
    before = on_disk(home, repo)
    assert home.cli("pod", "launch", "prepared", cwd=repo).code == 4
    assert on_disk(home, repo) == before


def test_p5_failed_set_up_leaves_nothing(home: Pen, repo: Path) -> None:
    write_role(home, "unset", list(SLEEP), TREE.replace("}", ", setup: 'exit 3'}"))
    write_template(home, "unready", "name: dan, role: worker", "name: eve, role: unset")
    before = on_disk(home, repo)
    ran = home.cli("pod", "launch", "unready", cwd=repo)
    assert (ran.code, "eve" in ran.err) == (1, True), ran
    assert on_disk(home, repo) == before


def test_p5_worktree_that_a_person_made_meanwhile_is_left_alone(home: Pen, repo: Path) -> None:
    """It has a member's name, and is not the launch's to take back."""
    assert home.cli("worktree", "create", "dan", cwd=repo).code == 0
    before = on_disk(home, repo)
    assert home.cli("pod", "launch", "doomed", cwd=repo).code == 4
    assert on_disk(home, repo) == before
    assert home.cli("worktree", "remove", "dan", cwd=repo).code == 0


def test_p5_branch_that_was_there_outlives_a_failed_launch(home: Pen, repo: Path) -> None:
    assert home.cli("run", "--role", "worker", "--name", "dan", cwd=repo).code == 0
    tip = commit(home.root / "worktrees" / "dan", "mine.txt")
    home.stop("dan")
    assert home.cli("worktree", "remove", "dan", cwd=repo).code == 0
    before = on_disk(home, repo)
    assert home.cli("pod", "launch", "doomed", cwd=repo).code == 4
    assert on_disk(home, repo) == before
    assert git(repo, "rev-parse", "dan") == tip
    git(repo, "branch", "-D", "dan")


# ── several at once, again, and away ──


def test_p5_of_two_launches_at_once_one_wins(home: Pen, repo: Path) -> None:
    bodies = [asked(home, "crew", repo) for _ in range(4)]
    results = together(*[lambda body=body: launch(home, body) for body in bodies])
    won = [lines for lines in results if lines[-1].get("step") == "running"]
    lost = [lines[-1] for lines in results if lines not in won]
    assert len(won) == 1
    assert {error["error"] for error in lost} == {"conflict"}
    assert all(
        error["message"].startswith(("already running: cy-1", "being started already: cy-1"))
        for error in lost
    )
    agents = home.agents()
    assert sorted(agents) == ["cy-1", "cy-2", "cy-3"]
    assert all(agent["running"] for agent in agents.values())
    assert all((home.root / "worktrees" / name / "file0.txt").exists() for name in agents)


def test_p5_launch_and_runs_of_its_members_at_once(home: Pen, repo: Path) -> None:
    """Whoever comes first has the name; nobody's worktree is taken away."""
    single = home.launch(role="worker", name="ann", words=[], cwd=str(repo))
    results = together(
        lambda: launch(home, asked(home, "team", repo))[-1],
        lambda: home.ask("POST", "/agents", single)[1],
    )
    agents = home.agents()
    assert agents["ann"]["running"]
    assert (home.root / "worktrees" / "ann" / "file0.txt").exists()
    pod_won = results[0].get("step") == "running"
    assert pod_won != ("run" in results[1])
    assert ("ben" in agents) == pod_won


@pytest.mark.storm
def test_p5_same_run_asked_twice_is_one_pod(home: Pen, repo: Path) -> None:
    body = asked(home, "crew", repo)
    results = together(*[lambda: launch(home, body) for _ in range(3)])
    assert [lines[-1] for lines in results] == [{"step": "running", "pod": "crew"}] * 3
    runs = {name: agent["run"] for name, agent in home.agents().items()}
    assert launch(home, body) == [{"step": "running", "pod": "crew"}]
    home.kill_hub()
    home.start()
    assert launch(home, body) == [{"step": "running", "pod": "crew"}]
    assert {name: agent["run"] for name, agent in home.agents().items()} == runs
    assert len(home.events(kind="agent.started")) >= 3
    begun = [event for event in home.events(kind="pod.launching") if event["id"] == body["run"]]
    assert len(begun) == 1


def test_p5_same_run_asked_again_fails_as_before(home: Pen, repo: Path) -> None:
    body = asked(home, "doomed", repo)
    first = launch(home, body)[-1]
    assert launch(home, body) == [first]
    assert first["error"]["message"].startswith("eve cannot start")


def test_p5_launch_goes_on_when_its_caller_leaves(home: Pen, repo: Path) -> None:
    gate = home.root / "gate"
    os.mkfifo(gate)
    tree = TREE.replace("}", f", setup: 'cat {gate}'}}")
    write_role(home, "slow", list(SLEEP), tree, OPEN)
    write_template(home, "patient", "name: ned, role: slow", "name: ole, role: plain")
    body = json.dumps(asked(home, "patient", repo)).encode()
    headers = {"content-type": "application/json"}
    with wire.stream(str(home.home.socket(HUB)), "POST", "/pods", headers, body, 60.0) as answer:
        assert json.loads(next(iter(answer))) == {"step": "making", "members": ["ned"]}
    gate.write_text("go\n")
    wait_until(lambda: len(home.agents()) == 2)
    wait_until(lambda: "patient" in pods_of(home, "pod.launched"))
    assert all(agent["running"] for agent in home.agents().values())
    gate.unlink()


@pytest.mark.storm
def test_p5_hub_that_is_stopped_meanwhile_leaves_it_to_the_next(home: Pen, repo: Path) -> None:
    """Neither of them waits for a set-up that takes its time."""
    gate = home.root / "gate"
    os.mkfifo(gate)
    tree = TREE.replace("}", f", setup: 'cat {gate}'}}")
    write_role(home, "slow", list(SLEEP), tree, OPEN)
    write_template(home, "late", "name: ned, role: slow", "name: ole, role: plain")
    before = on_disk(home, repo)
    results: list[Any] = []
    launching = threading.Thread(
        target=lambda: results.append(launch(home, asked(home, "late", repo)))
    )
    launching.start()
    wait_until((home.root / "worktrees" / "ned").exists)
    assert home.cli("hub", "stop", seconds=60).code == 0
    launching.join(60)
    home.start()
    refused = home.cli("pod", "launch", "late", cwd=repo)
    assert (refused.code, "ned" in refused.err) == (5, True)
    gate.write_text("go\n")
    wait_until(lambda: "late" in pods_of(home, "pod.failed"), 60)
    assert on_disk(home, repo) == before
    assert home.agents() == {}
    gate.unlink()


def test_p6_stop_takes_a_pod_back_that_is_being_started(home: Pen, repo: Path) -> None:
    gate = home.root / "gate"
    os.mkfifo(gate)
    tree = TREE.replace("}", f", setup: 'cat {gate}'}}")
    write_role(home, "slow", list(SLEEP), tree, OPEN)
    write_template(home, "unwanted", "name: ned, role: slow", "name: ole, role: plain")
    before = on_disk(home, repo)
    stopped: list[Ran] = []
    stopping = threading.Thread(target=lambda: stopped.append(home.cli("pod", "stop", "unwanted")))
    steps = []
    for step in home.client().stream("pods", body=asked(home, "unwanted", repo)):
        steps.append(step)
        if step.get("step") == "making":
            stopping.start()
        if step.get("step") == "stopping":
            gate.write_text("go\n")
    stopping.join(60)
    assert "was stopped while it started" in steps[-1]["error"]["message"]
    assert stopped[0].out == "pod unwanted was being started, and is not any more\n"
    assert on_disk(home, repo) == before
    gate.unlink()


def test_p6_stop_list_and_templates(home: Pen, repo: Path) -> None:
    assert home.cli("pod", "launch", "team", cwd=repo).code == 0
    assert home.cli("pod", "list").out == ("POD   RUNNING  AGENTS\nteam  2 of 2   ann, ben\n")
    ran = home.cli("pod", "stop", "team")
    assert sorted(ran.out.splitlines()) == [
        "ann stopped · exited (signal 15)",
        "ben stopped · exited (signal 15)",
    ]
    again = home.cli("pod", "stop", "team").out
    assert again.count("had ended before · exited (signal 15)") == 2, again
    assert "team  0 of 2" in home.cli("pod", "list").out
    assert home.cli("pod", "stop", "nope").err == (
        "error: no pod called nope\nhint:  bullpen pod list\n"
    )
    assert home.cli("pod", "launch", "teem", cwd=repo).err.startswith(
        "error: no pod template called teem · did you mean team?"
    )
    assert any(line.startswith("crew") for line in home.cli("pod", "templates").out.splitlines())


# ── the hub is killed ──

# Members: one new, one whose ended session and dirty worktree are there, one whose branch is
# there without its worktree, one without a worktree.
LAUNCH_STEPS = {
    "intent about to be kept": before(launch_intent.set_aside),
    "intent kept": after(launch_intent.set_aside),
    "branches about to be made": before(_create_branches),
    "branches made": after(_create_branches),
    "worktrees about to be put in place": before(_put_in_place),
    "worktrees put in place": after(_put_in_place),
    "worktrees recorded": after(_conclude),
    "worktrees made": after(pod_launch._make_trees),
    "first new session written": after(sessions.create),
    "old session rewritten": after(sessions.rewrite),
    "second new session written": after(sessions.create, 2),
    "first worktree checked": after(agent_worktrees.ensure_tree),
    "first about to be held": before(Factory.hold),
    "first held": after(Factory.hold),
    "last held": after(Factory.hold, 4),
    "all started": after(Pods._start_all),
}
# Of a launch that fails because one has no program.
UNDO_STEPS = {
    "about to be taken back": before(LaunchUndo.take_back),
    "second session about to be taken back": before(sessions.take_back, 2),
    "second session taken back": after(sessions.take_back, 2),
    "worktree about to be taken back": before(LaunchUndo._take_back_tree),
    "worktree taken back": after(LaunchUndo._take_back_tree),
    "taken back": after(LaunchUndo.take_back),
}


def quick(steps: dict[str, str], chosen: str) -> list[Any]:
    """All of them, the chosen one in `make test`, the others in `make storm`."""
    return [
        pytest.param(step, id=name, marks=[] if name == chosen else pytest.mark.storm)
        for name, step in steps.items()
    ]


@contextlib.contextmanager
def made_scene() -> Iterator[Scene]:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_role(pen, "plain", list(SLEEP))
        write_role(pen, "missing", ["/no/such/program"])
        four = [
            "name: ann, role: worker",
            "name: bob, role: worker",
            "name: cat, role: worker",
            "name: dot, role: plain",
        ]
        write_template(pen, "four", *four)
        write_template(pen, "doomed", *four, "name: eve, role: missing")
        for name in ("bob", "cat"):
            assert pen.cli("run", "--role", "worker", "--name", name, cwd=repo).code == 0
        (pen.root / "worktrees" / "bob" / "half.txt").write_text("half done\n")
        commit(pen.root / "worktrees" / "cat", "mine.txt")
        for name in ("bob", "cat"):
            pen.stop(name)
        assert pen.cli("worktree", "remove", "cat", cwd=repo).code == 0
        shown = pen.agents()
        assert pen.cli("hub", "stop").code == 0
        yield pen, repo, on_disk(pen, repo), shown


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """For tests that leave it as it was."""
    with made_scene() as made:
        yield made


@pytest.mark.parametrize("step", quick(LAUNCH_STEPS, "last held"))
@pytest.mark.storm
def test_p5_hub_killed_while_it_launches_takes_everything_back(scene: Scene, step: str) -> None:
    killed_and_back(scene, "four", step)


@pytest.mark.parametrize("step", quick(UNDO_STEPS, "worktree about to be taken back"))
@pytest.mark.storm
def test_p5_hub_killed_while_it_takes_back_goes_on_with_it(scene: Scene, step: str) -> None:
    killed_and_back(scene, "doomed", step)


def killed_and_back(scene: Scene, template: str, step: str) -> None:
    pen, repo, before, shown = scene
    body = asked(pen, template, repo)
    with deadly_hub(pen, step):
        launch(pen, body)
    pen.start()
    try:
        failed = wait_taken_back(pen, body["run"])
        assert failed["killed"] is True
        assert pen.agents() == shown
        wait_until(lambda: holders(pen) == set())
        assert on_disk(pen, repo) == before
    finally:
        pen.kill_hub()


def wait_taken_back(pen: Pen, run: str) -> dict[str, Any]:
    """How that launch failed. A hub that starts waits for that, but not for ever."""

    def failed() -> list[dict[str, Any]]:
        return [event for event in pen.events(kind="pod.failed") if event["id"] == run]

    wait_until(lambda: bool(failed()))
    return failed()[-1]


@pytest.mark.slow
@pytest.mark.storm
def test_p5_a_launch_is_taken_back_where_it_was_made_whatever_the_settings_say_now() -> None:
    with made_scene() as (pen, repo, before, _shown):
        with deadly_hub(pen, LAUNCH_STEPS["worktrees made"]):
            launch(pen, asked(pen, "four", repo))
        assert (pen.root / "worktrees" / "ann").exists()
        config = pen.root / "config.yaml"
        was = config.read_text()
        config.write_text("worktrees: {base: elsewhere}\n")
        pen.start()
        wait_until(lambda: bool(pen.events(kind="pod.failed")))
        pen.kill_hub()
        config.write_text(was)
        assert on_disk(pen, repo) == before


@pytest.fixture
def own_scene() -> Iterator[Scene]:
    with made_scene() as made:
        yield made


@pytest.mark.storm
def test_p5_pod_stands_when_the_hub_is_killed_right_after(own_scene: Scene) -> None:
    pen, repo, _before, _shown = own_scene
    with deadly_hub(pen, before(launch_intent.forget_aside)):
        launch(pen, asked(pen, "four", repo))
    pen.start()
    agents = pen.agents()
    assert [name for name, agent in agents.items() if agent["running"]] == [
        "ann",
        "bob",
        "cat",
        "dot",
    ]
    assert pen.cli("pod", "stop", "four", "--force").code == 0
    pen.kill_hub()


@pytest.mark.storm
def test_p5_work_of_members_that_ran_on_without_a_hub_is_kept() -> None:
    """They are stopped; what they have not committed stays, and the log says so."""
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_template(pen, "pair", "name: ann, role: worker", "name: bob, role: worker")
        body = asked(pen, "pair", repo)
        with deadly_hub(pen, after(Pods._start_all)):
            launch(pen, body)
        work = pen.root / "worktrees" / "ann" / "work.txt"
        work.write_text("hours of it\n")
        pen.start()
        failed = wait_taken_back(pen, body["run"])
        assert pen.agents() == {}
        wait_until(lambda: holders(pen) == set())
        assert work.read_text() == "hours of it\n"
        assert not (pen.root / "worktrees" / "bob").exists()
        assert failed["kept"] == ["worktree ann: ann has 1 uncommitted file (work.txt)"]
        assert pen.cli("pod", "launch", "pair", cwd=repo).code == 0
        assert work.read_text() == "hours of it\n"


@pytest.mark.storm
def test_p5_command_asks_the_next_hub_again(own_scene: Scene) -> None:
    pen, repo, _before, _shown = own_scene
    with deadly_hub(pen, after(sessions.rewrite)):
        ran = pen.cli("pod", "launch", "four", cwd=repo)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "pod four is running · bullpen pod attach four"
    assert all(pen.agents()[name]["running"] for name in ("ann", "bob", "cat", "dot"))
    assert pen.cli("pod", "stop", "four", "--force").code == 0
    pen.kill_hub()


@pytest.mark.storm
def test_p5_repository_that_is_gone_does_not_keep_the_hub_from_starting() -> None:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_template(pen, "pair", "name: ann, role: worker", "name: bob, role: worker")
        body = asked(pen, "pair", repo)
        with deadly_hub(pen, after(pod_launch._make_trees)):
            launch(pen, body)
        shutil.rmtree(repo)
        pen.start()
        wait_taken_back(pen, body["run"])
        assert pen.agents() == {}


@pytest.mark.storm
def test_p5_member_that_cannot_be_stopped_is_tried_again_by_the_next_hub() -> None:
    with made_pen() as pen:
        repo = make_repo(pen.root.parent / "repo")
        write_role(pen, "worker", list(SLEEP), TREE)
        write_template(pen, "pair", "name: ann, role: worker", "name: bob, role: worker")
        with deadly_hub(pen, after(Pods._start_all)):
            launch(pen, asked(pen, "pair", repo))
        holder = pen.holder("ann")
        os.kill(holder, signal.SIGSTOP)
        pen.start()  # serves, though it could not do all of it
        wait_until(lambda: not (pen.root / "worktrees" / "bob").exists())
        assert pen.events(kind="pod.failed") == []
        ran = pen.cli("pod", "launch", "pair", cwd=repo)
        assert ran.code in (3, 5)
        kill(pen.pid)
        os.kill(holder, signal.SIGCONT)
        pen.start()
        wait_until(lambda: len(pen.events(kind="pod.failed")) == 1)
        assert pen.agents() == {}
        assert not (pen.root / "worktrees" / "ann").exists()


def test_p1_a_pod_is_what_its_agents_say(pen: Pen) -> None:
    """No list of pods is kept: who says to be in one is, also for a hub that knows nothing yet."""
    pen.run(name="amy", pod="team")
    pen.run(name="bob")
    pen.kill_hub()
    record = pen.session("bob") / "session.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "pod": "team"}))
    assert pen.agents()["bob"]["pod"] == "team"
    (pod,) = pen.client().get("pods")
    assert pod["pod"] == "team"
    assert sorted(agent["name"] for agent in pod["agents"]) == ["amy", "bob"]
