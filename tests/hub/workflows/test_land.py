"""`land: true`: at the end of a sequence the person is asked, and what they allowed lands."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hot import wire
from bullpen.hub.agents.stop import Stopper
from bullpen.hub.landing.queue import Landings
from bullpen.hub.messages.deliver import Delivery
from bullpen.hub.permissions.approvals import Approvals
from bullpen.hub.workflows.land import SequenceLanding
from bullpen.hub.workflows.plan import SequenceRecord, SequenceStep
from bullpen.hub.workflows.sequence import Workflows
from tests.hub.parts import Parts, in_parts
from tests.hub.pen import change_hub
from tests.hub.pods.support import asked, deadly_hub, launch
from tests.hub.tasks.desk import SECONDS, Desk, made_desk
from tests.hub.workflows.sequences import ends, script, wait_end, write_pod
from tests.steps import after, before
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with made_desk(tmp_path_factory.mktemp("land")) as made:
        yield made


def begin(desk: Desk, pod: str, *prompts: tuple[str, str]) -> Path:
    """A pod that lands, launched; its repository. By default one member makes a file."""
    members = prompts or ((f"{pod}-ann", script("one", "say It works.")),)
    repo = write_pod(desk, pod, *members, land="true")
    ran = desk.pen.cli("pod", "launch", pod, cwd=repo)
    assert ran.code == 0, ran
    return repo


def open_questions(desk: Desk, agent: str) -> list[dict[str, Any]]:
    approvals = desk.pen.client().get("approvals")["approvals"]
    return [each for each in approvals if each["agent"] == agent and each["state"]["reachable"]]


def wait_asked(desk: Desk, agent: str, besides: int = 0) -> dict[str, Any]:
    """The question, once it can be answered."""
    questions: list[dict[str, Any]] = []

    def is_there() -> bool:
        questions[:] = [each for each in open_questions(desk, agent) if each["id"] != besides]
        return bool(questions)

    wait_until(is_there, SECONDS)
    [question] = questions
    return question


def answer(desk: Desk, verb: str, question: dict[str, Any], *words: str) -> None:
    ran = desk.pen.cli(verb, str(question["id"]), *words)
    assert ran.code == 0, ran


def subjects(repo: Path, ref: str = "main") -> list[str]:
    """The newest first. By parents: of commits of one second, the times tell no order."""
    return git(repo, "log", "--topo-order", "--format=%s", "--no-merges", ref).split("\n")


def told(desk: Desk, pod: str) -> str:
    """What the person was told of the pod's end, once."""
    messages = json.loads(desk.pen.cli("inbox", "--json").out)["messages"]
    [text] = [each["text"] for each in messages if each["text"].startswith(f"pod {pod} ")]
    return str(text)


@pytest.mark.storm
def test_p4_what_a_sequence_made_lands_when_the_person_has_allowed_it(desk: Desk) -> None:
    """And the hub is killed while the question waits."""
    two = ("ben", script("two", "say Looks right."))
    repo = begin(desk, "relay", ("ann", script("one", "say Made.")), two)
    question = wait_asked(desk, "ben")
    assert question["tool"] == "Land"
    tip = git(repo, "rev-parse", "ben")
    first, *rest = question["text"].split("\n")
    assert first == f"land ben ({tip[:7]}) in main: 2 commits, 2 files changed, 2 insertions(+)"
    assert rest == ["⟨look⟩ bullpen diff ben --against main", "⟨said⟩ Looks right."]
    assert desk.pen.agents()["ben"]["words"] == "blocked (permission: Land)"
    assert subjects(repo) == ["Start"], "nothing lands by itself"
    desk.pen.kill_hub()
    desk.pen.start()
    assert wait_asked(desk, "ben")["id"] == question["id"]
    wait_until(lambda: desk.pen.agents()["ben"]["words"] == "blocked (permission: Land)")
    answer(desk, "approve", question)
    assert wait_end(desk, "relay") == ""
    assert subjects(repo) == ["two", "one", "Start"]
    assert (repo / "two").exists(), "the person's checkout went with its branch"
    landed = git(repo, "rev-parse", "main")
    assert told(desk, "relay").startswith(
        f"pod relay is finished, on branch ben; landed on main as {landed[:7]}. ben said:"
    )
    assert not any(desk.pen.agents()[name]["running"] for name in ("ann", "ben"))


def test_p4_what_the_person_denies_does_not_land(desk: Desk) -> None:
    repo = begin(desk, "denied")
    answer(desk, "deny", wait_asked(desk, "denied-ann"), "--reason", "not yet")
    assert wait_end(desk, "denied") == ""
    assert subjects(repo) == ["Start"]
    how = "(to land it: bullpen land denied-ann --into main)"
    assert f"it was not landed, you denied that: not yet {how}" in told(desk, "denied")
    assert subjects(repo, "denied-ann") == ["one", "Start"]


