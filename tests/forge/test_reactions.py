"""What a director does about a pull that machines or people find fault with: D7, on both forges.
Real rules, loop, git and HTTP; agents that answer at once."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.gitlab import GitLabForge
from tests.directors.replay import killed, undisturbed
from tests.forge.lives import Reacting, check_reacting, move_base
from tests.forge.office import Answer, Office
from tests.forge.server import Forge, git, served_github, served_gitlab
from tests.forge.world import START, Issue, World

pytestmark = pytest.mark.slow
SAID = {"escalate": "comment"}
PEOPLE = {"ann": "admin", "bot": "write", "bob": "write", "eve": "read"}
FORGES: dict[str, tuple[Any, Any]] = {
    "github": (served_github, GitHubForge),
    "gitlab": (served_gitlab, GitLabForge),
}


class Scene:
    """An issue with a pull, of a director with these reactions."""

    def __init__(self, directory: Path, forge: Forge, adapter: Any, **reactions: Any) -> None:
        quiet = {"status_issue": False, "max_reviews": 0}
        self.forge = forge
        self.world = forge.world
        self.office = Office(directory, forge, adapter=adapter, settings=quiet, reactions=reactions)
        self.number = self.world.open_issue("ann", "[robo] Greet", "")
        self.branch = self.office.branch(self.number)

    def begin(self, *answers: Answer) -> None:
        """Until the pull is there; the answers are of what comes then."""
        self.office.script(self.number, Answer(commit="greet"), *answers)
        self.office.run()
        assert len(self.world.pulls) == 1

    @property
    def pull(self) -> Issue:
        return self.world.pulls[0]

    @property
    def head(self) -> str:
        return self.forge.branches()[self.branch]

    @property
    def prompts(self) -> list[str]:
        return self.office.tasks.prompts(self.branch)

    def said(self) -> list[str]:
        return self.world.said(self.pull.number, "bot")


@contextlib.contextmanager
def staged(tmp_path: Path, kind: str, **reactions: Any) -> Iterator[Scene]:
    served, adapter = FORGES[kind]
    (tmp_path / "forge").mkdir()
    with served(tmp_path / "forge", World("acme/shop", dict(PEOPLE))) as forge:
        yield Scene(tmp_path / "office", forge, adapter, **reactions)
        assert forge.faults == []


@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.few(1)
def test_d7_red_checks_go_to_the_same_session_with_names_and_logs(
    tmp_path: Path, kind: str
) -> None:
    with staged(tmp_path, kind, ci_failed={}) as scene:
        scene.begin(Answer(output="It was a typo", commit="mended"))
        world, red = scene.world, scene.head
        world.check(red, "lint", "success")
        world.check(red, "tests", "running")
        world.check(red, "deploy", "failure", is_status=True)
        scene.office.run()
        assert len(scene.prompts) == 1, "one still runs"
        world.check(red, "tests", "failure", "\x1b[31m" + "x" * 100_000 + "\nE assert 1 == 2\n")
        scene.office.run()
        assert scene.office.troubles() == {}
        prompt = scene.prompts[1]  # `office` holds it to the same session
        assert "── tests ──" in prompt and prompt.count("E assert 1 == 2") == 1
        assert "── deploy ──" in prompt and "lint" not in prompt
        assert len(prompt) < 20_000 and "\x1b" not in prompt
        assert scene.office.messages(scene.branch) == ["greet", "mended"]
        assert "It was a typo" in scene.said()[-1]
        world.check(scene.head, "tests", "success")
        before = scene.office.picture()
        scene.office.run()
        assert scene.office.picture() == before
        assert set(scene.forge.log_askers) <= {""}, "no token goes elsewhere"


@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.storm
def test_d7_checks_that_stay_red_are_tried_as_often_as_the_file_says(
    tmp_path: Path, kind: str
) -> None:
    with staged(tmp_path, kind, ci_failed={"retries": 2, **SAID}) as scene:
        scene.begin(*(Answer(commit=f"try{n}") for n in range(5)))
        for _ in range(4):
            scene.world.check(scene.head, "tests", "failure", "no\n")
            scene.office.run()
        assert scene.office.messages(scene.branch) == ["greet", "try0", "try1"]
        left = [text for text in scene.said() if "Somebody has to look at this" in text]
        assert len(left) == 1
        assert "The checks are red, after 2 tries to mend that: tests" in left[0]
        scene.world.comment(scene.pull.number, "bob", "the port is 8080")  # begins anew
        scene.office.run()
        scene.world.check(scene.head, "tests", "failure", "no\n")
        scene.office.run()
        assert scene.office.messages(scene.branch)[3:] == ["try2", "try3"]


@pytest.mark.storm
def test_d7_an_agent_that_changes_nothing_is_not_asked_again(tmp_path: Path) -> None:
    with staged(tmp_path, "github", ci_failed={"retries": 5, **SAID}) as scene:
        scene.begin(Answer(output="It is not my fault"))
        scene.world.check(scene.head, "tests", "failure")
        scene.office.run()
        assert len(scene.prompts) == 2
        assert "It is not my fault" in scene.said()[0] and "red" in scene.said()[1]
        scene.world.check(scene.head, "tests", "failure")  # somebody ran it once more
        scene.office.run()
        assert len(scene.prompts) == 3


def test_d7_what_the_file_does_not_name_is_not_even_asked_for(tmp_path: Path) -> None:
    with staged(tmp_path, "github") as scene:
        scene.begin()
        scene.world.check(scene.head, "tests", "failure")
        scene.world.review(scene.pull.number, "bob", "CHANGES_REQUESTED", "no", ("a.py", 1, "no"))
        move_base(scene.forge)
        scene.office.seconds = 1e9
        scene.office.run()
        assert (len(scene.prompts), scene.said()) == (1, [])
        ends = ("/check-runs", "/status", "/reviews", f"/pulls/{scene.pull.number}")
        asked = [target.partition("?")[0] for _, target, _ in scene.forge.asked]
        assert not [target for target in asked if target.endswith(ends)]


@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.storm
def test_d7_review_comments_reach_the_agent_with_file_and_line(tmp_path: Path, kind: str) -> None:
    with staged(tmp_path, kind, changes_requested={"retries": 1, **SAID}) as scene:
        scene.begin(Answer(output="Renamed", commit="renamed"), Answer(commit="more"))
        world, number = scene.world, scene.pull.number
        world.review(number, "eve", "COMMENTED", "", ("README.md", 1, "delete it"))
        scene.office.run()
        assert len(scene.prompts) == 1, "eve's word does not count"
        world.review(number, "ann", "APPROVED", "Nice.")
        world.review(number, "bob", "CHANGES_REQUESTED", "Two things.", ("src/a.py", 12, "rename"))
        scene.office.run()
        assert "bob wrote at src/a.py:12:\nrename" in scene.prompts[1]
        assert ("bob wrote:\nTwo things." in scene.prompts[1]) == (kind == "github")
        assert "delete it" not in scene.prompts[1] and "Nice" not in scene.prompts[1]
        assert "Renamed" in scene.said()[-1]

        world.review(number, "bob", "CHANGES_REQUESTED", "", ("src/a.py", 12, "once more"))
        scene.office.run()
        assert len(scene.prompts) == 2
        assert "Changes are asked for, after 1 try to mend that: bob" in scene.said()[-1]
        said = scene.said()
        scene.office.run()
        assert scene.said() == said
        world.comment(number, "bob", "go on")  # and nothing of what was left is lost
        scene.office.run()
        assert "go on" in scene.prompts[2] and "once more" in scene.prompts[2]


@pytest.mark.parametrize("onto", ["merge", "rebase"])
@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.storm
def test_d7_a_conflict_is_mended_by_the_agent_and_pushed_with_lease(
    tmp_path: Path, kind: str, onto: str
) -> None:
    with staged(tmp_path, kind, conflict={"retries": 1}) as scene:
        scene.begin(Answer(output="Both are kept", commit="greet", content="both\n", onto=onto))
        scene.office.run()
        assert len(scene.prompts) == 1
        move_base(scene.forge)
        scene.office.run()
        assert len(scene.prompts) == 2 and "\nmain\n" in scene.prompts[1]
        main = scene.forge.branches()["main"]
        assert git(scene.forge.bare, "merge-base", "main", scene.branch) == main
        assert git(scene.forge.bare, "show", f"{scene.branch}:greet.txt") == "both"
        assert "Both are kept" in scene.said()[-1]
        scene.office.run()
        assert len(scene.prompts) == 2


@pytest.mark.storm
def test_d7_a_conflict_that_stays_is_left_to_a_person(tmp_path: Path) -> None:
    with staged(tmp_path, "github", conflict={"retries": 3, **SAID}) as scene:
        scene.begin(Answer(output="I cannot"))
        move_base(scene.forge)
        for _ in range(3):
            scene.office.run()
        assert len(scene.prompts) == 2
        assert "This conflicts with the branch that it is for, after 1 try" in scene.said()[-1]
        assert len(scene.said()) == 2


@pytest.mark.storm
def test_d7_what_somebody_else_pushed_is_not_overwritten(tmp_path: Path) -> None:
    with staged(tmp_path, "github", ci_failed={}) as scene:
        scene.begin(Answer(commit="mended"))
        red = scene.head
        tree = git(scene.forge.bare, "rev-parse", f"{red}^{{tree}}")
        other = git(scene.forge.bare, "commit-tree", tree, "-p", red, "-m", "bob's")
        git(scene.forge.bare, "update-ref", f"refs/heads/{scene.branch}", other)
        scene.world.check(red, "tests", "failure")
        scene.office.run()
        assert scene.head == other
        assert "stale info" in scene.office.troubles()[f"issue {scene.number}"].reason


@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.storm
def test_d7_silence_is_broken_once(tmp_path: Path, kind: str) -> None:
    with staged(tmp_path, kind, stale={"after": "3d", **SAID}) as scene:
        office = scene.office
        day = timedelta(days=1).total_seconds()
        office.seconds = begin = START.timestamp() - office.now()
        scene.begin()
        office.seconds = begin + 2.9 * day
        office.run()
        assert scene.said() == []
        office.seconds = begin + 3.1 * day
        office.run()
        assert len(scene.said()) == 1 and "for 3d" in scene.said()[0]
        office.seconds = begin + 6 * day
        office.run()
        assert len(scene.said()) == 1
        for days in (7, 10, 20):
            office.seconds = begin + days * day
            office.run()
        assert len(scene.said()) == 2, "nobody answered: that is left to a person, once"
        assert "Nobody has said anything for long" in scene.said()[1]
        assert len(scene.prompts) == 1


# ── left to a person, in the inbox ──


@pytest.mark.storm
def test_d7_what_cannot_be_mended_is_asked_in_the_inbox_with_what_is_needed(tmp_path: Path) -> None:
    with staged(tmp_path, "github", ci_failed={"retries": 1}) as scene:
        scene.begin(
            Answer(output="I changed the port", commit="port"), Answer(commit="more"), Answer()
        )
        office, inbox = scene.office, scene.office.inbox
        for _ in range(2):
            scene.world.check(scene.head, "tests", "failure", "E port taken\n")
            office.run()
        [asked] = inbox.all
        assert asked["what"] == "The checks are red, after 1 try to mend that: tests"
        about = asked["about"]
        assert about["repository"] == "acme/shop" and about["issue"] == "#1 [robo] Greet"
        assert about["pull_request"].endswith(f"/pull/{scene.pull.number}")
        assert "E port taken" in about["log"] and "I changed the port" in about["agent_said"]
        assert "try again" in about["approve"] and "leave it" in about["deny"]
        assert not [text for text in scene.said() if "Somebody has to look" in text]
        office.run()
        assert len(inbox.all) == 1 and len(scene.prompts) == 2

        inbox.answer("again")
        office.run()
        assert office.messages(scene.branch) == ["greet", "port", "more"]
        scene.world.check(scene.head, "tests", "failure", "E still\n")
        office.run()
        assert inbox.states == ["again", "waiting"]
        inbox.answer("leave")
        office.run()
        scene.world.check(scene.head, "tests", "failure", "E still\n")
        office.run()
        assert (inbox.states, len(scene.prompts)) == (["again", "leave"], 3)


@pytest.mark.storm
def test_d7_try_again_means_once_at_least(tmp_path: Path) -> None:
    with staged(tmp_path, "github", conflict={"retries": 0}) as scene:
        scene.begin(Answer(output="no"), Answer(output="no"))
        move_base(scene.forge)
        for asked in (1, 2, 3):
            scene.office.run()
            assert scene.office.inbox.states == ["again"] * (asked - 1) + ["waiting"]
            assert len(scene.prompts) == asked
            scene.office.inbox.answer("again")


@pytest.mark.parametrize("what", ["mended", "commented", "closed", "approved"])
@pytest.mark.storm
def test_d7_a_question_is_withdrawn_when_nobody_has_to_decide_it(tmp_path: Path, what: str) -> None:
    with staged(tmp_path, "github", ci_failed={"retries": 0}) as scene:
        scene.begin(Answer(output="I see"))
        scene.world.check(scene.head, "tests", "failure")
        scene.office.run()
        assert scene.office.inbox.states == ["waiting"]
        match what:
            case "mended":
                scene.world.check(scene.head, "tests", "success")
            case "commented":
                scene.world.comment(scene.pull.number, "ann", "look at the port")
            case "closed":
                scene.world.edit(scene.number, state="closed")
            case "approved":
                scene.world.react(scene.pull.number, "ann", "+1")
        memory = scene.office.run()
        assert scene.office.inbox.states[0] == "withdrawn"
        is_over = what in ("closed", "approved")
        assert (memory.works == {}) == is_over
        # After a comment it is a new beginning, which asks anew as long as nothing is mended.
        assert scene.office.inbox.states[1:] == (["waiting"] if what == "commented" else [])


@pytest.mark.storm
def test_d7_a_mended_conflict_counts_no_more(tmp_path: Path) -> None:
    with staged(tmp_path, "github", conflict={"retries": 1}) as scene:
        both = [Answer(commit="greet", content=f"{n}\n", onto="merge") for n in range(3)]
        scene.begin(*both)
        for number in range(3):
            move_base(scene.forge, f"{number}\n" * 9)
            scene.office.run()
        assert (len(scene.prompts), scene.office.inbox.all) == (4, [])


@pytest.mark.storm
@pytest.mark.parametrize("change", [1, 5], ids=["red checks", "left to a person"])
def test_d7_a_director_that_is_killed_while_it_reacts_does_nothing_twice(
    tmp_path: Path, change: int
) -> None:
    """At every step after that happened; what comes later does not happen here."""
    with contextlib.ExitStack() as stack:
        life = Reacting(stack)
        life.changes = life.changes[:change]
        wanted = undisturbed(life, tmp_path / "whole")
        hit = 0
        for name, picture in killed(life, tmp_path / "killed", only=change):
            assert picture == wanted, name
            hit += 1
        assert hit >= 6


@pytest.mark.storm
def test_d7_the_whole_life_of_a_pull_with_faults(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        check_reacting(undisturbed(Reacting(stack), tmp_path / "whole"))
