"""A goal in a repository is led on a branch of its own, and what its tasks did lands there (D5).

A real director, hub and sandbox. Who leads is a plain program whose goal is a shell script; the
test calls its tools over its own socket, as its engine would.
"""

import contextlib
import json
import random
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hot import wire
from tests.directors.running import RunningDirector
from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow

OVER = ("completed", "failed", "cancelled")
SECONDS = 120.0
WHO = "-c user.name=Dev -c user.email=dev@example.com"
SHELL = {**PROGRAM, "command": ["sh"]}
LEADER = {
    "capabilities": ["delegate"],
    "may_grant": "coder",
    "permissions": {"deny": ["Edit", "Write", "NotebookEdit"]},
    "sandbox": {"enabled": True, "read_only_paths": ["."]},
}
ATTACKS = (
    "echo mine > mine.txt",
    "git commit --allow-empty -qm mine",
    "git update-ref refs/heads/main HEAD~1",
    "git update-ref refs/heads/mine HEAD",
)


class Lead:
    """A home with a director of the leading role in a repository on main, and its tools."""

    def __init__(self, grove: Grove, director: RunningDirector) -> None:
        self.grove, self.director, self.repo = grove, director, grove.repo

    def give(self, goal: str, **fields: str) -> str:
        """A goal that is being led; its id."""
        body = {"prompt": goal, **fields}
        id = str(self.director.ask("POST", "/task", body)["task_id"])
        wait_until(lambda: self.goal(id)["state"] != "queued")
        return id

    def call(self, tool: str, request: str = "", **arguments: Any) -> Any:
        """One of the tools of who leads."""
        return self.grove.call("lead", tool, request, **arguments)

    def delegate(self, prompt: str, **fields: str) -> str:
        """A task of dev's, once it is over; its id."""
        agent = {} if "continue_task" in fields else {"agent": "dev"}
        id = str(self.call("delegate_task", prompt=prompt, **agent, **fields)["task_id"])
        self.ended(id)
        return id

    def ended(self, task: str) -> dict[str, Any]:
        client = self.grove.pen.client
        wait_until(lambda: client().get("task", task)["state"] in OVER, SECONDS)
        return client().get("task", task)

    def merge(self, task: str, request: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = self.call("merge_task", request, task_id=task)
        return answer

    def text(self, ref: str, file: str) -> str:
        return git(self.repo, "show", f"{ref}:{file}")

    def goal(self, id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.director.ask("GET", f"/task/{id}")
        return shown

    def over(self, id: str) -> dict[str, Any]:
        wait_until(lambda: self.goal(id)["state"] in OVER, SECONDS)
        return self.goal(id)


def write(file: str, text: str) -> str:
    """What a coder does."""
    return f"echo {text} > {file} && git add {file} && git {WHO} commit -qm '{text} in {file}'"


def until(*files: str) -> str:
    """A goal that is reached when these are in the leader's worktree."""
    there = " -a ".join(f"-e {file}" for file in files)
    return f"until [ {there} ]; do sleep 0.05; done; echo {' '.join(files)} are there"


@pytest.fixture
def lead() -> Iterator[Lead]:
    with made_grove() as grove:
        for name, fields in (("leader", LEADER), ("coder", {})):
            grove.pen.role(name, **SHELL, **fields)
        commit(grove.repo, "file.txt", "main\n")
        director = RunningDirector(grove.pen, "lead")
        fields = {"type": "claude", "role": "leader", "port": grove.pen.free_port()}
        director.file.write_text(json.dumps({**fields, "workdir": str(grove.repo)}))
        director.start()
        assert grove.pen.cli("agent", "start", "dev", "--role", "coder").code == 0
        try:
            yield Lead(grove, director)
        finally:
            with contextlib.suppress(AssertionError):
                director.cli("director", "stop", "lead")


def test_d5_a_goal_is_led_on_a_branch_of_its_own_where_its_leader_cannot_write(lead: Lead) -> None:
    tried = "; ".join(f"({attack}) 2>/dev/null && echo DONE" for attack in ATTACKS)
    main = git(lead.repo, "rev-parse", "main")
    id = lead.give(f"git branch --show-current; cat file.txt; {tried}; true")
    assert lead.over(id)["report"].split() == [f"lead-{id}", "main"]
    # Nothing came to be on it.
    wait_until(lambda: (lead.grove.branches(), lead.grove.worktrees()) == ({"main"}, set()))
    assert lead.grove.pen.client().get("agents", "lead")["branch"] == ""
    assert git(lead.repo, "rev-parse", "main") == main
    assert git(lead.repo, "status", "--porcelain") == ""


def test_d5_a_task_that_waits_longer_than_its_goal_begins_at_the_branch_of_the_goal(
    lead: Lead,
) -> None:
    client = lead.grove.pen.client
    id = lead.give(until("never.txt"))
    body = {"prompt": until("never.txt"), "workdir": str(lead.repo)}
    before = client().post("agents", "dev", "task", body=body)["task_id"]
    prompt = f"git log -1 --format=%s && {write('late.txt', 'late')}"
    late = lead.call("delegate_task", prompt=prompt, agent="dev", branch_name="late")["task_id"]
    lead.director.ask("POST", f"/task/{id}/cancel")
    assert lead.over(id)["state"] == "cancelled"
    client().post("task", before, "cancel")
    assert lead.ended(late)["state"] == "completed"
    assert lead.text("late", "late.txt") == "late"


def test_d5_two_tasks_land_in_the_branch_of_the_goal_and_one_of_them_conflicts(lead: Lead) -> None:
    id = lead.give(until("csv.txt", "docs.txt", "end.txt"))
    branch = f"lead-{id}"
    csv = lead.delegate(write("csv.txt", "csv"), branch_name="csv")
    both = f"{write('csv.txt', 'other')} && {write('docs.txt', 'docs')}"
    docs = lead.delegate(both, branch_name="docs")
    landed = lead.merge(csv)
    assert (landed["state"], landed["into"]) == ("landed", branch), landed
    assert lead.merge(csv) == landed  # asked twice
    before = git(lead.repo, "rev-parse", branch)
    refused = lead.merge(docs)
    assert (refused["why"], refused["files"]) == ("conflict", ["csv.txt"]), refused
    assert git(lead.repo, "rev-parse", branch) == before
    # As the answer says.
    merge = f"git {WHO} merge -q {before}; {write('csv.txt', 'both')}"
    assert before in refused["hint"] and docs in refused["hint"]
    more = lead.delegate(merge, continue_task=docs)
    assert lead.merge(more)["state"] == "landed"
    assert lead.text(branch, "csv.txt") == "both"
    # What follows begins there.
    last = lead.delegate(f"cat csv.txt docs.txt && {write('end.txt', 'end')}", branch_name="last")
    assert lead.ended(last)["output"].split() == ["both", "docs"]
    assert lead.merge(last)["state"] == "landed"
    assert lead.over(id)["report"] == "csv.txt docs.txt end.txt are there"
    assert git(lead.repo, "rev-list", "--count", "--merges", "--first-parent", branch) == "3"
    # What the tasks leave goes; nothing of the person's has moved.
    wait_until(lambda: lead.grove.branches() == {"main", branch})
    wait_until(lambda: lead.grove.worktrees() == {branch})
    assert git(lead.repo, "status", "--porcelain") == ""
    assert git(lead.repo, "log", "--format=%s", "main").splitlines()[-1] == "first"
    wait_until(lambda: not lead.grove.pen.client().get("landings")["landings"])
    # One command brings it there, as the goal says.
    shown = lead.director.cli("director", "goal", "lead", id)
    line = shown.out.splitlines()[-1]
    assert line == f"8 commits on branch {branch} · bullpen diff {branch} · bullpen land {branch}"
    assert lead.goal(id)["branch"] == branch
    commands = [part.split()[1:] for part in line.split(" · ")[1:]]
    diff, landed_by_person = [lead.grove.pen.cli(*words, cwd=lead.repo) for words in commands]
    assert "+both" in diff.out and "moved" in landed_by_person.out, (diff, landed_by_person)
    assert (lead.repo / "end.txt").read_text() == "end\n"
    landed_as = git(lead.repo, "rev-parse", "--short=7", "main")
    shown = lead.director.cli("director", "goal", "lead", id)
    landed_line = f"8 commits · landed on main as {landed_as}"
    line = shown.out.splitlines()[-1]
    assert line == f"{landed_line} · bullpen finish {branch} --land removes its branch"
    finished = lead.grove.pen.cli("finish", branch, "--land", cwd=lead.repo)
    assert finished.code == 0, finished
    assert (lead.grove.branches(), lead.grove.worktrees()) == ({"main"}, set())
    assert lead.director.cli("director", "goal", "lead", id).out.splitlines()[-1] == landed_line


def test_n1_a_branch_with_a_slash_names_its_worktree_in_every_command(lead: Lead) -> None:
    pen, branch = lead.grove.pen, "feature/csv"

    def cli(*words: str) -> str:
        ran = pen.cli(*words, cwd=lead.repo)
        assert ran.code == 0, ran
        return ran.out

    def work(text: str) -> None:
        given = write("csv.txt", text)
        cli("task", "dev", given, "--repo", str(lead.repo), "--worktree", branch)

    work("csv")
    for words in (["diff"], ["worktree", "info"], ["worktree", "lock"], ["worktree", "unlock"]):
        cli(*words, branch)
    assert "landed as" in cli("land", branch)
    assert (
        cli("finish", branch, "--land").splitlines()[-1]
        == "feature~csv removed · with branch " + branch
    )
    assert lead.grove.branches() == {"main"}
    work("again")
    dropped, removed = cli("finish", branch, "--discard").splitlines()
    assert "kept for 30 days" in dropped
    assert removed == "feature~csv removed"
    cli("worktree", "restore", branch)
    assert "+again" in cli("diff", branch)
    assert cli("land", branch).count("landed as") == 1
    cli("worktree", "remove", branch)
    assert lead.grove.worktrees() == set()


ROUNDS = 4
PAUSE_SECONDS = (0.1, 2.0)  # between two deaths of the hub


@pytest.mark.storm
def test_d5_all_of_it_lands_once_however_often_the_hub_is_killed(lead: Lead) -> None:
    """Each call is sent again with the same request until a hub answers, as relays do. Of two tasks
    that begin at the same commit the second conflicts."""
    pen, is_over = lead.grove.pen, threading.Event()
    seed = random.randrange(1 << 32)
    kills = 0

    def storm() -> None:
        nonlocal kills
        pauses = random.Random(seed)
        while not is_over.wait(pauses.uniform(*PAUSE_SECONDS)):
            pen.kill_hub()
            pen.start()
            kills += 1

    killer = threading.Thread(target=storm, daemon=True)
    id = lead.give(until("end.txt"))
    killer.start()
    try:
        for number in range(ROUNDS):
            for merged in two_tasks(lead, number):
                assert merged["state"] == "landed", (seed, merged)
        end = surely_done(lead, write("end.txt", "end"), branch_name="end")
        assert surely_merged(lead, end)["state"] == "landed"
        row = lead.over(id)
    finally:
        is_over.set()
        killer.join(SECONDS)
    branch = f"lead-{id}"
    assert (row["state"], row["report"]) == ("completed", "end.txt are there"), (seed, row)
    subjects = git(lead.repo, "log", "--no-merges", "--format=%s", f"main..{branch}").splitlines()
    works = [f"{name} in shared{n}.txt" for n in range(ROUNDS) for name in ("one", "two", "both")]
    assert sorted(subjects) == sorted([*works, "end in end.txt"]), (seed, kills)
    merges = git(lead.repo, "rev-list", "--count", "--merges", "--first-parent", f"main..{branch}")
    assert int(merges) == 2 * ROUNDS + 1, (seed, kills)
    wait_until(lambda: lead.grove.branches() == {"main", branch}, SECONDS)
    wait_until(lambda: lead.grove.worktrees() == {branch}, SECONDS)
    assert git(lead.repo, "fsck", "--no-dangling", "--no-progress") == ""
    assert git(lead.repo, "status", "--porcelain") == ""
    assert kills, seed


def two_tasks(lead: Lead, number: int) -> Iterator[dict[str, Any]]:
    """Both land; the second when it was told of its conflict and has solved it."""
    file = f"shared{number}.txt"
    names = ("one", "two")
    tasks = [surely_done(lead, write(file, name), branch_name=f"{name}{number}") for name in names]
    yield surely_merged(lead, tasks[0])
    refused = surely_merged(lead, tasks[1])
    assert (refused.get("why"), refused.get("files")) == ("conflict", [file]), refused
    base = git(lead.repo, "rev-parse", refused["into"])
    solve = f"git {WHO} merge -q {base}; git checkout -q --theirs {file}; git add {file}"
    solve += f"; git {WHO} commit -qm Merge; {write(file, 'both')}"
    yield surely_merged(lead, surely_done(lead, solve, continue_task=tasks[1]))


def surely_done(lead: Lead, prompt: str, **fields: str) -> str:
    agent = {} if "continue_task" in fields else {"agent": "dev"}
    arguments = {"prompt": prompt, **agent, **fields}
    id = str(surely(lead, "delegate_task", **arguments)["task_id"])

    def is_done() -> bool:
        with contextlib.suppress(BullpenError, wire.HubError, OSError):
            return lead.grove.pen.client().get("task", id)["state"] in OVER
        return False

    wait_until(is_done, SECONDS)
    return id


def surely_merged(lead: Lead, task: str) -> dict[str, Any]:
    answer: dict[str, Any] = surely(lead, "merge_task", task_id=task)
    return answer


def surely(lead: Lead, tool: str, **arguments: str) -> Any:
    request, answers = uuid.uuid4().hex, []

    def is_answered() -> bool:
        try:
            answers.append(lead.call(tool, request, **arguments))
        except (wire.HubError, OSError, AssertionError):
            return False
        except ToolError as error:
            if "still being brought over" in str(error):
                return False
            raise
        return True

    wait_until(is_answered, SECONDS)
    return answers[0]