def test_p4_what_a_hub_cut_off_when_it_left_is_no_end_of_a_sequence() -> None:
    """The next hub looks again at what would land."""

    async def story(parts: Parts) -> None:
        hub = parts.hub
        step = SequenceStep(name="ann", run="r", branch="ann", prompt="")
        record = SequenceRecord(id="s", pod="p", repo="/", base="b", target="main", steps=(step,))
        approvals = Approvals(parts.store, parts.registry, hub.observer, hub.background)
        landing = SequenceLanding(hub.context, approvals, hub.landings)
        ann = parts.agent("ann")
        with pytest.raises(BullpenError, match="ann has no worktree"):
            await landing.land(record, "", lambda: ann)
        hub.context.trees.leave()
        with pytest.raises(asyncio.CancelledError):
            await landing.land(record, "", lambda: ann)

    in_parts(story)


@pytest.mark.storm
def test_n3_an_answer_is_for_one_commit(desk: Desk) -> None:
    """Somebody commits while the question waits: it is asked again."""
    repo = begin(desk, "newer")
    question = wait_asked(desk, "newer-ann")
    commit(desk.pen.root / "worktrees" / "newer-ann", "later.txt")
    answer(desk, "approve", question)
    again = wait_asked(desk, "newer-ann", besides=question["id"])
    assert subjects(repo) == ["Start"]
    assert "2 commits" in again["text"]
    answer(desk, "approve", again)
    assert wait_end(desk, "newer") == ""
    assert subjects(repo) == ["Add later.txt", "one", "Start"]


@pytest.mark.storm
def test_n3_a_question_outlives_hubs_however_long_they_take_to_ask_it_again(
    tmp_path: Path,
) -> None:
    at_once = "from bullpen.hub.permissions import approvals\napprovals.BACK_SECONDS = 0.0"
    with made_desk(tmp_path) as desk:
        change_hub(desk.pen, at_once)
        repo = begin(desk, "relay")
        question = wait_asked(desk, "relay-ann")
        desk.pen.kill_hub()
        desk.pen.start()
        assert wait_asked(desk, "relay-ann")["id"] == question["id"]
        desk.pen.kill_hub()
        commit(desk.pen.root / "worktrees" / "relay-ann", "later.txt")
        desk.pen.start()
        again = wait_asked(desk, "relay-ann", besides=question["id"])
        assert [each["id"] for each in open_questions(desk, "relay-ann")] == [again["id"]]
        answer(desk, "approve", again)
        assert wait_end(desk, "relay") == ""
        assert subjects(repo) == ["Add later.txt", "one", "Start"]


@pytest.mark.storm
def test_n3_what_came_back_ends_the_sequence_and_is_not_tried_again_by_itself(desk: Desk) -> None:
    repo = begin(desk, "clash")
    question = wait_asked(desk, "clash-ann")
    commit(repo, "one", "other\n")
    answer(desk, "approve", question)
    end = wait_end(desk, "clash")
    assert end == (
        "its work is on branch clash-ann and did not land on main: conflict with main: one"
    )
    assert told(desk, "clash") == f"pod clash stopped: {end}"
    assert subjects(repo) == ["Add one", "Start"]
    assert desk.pen.client().get("landings")["landings"] == []
    # The person's own landing goes on from there.
    tree = desk.pen.root / "worktrees" / "clash-ann"
    git(tree, "reset", "-q", "--hard", "main")
    commit(tree, "solved")
    ran = desk.pen.cli("land", "clash-ann", "--into", "main", cwd=repo)
    assert ran.code == 0, ran
    assert subjects(repo) == ["Add solved", "Add one", "Start"]


@contextmanager
def changed_settings(desk: Desk, text: str, key: str) -> Iterator[None]:
    """The hub has taken over what was added to its settings, and afterwards that it is gone: the
    next test has the same hub."""
    config = desk.pen.root / "config.yaml"
    before = config.read_text()
    taken_over(desk, config, f"{before}{text}\n", key)
    try:
        yield
    finally:
        taken_over(desk, config, before, key)


def taken_over(desk: Desk, config: Path, text: str, key: str) -> None:
    def told() -> int:
        return str(desk.pen.client().get("status")["log"]).count(key)

    already = told()  # and the hub runs: what it finds at its start is no change
    config.write_text(text)
    wait_until(lambda: told() > already)


