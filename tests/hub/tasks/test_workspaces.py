"""Where tasks work: directories and worktrees, one task at a time in each."""

import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bullpen import worktrees
from bullpen.hub.tasks.rows import TaskSession
from bullpen.hub.tasks.workspaces import (
    LOCK_REASON,
    _newest,
    believe,
    checkout_of,
    overlap,
    unsure_of,
)
from bullpen.worktrees.git import open_repository
from tests.hub.scripted_hub import scripted_hub
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow

# Says when it works where, and refuses to work beside another.
WORKING = """
mark = os.path.join(os.environ["ROOT"], ".working")
try:
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    result("two at once", is_error=True)
    sys.exit(1)
say("in")
while not os.path.exists(os.path.join(os.environ["ROOT"], "go")):
    time.sleep(0.01)
os.unlink(mark)
result("alone")
"""


def site_of(desk: Desk, repo: Path) -> worktrees.Site:
    return worktrees.open_site(repo, desk.pen.root / "worktrees")


def locked(desk: Desk, repo: Path, name: str) -> str | None:
    return worktrees.lock_reason(site_of(desk, repo), name)


@pytest.mark.storm
def test_p7_the_list_has_the_branch_on_which_a_task_agent_works(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    repo = make_repo(desk.pen.root.parent / "shop")

    def branch() -> str:
        """As all ways of looking at it have it."""
        (agent,) = desk.pen.cli("list", "--json").json["agents"]
        shown, found = agent["branch"], desk.pen.cli("list").out
        assert ("BRANCH" in found, f" {shown} " in found) == (bool(shown), True)
        words = [line.split() for line in desk.pen.cli("status", "amy").out.splitlines()]
        assert (["branch", shown] in words) == bool(shown)
        return str(shown)

    assert branch() == ""
    desk.done(desk.give("amy", "x", repo=str(repo), worktree="feature/one"))
    assert branch() == "feature/one"
    desk.pen.kill_hub()
    desk.pen.start()
    desk.wait_ready("amy")
    assert branch() == "feature/one"
    desk.done(desk.give("amy", "x"))  # in a directory of its own
    assert branch() == ""


@pytest.mark.storm
def test_t1_a_worktree_of_a_repository_by_path_and_by_address(desk: Desk) -> None:
    desk.agent("amy")
    repo = make_repo(desk.pen.root.parent / "shop")
    who = "git -c user.name=Amy -c user.email=a@b.c"
    command = f"echo new > made && git add made && {who} commit -qm Made"
    script = f"[[tool Bash {json.dumps({'command': command})} ; say x]]"
    found = desk.done(desk.give("amy", script, repo=str(repo), worktree="feature/one"))
    place = Path(found["directory"])
    assert place.parent == desk.pen.root / "worktrees"
    assert git(place, "symbolic-ref", "--short", "HEAD") == "feature/one"
    assert git(repo, "log", "-1", "--format=%s", "feature/one") == "Made"
    assert [line.partition(" ")[2] for line in found["commits"]] == ["Made"]
    # The same branch again is the same worktree; another session, and another conversation.
    again = desk.done(desk.give("amy", "x", repo=str(repo), worktree="feature/one"))
    assert again["directory"] == found["directory"]
    assert again["session_id"] != found["session_id"]
    assert again["commits"] == []
    url = f"file://{repo}"
    cloned = desk.done(desk.give("amy", script, repo=url, worktree="other"))
    clone = next((desk.pen.root / "projects").iterdir())
    assert git(clone, "remote", "get-url", "origin") == url
    assert git(clone, "log", "-1", "--format=%s", "other") == "Made"
    assert Path(cloned["directory"]).parent == desk.pen.root / "worktrees"
    # Another branch begins where the repository is now; one that is there needs no server.
    newer = commit(repo, "newer")
    second = desk.done(desk.give("amy", "x", repo=url, worktree="third"))
    assert len(list((desk.pen.root / "projects").iterdir())) == 1
    assert second["directory"] != cloned["directory"]
    assert git(Path(second["directory"]), "rev-parse", "HEAD") == newer
    away = repo.rename(repo.with_name("away"))
    known = desk.done(desk.give("amy", "x", repo=url, worktree="third"))
    assert known["directory"] == second["directory"]
    lost = desk.over(desk.give("amy", "x", repo=url, worktree="fourth"))["error"]
    assert lost["type"] == "setup_failed"
    assert f"cannot fetch {url}" in lost["message"]
    away.rename(repo)
    gone = desk.over(desk.give("amy", "x", repo=f"{url}-not", worktree="b"))
    assert gone["error"]["type"] == "setup_failed"
    assert "clone" in gone["error"]["message"]
    assert len(list((desk.pen.root / "projects").iterdir())) == 1


@pytest.mark.storm
def test_t4_a_session_whose_set_up_failed_goes_on_where_it_was_asked_for(desk: Desk) -> None:
    """In an empty directory its work would be lost, and pass for done."""
    desk.agent("amy", walls=False)
    root = desk.pen.root.parent
    url = f"file://{root / 'shop'}"
    (desk.pen.root / "projects").mkdir(exist_ok=True)
    (desk.pen.root / "projects" / "late.yaml").write_text(f"name: late\nprompt: x\nrepo: {url}\n")
    wishes: list[dict[str, str]] = [{"repo": url, "worktree": "feature/one"}, {"project": "late"}]
    failed = [desk.over(desk.give("amy", "x", **wish)) for wish in wishes]
    assert {each["error"]["type"] for each in failed} == {"setup_failed"}
    make_repo(root / "shop")
    for number, each in enumerate(failed):
        if number:  # the hub forgets nothing of it
            desk.pen.kill_hub()
            desk.pen.start()
        found = desk.done(desk.give("amy", "x", session_id=each["session_id"]))
        place = Path(found["directory"])
        assert place.parent == desk.pen.root / "worktrees", place
        branch = wishes[number].get("worktree") or f"task-{each['session_id'][:8]}"
        assert git(place, "symbolic-ref", "--short", "HEAD") == branch


@pytest.mark.storm
def test_t1_a_branch_of_two_repositories_is_two_worktrees(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    repos = [make_repo(desk.pen.root.parent / name) for name in ("shop", "lab")]

    def work_in(repo: Path) -> Path:
        found = desk.done(desk.give("amy", "x", repo=str(repo), worktree="claude/issue-3"))
        place = Path(found["directory"])
        common = git(place, "rev-parse", "--path-format=absolute", "--git-common-dir")
        assert common == str(repo / ".git")
        assert git(place, "symbolic-ref", "--short", "HEAD") == "claude/issue-3"
        return place

    first, second = (work_in(repo) for repo in repos)
    assert (first.name, first.parent) == ("claude~issue-3", second.parent)
    # Each keeps its own, also when the other's is gone.
    worktrees.remove(site_of(desk, repos[0]), first.name)
    assert work_in(repos[1]) == second
    worktrees.remove(site_of(desk, repos[1]), second.name)
    assert [work_in(repo) for repo in repos] == [first, second]


def test_tasks_that_begin_at_once_all_find_the_newest(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    git(tmp_path, "clone", "-q", str(repo), "clone")
    clone, newer = open_repository(tmp_path / "clone"), commit(repo, "newer")
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(_newest, clone, str(repo), lambda: True) for _ in range(4)]
        assert {each.result() for each in asked} == {"origin/main"}
    assert git(tmp_path / "clone", "rev-parse", "origin/main") == newer


@pytest.mark.storm
def test_t3_a_clone_that_takes_for_ever_keeps_neither_the_agent_nor_the_hub(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    projects = desk.pen.root / "projects"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/shop.git"
        task = desk.give("amy", "x", repo=url, worktree="b")
        with silent.accept()[0]:
            (begun,) = projects.iterdir()
            desk.pen.kill_hub()
            desk.pen.start()
        with silent.accept()[0]:
            # What the killed one had begun is gone, another one is begun.
            assert begun not in projects.iterdir()
            assert len(list(projects.iterdir())) == 1
            assert desk.cancel(task)["state"] == "cancelled"
            assert desk.done(desk.give("amy", "[[say free]]"))["output"] == "free"
            assert list(projects.iterdir()) == []
        desk.give("amy", "x", repo=url, worktree="b")
        with silent.accept()[0]:
            assert desk.pen.cli("hub", "stop").code == 0
            assert list(projects.iterdir()) == []
            assert "never retrieved" not in (desk.pen.root / "logs" / "hub.log").read_text()


@pytest.mark.storm
def test_t1_a_project_says_where(desk: Desk) -> None:
    repo = make_repo(desk.pen.root.parent / "shop")
    work = desk.pen.root.parent / "place"
    work.mkdir()
    for name, fields in (("code", {"repo": str(repo)}), ("dir", {"workdir": str(work)})):
        file = {"name": name, "prompt": "p", **fields}
        (desk.pen.root / "projects" / f"{name}.yaml").write_text(json.dumps(file))
    desk.agent("amy")
    code = desk.done(desk.give("amy", "x", project="code"))
    assert Path(code["directory"]).parent == desk.pen.root / "worktrees"
    assert desk.done(desk.give("amy", "x", project="dir"))["directory"] == str(work)
    own = desk.pen.root.parent / "own"
    own.mkdir()
    given = desk.done(desk.give("amy", "x", project="code", workdir=str(own)))
    assert given["directory"] == str(own)


@pytest.mark.storm
def test_t1_directories_elsewhere_are_named_in_the_settings(desk: Desk, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "project"
    place.mkdir(parents=True)
    desk.agent("amy", walls=False)
    body = {"prompt": "x", "workdir": str(place)}
    assert desk.ask("POST", "/agents/amy/task", body)[0] == 403
    config = desk.pen.root / "config.yaml"
    config.write_text(config.read_text() + f"workdirs: ['{tmp_path}/elsewhere']\n")
    assert desk.pen.cli("hub", "restart").code == 0
    desk.wait_ready("amy")
    assert desk.done(desk.give("amy", "x", workdir=str(place)))["directory"] == str(place)


@pytest.mark.parametrize("field", ["workdir", "repo"])
@pytest.mark.storm
def test_x5_a_link_that_an_agent_left_does_not_lead_the_next_task_elsewhere(
    desk: Desk, field: str
) -> None:
    """It worked around the directory that the next task names, and put a link in its place. Without
    the refusal the next one works where that leads, if tasks may work there at all."""
    around = desk.pen.root.parent
    project, secret = around / "project", make_repo(around / "secret")
    (project / "docs").mkdir(parents=True)
    desk.agent("amy", walls=False)
    branches = iter(("one", "two", "three"))

    def give() -> Any:
        more = {"worktree": next(branches)} if field == "repo" else {}
        return desk.give("amy", "x", **{field: str(project / "docs")}, **more)

    (project / "docs").rmdir()
    (project / "docs").symlink_to(secret)
    assert desk.done(give())["state"] == "completed", "a link that a person made is followed"
    desk.done(desk.give("amy", "x", workdir=str(project)))
    task = desk.over(give())
    assert task["state"] == "failed"
    assert "by a link that an agent may have made" in json.dumps(task)
    (project / "docs").unlink()
    make_repo(project / "docs")
    assert desk.done(give())["state"] == "completed"


@pytest.mark.storm
@pytest.mark.parametrize("how", ["same", "nested", "around", "by link"])
def test_t12_two_tasks_never_work_in_one_directory(desk: Desk, how: str) -> None:
    desk.program(WORKING)
    root = desk.pen.root.parent / "project"
    inner = root / "inner"
    inner.mkdir(parents=True)
    link = desk.pen.root.parent / "link"
    link.symlink_to(root)
    first, second = {
        "same": (root, root),
        "nested": (root, inner),
        "around": (inner, root),
        "by link": (root, link / "inner"),
    }[how]
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    env = {"ROOT": str(root)}
    one = desk.give("amy", "x", workdir=str(first), env=env)
    desk.wait_said(one, "in")
    two = desk.give("bob", "x", workdir=str(second), env=env)
    assert desk.task(two)["state"] == "queued"
    # Released by nobody but who holds it: a hub that is killed lets nobody in.
    desk.pen.kill_hub()
    desk.pen.start()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 1)
    assert desk.task(two)["state"] == "queued"
    assert desk.task(one)["state"] == "working"
    (root / "go").touch()
    ends = [desk.done(task) for task in (one, two)]
    assert [task["output"] for task in ends] == ["alone", "alone"]
    assert ends[1]["started_at"] >= ends[0]["runs"][0]["ended"]


def test_t12_without_the_lock_the_two_would_meet(desk: Desk) -> None:
    """What the test above would see: in two directories the same program meets the other."""
    desk.program(WORKING)
    root = desk.pen.root.parent / "project"
    for name in ("one", "two"):
        (root / name).mkdir(parents=True)
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False, max_retries=0)
    one = desk.give("amy", "x", workdir=str(root / "one"), env={"ROOT": str(root)})
    desk.wait_said(one, "in")
    two = desk.over(desk.give("bob", "x", workdir=str(root / "two"), env={"ROOT": str(root)}))
    assert two["error"]["message"] == "two at once"
    (root / "go").touch()
    desk.done(one)


@pytest.mark.storm
def test_t12_a_task_that_waits_for_a_directory_can_be_cancelled(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    place = desk.pen.root.parent / "project"
    place.mkdir()
    one = desk.give("amy", "[[hold one ; say x]]", workdir=str(place))
    desk.claude.wait_held("one")
    two = desk.give("bob", "x", workdir=str(place))
    assert desk.cancel(two)["state"] == "cancelled"
    assert desk.done(desk.give("bob", "[[say free]]"))["output"] == "free"
    # Resting keeps the directory, too: its conversation is about what lies there.
    desk.claude.release("one")
    desk.done(one)
    three = desk.give("amy", "x", workdir=str(place), keep_open=True)
    desk.wait(three, "idle")
    four = desk.give("bob", "x", workdir=str(place))
    assert desk.task(four)["state"] == "queued"
    desk.end(three)
    desk.done(four)


FAILING = """
import os, sys
import bullpen.hub.main
from bullpen.hub.tasks import run as runs
real, fails, sys.argv = runs._read, sys.argv[2], ["hub"]
def read(*args):
    if os.path.exists(fails):
        raise ValueError("a bug")
    return real(*args)
runs._read = read
bullpen.hub.main.main()
"""


@pytest.mark.storm
def test_t12_nobody_works_there_before_a_run_whose_driver_failed_has_ended(desk: Desk) -> None:
    desk.program("signal.signal(signal.SIGTERM, lambda *_: say('told to end'))\n" + WORKING)
    root = desk.pen.root.parent / "project"
    root.mkdir()
    fails, env = desk.pen.root.parent / "fails", {"ROOT": str(root)}
    with scripted_hub(desk.pen, FAILING, str(fails)):
        desk.agent("amy", walls=False)
        desk.agent("bob", walls=False)
        one = desk.give("amy", "x", workdir=str(root), env=env)
        desk.wait_said(one, "in")
        two = desk.give("bob", "x", workdir=str(root), env=env)
        run = desk.run_directory(one)
        fails.touch()
        os.kill(json.loads((run / "holder.json").read_text())["child"], signal.SIGTERM)
        # By us, to make it say something, and by the hub.
        wait_until(lambda: (run / "output.log").read_bytes().count(b"told to end") == 2)
        fails.unlink()
        assert desk.task(two)["state"] == "queued"
        assert desk.ask("POST", "/agents/amy/task", {"prompt": "x"})[1]["error"] == "agent_busy"
        (root / "go").touch()
        why = "the hub failed: ValueError('a bug')"
        assert desk.over(one)["error"] == {"type": "setup_failed", "message": why}
        assert desk.done(two)["output"] == "alone"


@pytest.mark.storm
def test_t12_a_worktree_is_locked_while_a_task_works_there(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    repo = make_repo(desk.pen.root.parent / "shop")
    one = desk.give("amy", "[[hold one ; say x]]", repo=str(repo), worktree="b")
    desk.claude.wait_held("one")
    name = Path(desk.task(one)["directory"]).name
    assert locked(desk, repo, name) == LOCK_REASON
    with pytest.raises(worktrees.WorktreeError):
        worktrees.remove(site_of(desk, repo), name)
    two = desk.give("bob", "[[hold two ; say x]]", repo=str(repo), worktree="b")
    desk.pen.kill_hub()
    assert locked(desk, repo, name) == LOCK_REASON
    desk.pen.start()
    desk.claude.release("one")
    desk.done(one)
    # The lock of who comes next is not lifted by who leaves.
    desk.claude.wait_held("two")
    desk.wait(two, "working")
    wait_until(lambda: len(desk.pen.client().get("tasks")["tasks"]) == 1)
    assert locked(desk, repo, name) == LOCK_REASON
    desk.claude.release("two")
    desk.done(two)
    wait_until(lambda: locked(desk, repo, name) is None)


@pytest.mark.storm
def test_t12_a_lock_that_is_left_by_a_killed_hub_is_lifted(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    repo = make_repo(desk.pen.root.parent / "shop")
    task = desk.done(desk.give("amy", "x", repo=str(repo), worktree="b"))
    name = Path(task["directory"]).name
    wait_until(lambda: locked(desk, repo, name) is None)
    desk.pen.kill_hub()
    worktrees.lock(site_of(desk, repo), name, LOCK_REASON)  # as one killed right there leaves it
    desk.pen.start()
    assert locked(desk, repo, name) is None
    # A person's own lock stays theirs.
    worktrees.lock(site_of(desk, repo), name, "mine")
    desk.done(desk.give("amy", "x", repo=str(repo), worktree="b"))
    wait_until(lambda: desk.pen.client().get("tasks")["tasks"] == [])
    assert locked(desk, repo, name) == "mine"


# ── whose checkout it is ──


def plant(place: Path, ran: Path) -> None:
    """A repository that runs a program wherever git lets it."""
    subprocess.run(["git", "init", "-q", place], check=True)
    commit(place, "a.txt")
    script = place / ".git" / "evil"
    script.write_text(f"#!/bin/sh\necho $0 $@ >> {ran}\ncat\n")
    script.chmod(0o755)
    for key in ("filter.evil.clean", "core.fsmonitor", "diff.evil.textconv", "diff.external"):
        git(place, "config", key, str(script))
    (place / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (place / "a.txt").write_text("other\n")


@pytest.mark.storm
def test_t10_git_is_not_asked_about_a_repository_that_an_agent_made(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    ran = desk.pen.root.parent / "ran"
    own = desk.done(desk.give("amy", "x"))
    work = desk.pen.root.parent / "project"
    work.mkdir()
    shared = desk.done(desk.give("amy", "x", workdir=str(work)))
    for place in (Path(own["directory"]), work):
        plant(place, ran)
        ran.unlink(missing_ok=True)
    again = desk.done(desk.give("amy", "[[say x]]", session_id=own["session_id"]))
    other = desk.done(desk.give("amy", "[[say x]]", workdir=str(work)))
    inner = work / "inner"
    inner.mkdir()
    plant(inner, ran)
    ran.unlink(missing_ok=True)
    below = desk.done(desk.give("amy", "[[say x]]", workdir=str(inner)))
    # Nor of one in a terminal, behind walls.
    desk.role("walled", agent_type="command", command=["cat"], sandbox={"enabled": True})
    there = desk.pen.root.parent / "there"
    there.mkdir()
    walled = ("run", "--role", "walled", "--name", "bob", "--detach")
    ran_it = desk.pen.cli(*walled, cwd=there)
    assert ran_it.code == 0, ran_it.err
    plant(there, ran)
    ran.unlink(missing_ok=True)
    beside = desk.done(desk.give("amy", "[[say x]]", workdir=str(there)))
    assert shared["directory"] == other["directory"]
    assert not ran.exists(), ran.read_text()
    for found in (again, other, below, beside):
        assert desk.pen.client().get("history", found["task_id"])["changes"] is None
    # With another's word for it that it is one, git would have run that.
    git(work, "-c", "core.fsmonitor=false", "diff", "--no-ext-diff", "--no-textconv")
    assert ran.exists()


def test_only_who_was_there_before_is_believed() -> None:
    def session(id: str, place: str, git_dir: str, **more: Any) -> TaskSession:
        return TaskSession(id=id, directory=place, git_dir=git_dir, common_dir=git_dir, **more)

    new = session("new", "/w/a", "/w/a/.git")
    believed = [[], [session("old", "/w/a", "/w/a/.git")], [new]]
    believed.append([session("new", "/w", "")])  # its own earlier word is nobody else's
    doubted = [
        [session("old", "/w/a", "")],
        [session("old", "/w", "/w/.git")],
        [session("old", "/w/a", "/other/.git")],
    ]
    assert all(checkout_of(believe(new, earlier)) for earlier in believed)
    for earlier in doubted:
        unsure = believe(new, earlier)
        assert checkout_of(unsure) is None  # git is not run there
        assert unsure_of(unsure) == Path("/w/a/.git")  # and nobody writes to it
        assert checkout_of(believe(new.model_copy(update={"id": "third"}), [unsure])) is None
    tree = session("new", "/w/a", "/r/.git/worktrees/a", worktree="a")
    assert all(checkout_of(believe(tree, earlier)) for earlier in doubted)


def test_what_lies_in_the_home_is_apart_from_who_works_around_it() -> None:
    home = Path("/code/.bullpen")
    table = {
        ("/code", "/code"): True,
        ("/code", "/code/a"): True,
        ("/code/a", "/code"): True,
        ("/code/a", "/code/ab"): False,
        ("/code", "/code/.bullpen/worktrees/x"): False,
        ("/code/.bullpen/worktrees/x", "/code/.bullpen/worktrees/x/y"): True,
        ("/other", "/code"): False,
    }
    for (first, second), wanted in table.items():
        assert overlap(Path(first), Path(second), home) is wanted, (first, second)
