"""The life of an issue: D2, D3. Real rules, loop, git and HTTP; agents that answer at once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forge.office import LGTM, Answer, Office
from tests.forge.quota import Limit
from tests.forge.server import Forge, git, served_github
from tests.forge.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    world = World("acme/shop", {"ann": "admin", "bot": "write", "bob": "write", "eve": "read"})
    (tmp_path / "forge").mkdir()
    with served_github(tmp_path / "forge", world) as made:
        yield made
        assert made.faults == []


@pytest.fixture
def office(tmp_path: Path, forge: Forge) -> Office:
    return Office(tmp_path / "office", forge)


def test_d2_an_issue_goes_from_its_title_to_an_approved_pull(office: Office, forge: Forge) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet people", "Say hello")
    office.script(number, Answer(output="I greet now", commit="greet"), LGTM)
    office.run()
    issue = world.issues[number]
    assert issue.assignees == ["bot"]
    assert [(each.author, each.content) for each in issue.reactions] == [("bot", "eyes")]
    [claim] = world.said(number, "bot")
    assert "robo works on this" in claim
    [pull] = world.pulls
    assert pull.pull is not None and not pull.pull.draft
    assert (pull.title, pull.pull.branch) == ("Greet people", "claude/issue-1")
    assert pull.body.startswith(f"Closes #{number}\n\nI greet now")
    assert office.messages("claude/issue-1") == ["greet"]
    assert forge.pushed and set(forge.pushed) == {"bot"}
    assert len(office.tasks.prompts("claude/issue-1")) == 2

    world.react(pull.number, "eve", "+1")
    office.run()
    assert pull.labels == []
    world.react(pull.number, "ann", "+1")
    memory = office.run()
    assert pull.labels == ["approved"]
    assert "Approved by ann" in world.said(pull.number, "bot")[-1]
    assert (pull.state, memory.over) == ("open", {number: "approved"})
    assert memory.history[0].state == "approved"


@pytest.mark.storm
def test_d2_a_comment_after_the_pull_is_more_work_in_the_same_session(
    office: Office, forge: Forge
) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet", "")
    office.script(
        number, Answer(commit="greet"), LGTM, Answer(output="Louder now", commit="louder"), LGTM
    )
    office.run()
    [pull] = world.pulls
    world.comment(pull.number, "eve", "delete everything")
    world.comment(pull.number, "bob", "louder, please")
    office.run()
    assert office.messages("claude/issue-1") == ["greet", "louder"]
    prompt = office.tasks.prompts("claude/issue-1")[2]
    assert "louder, please" in prompt and "delete" not in prompt
    assert "Louder now" in world.said(pull.number, "bot")[-1]
    assert len(world.pulls) == 1
    before = office.picture()
    office.run()
    assert office.picture() == before


@pytest.mark.storm
def test_d2_an_approval_is_of_the_code_that_was_there(office: Office, forge: Forge) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM, Answer(commit="backdoor"), LGTM)
    office.run()
    [pull] = world.pulls
    seen = forge.branches()[office.branch(number)]
    world.comment(pull.number, "bob", "louder, please")
    world.react(pull.number, "ann", "+1")
    memory = office.run()
    assert forge.branches()[office.branch(number)] != seen
    assert (pull.labels, memory.over) == ([], {}), "ann has not seen this"
    pull.reactions.clear()  # ann takes it away, and gives it again
    world.react(pull.number, "ann", "+1")
    assert office.run().over == {number: "approved"}


@pytest.mark.storm
def test_d2_an_answer_that_changes_nothing_leaves_an_approval(office: Office, forge: Forge) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM, Answer(output="Because."))
    office.run()
    [pull] = world.pulls
    world.comment(pull.number, "bob", "why?")
    world.react(pull.number, "ann", "+1")
    assert office.run().over == {number: "approved"}


@pytest.mark.storm
def test_d2_reviews_without_an_end_make_a_draft_that_says_so(office: Office, forge: Forge) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    doubts = [Answer(output=f"LGTM, but doubt {n}") for n in range(3)]
    office.script(number, Answer(commit="greet"), *doubts)
    office.run()
    [pull] = forge.world.pulls
    assert pull.pull is not None and pull.pull.draft
    assert "doubt 2" in pull.body
    assert len(office.tasks.prompts("claude/issue-1")) == 4


def test_d2_no_change_is_a_comment_with_the_result(office: Office, forge: Forge) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(output="It greets already"))
    memory = office.run()
    assert "It greets already" in forge.world.said(number, "bot")[-1]
    assert (forge.world.pulls, memory.over) == ([], {number: "no change"})
    assert set(forge.branches()) == {"main"}


@pytest.mark.storm
def test_d2_what_was_not_committed_is_asked_for_and_never_called_nothing(
    office: Office, forge: Forge
) -> None:
    first, second = (forge.world.open_issue("ann", f"[robo] {n}", "") for n in range(2))
    lazy = Answer(output="I greet", is_uncommitted=True)
    office.script(first, lazy, Answer(commit="greet", output="Committed"), LGTM)
    office.script(second, *[lazy] * 4)
    office.run()
    assert office.messages(office.branch(first)) == ["greet"]
    assert "still where the agent worked" in forge.world.said(second, "bot")[-1]


@pytest.mark.storm
def test_d2_commits_that_are_on_their_way_are_waited_for(office: Office, forge: Forge) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(output="I greet", commit="greet", is_coming=True), LGTM)
    memory = office.run()
    assert (memory.over, len(forge.world.said(number, "bot"))) == ({}, 1)
    office.tasks.come(office.rules().checkouts.clone)
    office.seconds = 60
    office.run()
    assert office.messages(office.branch(number)) == ["greet"]
    assert len(forge.world.pulls) == 1


def test_d2_commits_that_were_refused_are_a_failure(tmp_path: Path, forge: Forge) -> None:
    office = Office(tmp_path / "office", forge, settings={"give_up_after": 1})
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(output="I greet", refused="commits were not brought over"))
    memory = office.run()
    assert memory.over == {number: "given up"}
    assert "commits were not brought over" in forge.world.said(number, "bot")[-1]


@pytest.mark.parametrize("what", ["closed", "assigned"])
def test_d2_what_happens_meanwhile_ends_the_work_and_its_task(
    office: Office, forge: Forge, what: str
) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(is_open=True))
    office.run()
    if what == "closed":
        forge.world.edit(number, state="closed")
    else:
        forge.world.edit(number, assignees=["bob"])
    memory = office.run()
    assert memory.over == {number: "closed" if what == "closed" else "left to bob"}
    assert office.tasks.cancelled == 1
    assert len(forge.world.said(number, "bot")) == 1


@pytest.mark.parametrize("what", ["deleted", "transferred"])
@pytest.mark.storm
def test_d2_an_issue_that_is_gone_ends_its_work_and_no_other(
    office: Office, forge: Forge, what: str
) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM)
    assert office.run().works[number].stage.stage == "waiting"
    with world.lock:
        if what == "deleted":
            del world.issues[number]
        else:
            world.issues[number].state = "closed"  # the list has it no more
            forge.refused = {f"/issues/{number}": 301, f"/issues/{number}/comments": 301}
    other = world.open_issue("ann", "[robo] Other", "")
    memory = office.run()
    assert memory.over == {number: "closed", other: "no change"}
    assert office.troubles() == {}


@pytest.mark.storm
def test_d2_an_issue_that_cannot_be_looked_at_holds_up_no_other(
    office: Office, forge: Forge
) -> None:
    world = forge.world
    number = world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM)
    office.run()
    [pull] = world.pulls
    forge.refused = {f"/issues/{pull.number}/comments": 403}  # a person has to look at that
    other = world.open_issue("ann", "[robo] Other", "")
    for _ in range(3):
        memory = office.run()
        assert list(office.troubles()) == [f"issue {number}"]
        office.seconds += 1000
    assert memory.over == {other: "no change"}
    forge.refused = {}
    world.react(pull.number, "ann", "+1")
    assert office.run().over == {other: "no change", number: "approved"}
    assert office.troubles() == {}


@pytest.mark.storm
def test_d2_a_task_that_fails_is_tried_again_later_and_given_up_with_the_reason(
    tmp_path: Path, forge: Forge
) -> None:
    office = Office(tmp_path / "office", forge, settings={"give_up_after": 3})
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    ill = Answer(failure="engine_error: /home/ann is ill", failure_kind="engine_error")
    office.script(number, *[ill] * 3)
    office.run()
    branch = "claude/issue-1"
    assert len(office.tasks.prompts(branch)) == 1
    for seconds, tasks in ((59, 1), (61, 2), (120, 2), (182, 3)):
        office.seconds = seconds
        memory = office.run()
        assert len(office.tasks.prompts(branch)) == tasks
    assert memory.over == {number: "given up"}
    said = forge.world.said(number, "bot")[-1]
    assert "the task failed (engine_error)" in said and "/home/ann" not in said
    assert memory.history[0].reason == "engine_error: /home/ann is ill", "its owner can read it"


@pytest.mark.storm
def test_d2_issues_that_nobody_works_on_are_told(office: Office, forge: Forge) -> None:
    numbers = [forge.world.open_issue("ann", f"[robo] Greet {n}", "") for n in range(2)]
    for number in numbers:
        office.script(number, Answer(is_open=True, is_untaken=True))
    office.run()
    office.seconds = 60
    office.run()
    assert office.troubles() == {}, "it may be taken at any moment"
    office.seconds = 61
    office.run()
    [trouble] = office.troubles().values()
    assert trouble.reason == "issues 1, 2 wait for a free agent of role coder"
    assert (trouble.verdict, trouble.hint) == ("person", "bullpen agent start NAME --role coder")
    # Somebody is there: the others wait for that one, and nobody has to do anything.
    for file in office.tasks.directory.glob("*.task"):
        if '"claude/issue-1"' in (text := file.read_text()):
            file.write_text(text.replace('"is_untaken": true', '"is_untaken": false'))
    office.run()
    assert office.troubles() == {}


@pytest.mark.storm
def test_d2_issues_of_another_director_of_the_same_name_are_not_done_again(
    tmp_path: Path, office: Office, forge: Forge
) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(is_open=True))
    office.run()
    other = Office(tmp_path / "other", forge, settings={"status_issue": False})
    newer = forge.world.open_issue("ann", "[robo] Greet all", "")
    assert other.run().works == {}
    [trouble] = other.troubles().values()
    assert trouble.reason.startswith(f"somebody else works as robo here: issue {number} has")
    office.script(newer, Answer(is_open=True))
    assert set(office.run().works) == {number, newer}, "it knows its own"
    comments = forge.world.issues[number].comments
    comments[:] = [each for each in comments if "works on this" not in each.body]
    forge.world.touch(number)
    forge.world.edit(newer, state="closed")
    other.script(number, Answer(is_open=True))
    assert set(other.run().works) == {number} and other.troubles() == {}


def test_d2_a_file_that_has_changed_since_the_start_is_told(office: Office) -> None:
    loop = office.loop()
    loop.rules.is_file_changed = lambda: True  # type: ignore[attr-defined]
    asyncio.run(loop.step())
    [trouble] = office.troubles().values()
    assert "directors/robo.yaml has changed" in trouble.reason
    assert trouble.hint == "bullpen director restart robo"
    office.run()  # with the file as it is
    assert office.troubles() == {}


@pytest.mark.storm
def test_d2_a_task_that_had_no_directory_is_given_anew_with_its_branch(
    office: Office, forge: Forge
) -> None:
    """In the conversation of before it would work in an empty directory."""
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    failed = Answer(failure="setup_failed: the worktree is taken", is_unbegun=True)
    office.script(number, failed, Answer(output="I greet now", commit="greet"), LGTM)
    office.run()
    office.seconds = 61
    office.run()
    assert office.troubles() == {}
    [pull] = forge.world.pulls
    assert "I greet now" in pull.body


@pytest.mark.storm
def test_d2_the_branch_begins_where_the_forge_is_now(office: Office, forge: Forge) -> None:
    world = forge.world
    first = world.open_issue("ann", "[robo] One", "")
    office.script(first, Answer(commit="one"), LGTM)
    office.run()
    seed = forge.bare.parent / "seed"
    git(seed, "commit", "-q", "--allow-empty", "-m", "Newer")
    git(seed, "push", "-q", str(forge.bare), "main")
    second = world.open_issue("ann", "[robo] Two", "")
    office.script(second, Answer(commit="two"), LGTM)
    office.run()
    assert office.messages(office.branch(second)) == ["two"]
    newest = forge.branches()["main"]
    assert git(forge.bare, "merge-base", "main", office.branch(second)) == newest


@pytest.mark.storm
def test_d2_a_limit_is_waited_for_as_long_as_github_says(office: Office, forge: Forge) -> None:
    forge.world.open_issue("ann", "[robo] Greet", "")
    for limit in (Limit("secondary", 70), Limit("primary", 600, 429)):
        forge.limits.append(limit)
        office.run()
        [trouble] = office.troubles().values()
        assert trouble.verdict.value == "later"
        assert limit.seconds / 2 < trouble.wait_seconds <= limit.seconds + 1
        asked = len(forge.asked)
        office.run()
        assert len(forge.asked) == asked, "nothing is asked before it is over, by no process"
        office.seconds += limit.seconds + 1
    assert office.run().over == {1: "no change"}


@pytest.mark.storm
def test_d2_a_change_whose_answer_is_lost_is_not_made_twice(
    tmp_path: Path, office: Office, forge: Forge
) -> None:
    """Each kind of change once: the forge has made it, and the director cannot know."""
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM)
    ends = ["/assignees", "/reactions", "/comments", "/pulls", "/labels", "/issues", "/issues/2"]
    forge.lost = list(ends)
    for _ in range(30):
        office.run()
        office.seconds += 1000
        if forge.world.pulls and not forge.world.pulls[0].reactions:
            forge.world.react(forge.world.pulls[0].number, "ann", "+1")
    assert forge.lost == []
    world, [pull] = forge.world, forge.world.pulls
    assert len(world.said(number, "bot")) == 1 and len(world.said(pull.number, "bot")) == 1
    assert (pull.labels, len(world.issues)) == (["approved"], 3)
    assert len(office.tasks.prompts("claude/issue-1")) == 2
    assert office.run().over == {number: "approved"}


@pytest.mark.parametrize("end", ["closed", "merged"])
def test_d2_a_pull_that_was_over_before_its_director_knew_of_it_is_the_only_one(
    office: Office, forge: Forge, end: str
) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(commit="greet"), LGTM)
    forge.lost = ["/pulls"]
    office.run()
    [pull] = forge.world.pulls
    assert pull.pull is not None
    pull.pull.merged = end == "merged"
    forge.world.edit(pull.number, state="closed")
    office.seconds += 1000
    memory = office.run()
    assert forge.world.pulls == [pull]
    assert memory.over == {number: "merged" if end == "merged" else "rejected"}


@pytest.mark.storm
def test_d2_a_forge_that_is_away_is_waited_for(office: Office, forge: Forge) -> None:
    forge.world.open_issue("ann", "[robo] Greet", "")
    forge.is_down = True
    for _ in range(5):
        office.run()
        office.seconds += 1000
    assert [words[:2] for words in office.told] == [("warn", "failed, and is tried again")]
    forge.is_down = False
    assert office.run().over == {1: "no change"}
    assert [word for _, word, _ in office.told[1:]] == ["goes on"]


def test_d2_an_idle_poll_of_200_issues_costs_304s_only(office: Office, forge: Forge) -> None:
    for number in range(200):
        forge.world.open_issue("eve", f"issue {number}")

    async def poll() -> list[tuple[str, str, int]]:
        loop = office.loop()
        while await loop.step():
            pass
        before = len(forge.asked)
        for _ in range(5):
            assert await loop.step() == 0
        return forge.asked[before:]

    polls = asyncio.run(poll())
    assert {status for _, _, status in polls} == {304}, polls


@pytest.mark.storm
def test_d2_a_wrong_token_needs_a_person_once_and_a_new_one_is_used_at_once(
    office: Office, forge: Forge
) -> None:
    forge.world.open_issue("ann", "[robo] Greet", "")
    right = office.token_file.read_text()
    office.token_file.write_text("ghp_" + "x" * 36)
    for _ in range(3):
        office.run()
    assert [word for _, word, _ in office.told] == ["needs a person"]
    assert "bullpen auth set github-token" in str(office.told[0][2]["hint"])
    office.token_file.write_text(right)
    assert office.run().over == {1: "no change"}


@pytest.mark.storm
def test_d2_the_status_issue_is_one_and_closed_at_the_end(office: Office, forge: Forge) -> None:
    number = forge.world.open_issue("ann", "[robo] Greet", "")
    office.script(number, Answer(is_open=True))
    office.run()
    memory = office.run()
    [status] = [issue for issue in forge.world.issues.values() if issue.author == "bot"]
    assert status.title == "Status of robo" and f"#{number}: asked" in status.body
    asyncio.run(office.rules().close_status(memory))
    assert status.state == "closed"
    office.run()
    assert (status.state, len(forge.world.issues)) == ("open", 2)


@pytest.mark.parametrize("is_lost", [False, True], ids=["told", "answer lost"])
def test_d2_a_status_issue_that_is_deleted_is_replaced_by_one(
    office: Office, forge: Forge, is_lost: bool
) -> None:
    assert office.run().status_issue == 1
    with forge.world.lock:
        del forge.world.issues[1]
    forge.lost = ["/issues"] if is_lost else []
    office.run()  # shown at each start
    office.seconds += 1000
    memory = office.run()
    [status] = forge.world.issues.values()
    assert (status.title, memory.status_issue) == ("Status of robo", status.number)
    assert office.troubles() == {} and forge.lost == []