@pytest.mark.storm
def test_p4_what_stays_behind_and_what_is_verified_is_said(desk: Desk) -> None:
    with changed_settings(desk, "landing: {verify: test -e one}", "landing.verify"):
        mess = f"tool Bash {json.dumps({'command': 'echo x > mess'})}"
        repo = begin(desk, "verified", ("vic", script("one", mess, "say ok")))
        question = wait_asked(desk, "vic")
        assert "⟨left_behind⟩ uncommitted: mess\n⟨verify⟩ test -e one\n" in question["text"]
        answer(desk, "approve", question, "--yes")  # longer than what the list shows
        assert wait_end(desk, "verified") == ""
        assert subjects(repo) == ["one", "Start"]


def test_p4_with_nothing_to_land_nobody_is_asked(desk: Desk) -> None:
    begin(desk, "nothing", ("noa", "[[say There was no bug.]]"))
    assert wait_end(desk, "nothing") == ""
    assert "main has it already" in told(desk, "nothing")


def test_p6_a_pod_that_is_stopped_while_it_asks_lands_nothing(desk: Desk) -> None:
    repo = begin(desk, "halted")
    question = wait_asked(desk, "halted-ann")
    assert desk.pen.cli("pod", "stop", "halted").code == 0
    assert wait_end(desk, "halted") == "halted-ann was stopped"
    late = desk.pen.cli("approve", str(question["id"]))
    assert late.code != 0
    assert subjects(repo) == ["Start"]


def test_p4_where_nothing_can_land_the_launch_is_refused(desk: Desk) -> None:
    repo = write_pod(desk, "nowhere", ("ned", "[[say x]]"), land="true")
    git(repo, "checkout", "-q", "--detach")
    ran = desk.pen.cli("pod", "launch", "nowhere", cwd=repo)
    assert (ran.code, "HEAD is no local branch" in ran.err) == (5, True), ran
    git(repo, "checkout", "-q", "main")
    with changed_settings(desk, "landing: {protected: [main]}", "landing.protected"):
        ran = desk.pen.cli("pod", "launch", "nowhere", cwd=repo)
        assert "main is protected: nothing lands there" in ran.err, ran
        assert "ned" not in desk.pen.agents()


def test_p4_no_rule_allows_landings_and_no_agent_asks_in_their_name(desk: Desk) -> None:
    begin(desk, "ruled")
    question = wait_asked(desk, "ruled-ann")
    ran = desk.pen.cli("approve", str(question["id"]), "--always")
    assert ran.code != 0
    assert "each landing is allowed by itself" in ran.err
    [event] = [each for each in desk.pen.events(kind="pod.sequence") if each["pod"] == "ruled"]
    target = f"/agents/ruled-ann/permission?ask=land:{event['id']}:1"
    body = {"tool_name": "Land", "tool_input": {}}
    assert desk.ask("POST", target, body)[0] == 400
    answer(desk, "deny", question)
    wait_end(desk, "ruled")


# ── the hub is killed ──

STEPS = {
    "about to ask": before(Approvals.ask),
    "asked": after(Approvals.ask),
    "answer about to be taken": before(Approvals.answer),
    "answered": after(Approvals.answer),
    "about to be put into the queue": before(Landings.put_in),
    "in the queue": after(Landings.put_in),
    "landed": after(SequenceLanding.land),
    "how it ended noted": after(Workflows._land),
    "end about to be noted": before(Workflows._end),
    "one stopped at the end": after(Stopper.stop),
    "person told": after(Delivery.send),
}


@pytest.mark.parametrize(
    "step",
    [
        "in the queue",
        *(pytest.param(step, marks=pytest.mark.storm) for step in STEPS if step != "in the queue"),
    ],
)
@pytest.mark.storm
def test_p4_hub_killed_anywhere_lands_once_and_asks_until_it_is_answered(
    tmp_path: Path, step: str
) -> None:
    with made_desk(tmp_path) as desk:
        repo = write_pod(desk, "relay", ("ann", script("one", "say A.")), land="true")
        with deadly_hub(desk.pen, STEPS[step]) as hub:
            launch(desk.pen, asked(desk.pen, "relay", repo))
            if step not in ("about to ask", "asked"):
                question = wait_asked(desk, "ann")
                with contextlib.suppress(wire.HubError, OSError):
                    desk.ask("POST", f"/approvals/{question['id']}", {"decision": "allow"})
            wait_until(lambda: hub.poll() is not None, SECONDS)
        desk.pen.start()
        wait_until(lambda: bool(ends(desk, "relay") or open_questions(desk, "ann")), SECONDS)
        if not ends(desk, "relay"):
            answer(desk, "approve", wait_asked(desk, "ann"))
        assert wait_end(desk, "relay") == ""
        assert subjects(repo) == ["one", "Start"]
        assert git(repo, "rev-list", "--count", "--merges", "main") == "1"
        assert told(desk, "relay").startswith("pod relay is finished")
        assert not any(agent["running"] for agent in desk.pen.agents().values())
