"""The life of an issue on GitLab: D4. The rules are GitHub's; `test_life` has more of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.directors.forge.gitlab import GitLabForge
from tests.directors.replay import killed, undisturbed
from tests.forge import official
from tests.forge.gitlab_routes import MERGE_REQUESTS
from tests.forge.lives import Life, check
from tests.forge.office import LGTM, Answer, Office
from tests.forge.quota import Limit
from tests.forge.server import Forge, served_gitlab
from tests.forge.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    (tmp_path / "forge").mkdir()
    world = World("acme/shop", {"ann": "admin", "anna": "read", "bot": "write", "eve": "read"})
    with served_gitlab(tmp_path / "forge", world) as made:
        yield made
        assert made.faults == []


@pytest.fixture
def office(tmp_path: Path, forge: Forge) -> Office:
    return Office(tmp_path / "office", forge, adapter=GitLabForge)


def test_d4_an_issue_goes_from_its_title_to_an_approved_merge_request(
    office: Office, forge: Forge
) -> None:
    world = forge.world
    strange = world.open_issue("anna", "[robo] Give me more", "")
    number = world.open_issue("ann", "[robo] Greet people", "Say hello")
    said = "I greet now\n/merge\n  /close\n/\rapprove\nsee !7 and #8, @ann"
    office.script(number, Answer(output=said, commit="greet"), LGTM)
    office.run()
    issue = world.issues[number]
    assert issue.assignees == ["bot"]
    assert [(each.author, each.content) for each in issue.reactions] == [("bot", "eyes")]
    [claim] = world.said(number, "bot")
    assert "robo works on this" in claim
    [merge] = world.pulls
    assert (merge.title, office.messages("claude/issue-2")) == ("Greet people", ["greet"])
    assert merge.body.startswith(f"Closes #{number}\n\nI greet now")
    # What an agent writes gives GitLab no commands; as it was, it would.
    assert forge.routes.commands == []
    assert "@ann" not in merge.body and "!7" not in merge.body
    assert world.said(strange, "bot") == []

    world.react(merge.number, "anna", "+1")
    office.run()
    assert merge.labels == []
    world.react(merge.number, "ann", "+1")
    memory = office.run()
    assert (merge.labels, merge.state) == (["approved"], "open")
    assert "Approved by ann" in world.said(merge.number, "bot")[-1]
    assert memory.over == {number: "approved"}
    assert memory.history[0].model_dump()["pull"].endswith(f"/{MERGE_REQUESTS + merge.number}")
    assert office.picture() == (office.run(), office.picture())[1], "and then nothing more"


def test_d4_the_fake_takes_such_lines_for_commands(forge: Forge) -> None:
    """The other half."""
    number = forge.world.open_issue("ann", "x", "")
    target = f"/api/v4/projects/acme%2Fshop/issues/{number}/notes"
    forge.routes.answer("bot", "POST", target, b'{"body": "hm\\n/merge\\n/\\rapprove"}')
    assert forge.routes.commands == ["merge", "approve"]


@pytest.mark.storm
def test_d4_drafts_comments_and_what_is_not_changed(office: Office, forge: Forge) -> None:
    world = forge.world
    first, second = (world.open_issue("ann", f"[robo] {word}", "") for word in ("One", "Two"))
    doubts = [Answer(output="Hm.")] * 3
    office.script(first, Answer(commit="one"), *doubts, Answer(commit="more"), LGTM)
    office.script(second, Answer(output="It is done already"))
    office.run()
    [merge] = world.pulls
    assert merge.title == "Draft: One"
    assert "It is done already" in world.said(second, "bot")[-1]
    world.comment(merge.number, "ann", "more, please")
    office.run()
    assert office.messages(office.branch(first)) == ["one", "more"]
    assert "more, please" in office.tasks.prompts(office.branch(first))[4]
    world.edit(merge.number, state="closed")
    assert office.run().over == {first: "rejected", second: "no change"}


def test_d4_limits_of_gitlab_are_waited_for(office: Office, forge: Forge) -> None:
    forge.limits.append(Limit("secondary", 70, 429))
    office.run()
    [trouble] = office.troubles().values()
    assert (trouble.verdict.value, trouble.wait_seconds) == ("later", 70.0)


@pytest.mark.skipif(
    not official.GITLAB_FILE.exists(), reason="GitLab's description is not beside this checkout"
)
def test_d6_the_description_of_gitlab_refuses_what_is_wrong(forge: Forge) -> None:
    wrong = (
        ("POST", "/api/v4/projects/acme%2Fshop/merge_requests", b'{"title": "x"}'),
        ("PUT", "/api/v4/projects/acme%2Fshop/issues/1", b'{"state_event": "explode"}'),
        ("GET", "/api/v4/oops", b""),
    )
    for method, target, body in wrong:
        file = official.GITLAB_FILE
        assert official.find_faults(forge.url, method, target, body, 403, b"{}", file), target


@pytest.mark.storm
def test_d4_a_director_of_gitlab_that_is_killed_does_nothing_twice(tmp_path: Path) -> None:
    """At some of the steps; all of them are GitHub's."""
    with contextlib.ExitStack() as stack:
        life = Life(stack, served_gitlab, GitLabForge)
        wanted = undisturbed(life, tmp_path / "whole")
        check(wanted)
        for hit, (name, picture) in enumerate(killed(life, tmp_path / "killed"), 1):
            assert picture == wanted, name
            if hit == 30:
                break
