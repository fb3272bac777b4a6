"""What is kept of tasks: pages, filters, how long, and what was done to the files."""

import json
from pathlib import Path

import pytest

from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


def page(desk: Desk, where: str = "", **query: object) -> dict[str, object]:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    status, body = desk.ask("GET", f"{where}/history?{words}")
    assert status == 200, body
    return body


def ids(found: dict[str, object]) -> list[str]:
    return [item["task_id"] for item in found["items"]]  # type: ignore[attr-defined]


@pytest.mark.storm
def test_t10_pages_filters_and_restarts(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    desk.agent("bob", walls=False)
    tasks = []
    for number in range(5):
        tasks.append(desk.give("amy", f"[[say number {number}]]"))
        desk.done(tasks[-1])
    failed = desk.give("amy", "[[status 401]]")
    desk.over(failed)
    other = desk.give("bob", "[[say Straße %_]]")
    session = desk.done(other)["session_id"]
    everything = [*tasks, failed, other]
    desk.pen.kill_hub()
    desk.pen.start()
    found = page(desk)
    assert (found["page"], found["limit"], found["total"]) == (1, 20, 7)
    assert ids(found) == everything[::-1]
    assert ids(page(desk, limit=3, page=2)) == everything[::-1][3:6]
    assert page(desk, limit=3, page=9)["items"] == []
    assert page(desk, limit=3, page=9)["total"] == 7
    assert ids(page(desk, "/agents/bob")) == [other]
    assert page(desk, "/agents/amy")["total"] == 6
    assert ids(page(desk, state="failed")) == [failed]
    assert ids(page(desk, session=session)) == [other]
    assert ids(page(desk, text="NUMBER%203")) == [tasks[3]]
    assert ids(page(desk, text="strasse%20%25_")) == [other]
    assert ids(page(desk, text="%25")) == [other]
    assert page(desk, text="nowhere")["total"] == 0
    for query in ("limit=101", "limit=0", "page=0", "page=x", "state=odd"):
        status, body = desk.ask("GET", f"/history?{query}")
        assert (status, body["error"]) == (400, "validation_error"), query
    assert desk.ask("GET", f"/agents/bob/history/{failed}")[0] == 404
    assert desk.ask("GET", "/task/t-000000000000")[0] == 404


@pytest.mark.storm
def test_t10_only_the_last_are_kept_files_included(desk: Desk) -> None:
    desk.agent("amy", walls=False, history_limit=3)
    desk.agent("bob", walls=False)
    kept = desk.give("bob", "x")
    desk.done(kept)
    tasks = []
    for number in range(5):
        tasks.append(desk.give("amy", f"[[say {number}]]"))
        desk.done(tasks[-1])
    place = desk.pen.session("amy") / "tasks"
    wait_until(lambda: {path.name for path in place.iterdir()} == set(tasks[2:]))
    assert ids(page(desk)) == [*tasks[:1:-1], kept]
    assert desk.ask("GET", f"/task/{tasks[0]}/debug")[0] == 404
    assert "say 4" not in desk.debug(tasks[4])
    assert '"result": "4"' in desk.debug(tasks[4])
    # What a killed hub left of a task that is no longer kept goes with the next.
    (place / "t-00000000dead" / "1").mkdir(parents=True)
    (desk.pen.root / "task-env").mkdir(exist_ok=True)
    (desk.pen.root / "task-env" / "t-00000000dead").write_text("{}")
    desk.pen.kill_hub()
    desk.pen.start()
    assert {path.name for path in place.iterdir()} == set(tasks[2:])
    assert list((desk.pen.root / "task-env").iterdir()) == []


def test_t10_the_directory_of_a_task_goes_with_its_last_record_unless_it_holds_work(
    desk: Desk,
) -> None:
    desk.program("if 'WRITE' in prompt:\n    open('work', 'w').write('x')\nresult('done')")
    desk.agent("amy", walls=False, history_limit=1)
    empty = desk.done(desk.give("amy", "nothing"))
    work = desk.done(desk.give("amy", "WRITE"))
    desk.done(desk.give("amy", "go on", session_id=work["session_id"]))
    last = desk.done(desk.give("amy", "nothing more"))
    place = Path(last["directory"]).parent
    kept = {Path(task["directory"]).name for task in (work, last)}
    wait_until(lambda: {path.name for path in place.iterdir()} == kept)
    message = "kept directories of forgotten tasks: there are files in them"
    wait_until(lambda: bool(desk.pen.logged(message)))
    told = desk.pen.logged(message)[-1]
    assert (told["agent"], told["directories"]) == ("amy", 1)
    gone = {"prompt": "x", "session_id": empty["session_id"]}
    assert desk.ask("POST", "/agents/amy/task", gone)[0] == 404
    # Work that is nowhere else can be gone on with.
    desk.done(desk.give("amy", "still there", session_id=work["session_id"]))
    assert (Path(work["directory"]) / "work").read_text() == "x"


def test_t10_rows_of_lists_have_the_beginnings_of_texts(desk: Desk) -> None:
    desk.program("result('y' * (2 << 20))")
    desk.agent("amy", walls=False)
    task = desk.done(desk.give("amy", "p" * 100_000))
    assert len(task["output"]) == 2 << 20
    (row,) = page(desk)["items"]
    assert row["output"].startswith("yyy") and len(row["output"]) <= 400
    assert row["prompt"].startswith("ppp") and len(row["prompt"]) <= 400
    assert len(desk.pen.client().get("history", task["task_id"])["output"]) == 2 << 20


@pytest.mark.storm
def test_t10_commits_and_the_difference_new_files_and_uncommitted_ones(desk: Desk) -> None:
    desk.agent("amy")
    repo = make_repo(desk.pen.root.parent / "shop")
    who = "git -c user.name=Amy -c user.email=a@b.c"
    command = (
        f"echo one > committed; git add committed; {who} commit -qm 'First of two';"
        f" {who} commit -q --allow-empty -m 'Second'; echo changed > file0.txt; rm file1.txt;"
        " echo new > 'new file'; echo ignored > x.log; mkfifo pipe; ln -s /etc/shadow link"
    )
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-qm", "Ignore")
    script = f"[[tool Bash {json.dumps({'command': command})} ; say x]]"
    task = desk.give("amy", script, repo=str(repo), worktree="b")
    found = desk.done(task)
    subjects = [line.partition(" ")[2] for line in found["commits"]]
    assert subjects == ["First of two", "Second"]
    complete = desk.pen.client().get("history", task)
    changes = complete["changes"]
    assert "\n+one\n" in changes["committed"]
    assert "committed | 1 +" in changes["log"]
    for line in ("+changed", "-file 1", "+new", "+/etc/shadow"):
        assert f"\n{line}\n" in changes["uncommitted"], line
        assert line not in changes["committed"]
    assert "ignored" not in changes["uncommitted"]
    assert (changes["staged"], complete["diff"]) == ("", None)
    assert complete["logs"][0]["stdout"]
    index = git(Path(found["directory"]), "status", "--porcelain", "--untracked-files=all")
    assert '?? "new file"' in index  # the agent's own index is as it was
    # What was there before another task is not what that did.
    script = '[[tool Bash {"command": "echo later > file2.txt"} ; say x]]'
    again = desk.give("amy", script, session_id=found["session_id"], keep_open=True)
    desk.wait(again, "idle")
    desk.go_on(again, script.replace("later", "last").replace("file2", "file3"))
    desk.wait(again, "idle")
    desk.end(again)
    diff = desk.pen.client().get("history", again)["changes"]["uncommitted"]
    assert [word in diff for word in ("+later", "+last", "+changed", "+new")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.storm
def test_t10_a_checkout_in_a_workdir(desk: Desk) -> None:
    desk.agent("amy")
    repo = make_repo(desk.pen.root.parent / "shop")
    script = '[[tool Bash {"command": "echo more >> file0.txt"} ; say x]]'
    for _ in range(2):
        task = desk.give("amy", script, workdir=str(repo))
        desk.done(task)
        assert "+more" in desk.pen.client().get("history", task)["changes"]["uncommitted"]
    plain = desk.give("amy", "x")
    desk.done(plain)
    complete = desk.pen.client().get("history", plain)
    assert (complete["changes"], complete["diff"]) == (None, None)
    # What an earlier version kept is still shown.
    (file,) = (desk.pen.root / "sessions").glob(f"*/tasks/{task}/changes.json")
    file.unlink()
    file.with_name("diff.patch").write_text("+old\n")
    complete = desk.pen.client().get("history", task)
    assert (complete["changes"], complete["diff"]) == (None, "+old\n")


@pytest.mark.storm
@pytest.mark.parametrize("walls", [True, False])
def test_t10_what_an_agent_does_to_its_repository_runs_nothing_and_holds_nothing_up(
    desk: Desk, walls: bool
) -> None:
    ran = desk.pen.root.parent / "ran"
    desk.agent("amy", walls=walls, role={"permission_mode": "bypassPermissions"})
    repo = make_repo(desk.pen.root.parent / "shop")
    commit(repo, "big", "x\n" * 10)
    evil = f"printf '#!/bin/sh\\necho ran >> {ran}\\ncat\\n' > evil; chmod +x evil;"
    command = (
        f"{evil} printf '* filter=evil diff=evil\\n' > .gitattributes;"
        " G=$(git rev-parse --git-dir);"
        ' E="$PWD/evil";'
        " for k in filter.evil.clean core.fsmonitor diff.evil.textconv diff.external;"
        ' do git config --worktree $k "$E"; git config -f $G/config $k "$E";'
        ' git config -f $G/config.worktree $k "$E"; done;'
        ' mkdir -p hooks; cp evil hooks/post-index-change; cp evil "$G/hooks/";'
        ' mkdir nested; cd nested; git init -q; git config core.fsmonitor "$E";'
        " git -c user.name=a -c user.email=b commit -q --allow-empty -m x; cd ..;"
        " mkfifo fifo; rm file1.txt; mkfifo file1.txt; truncate -s 3G huge;"
        " head -c 3000000 /dev/zero | tr '\\0' 'a' > big;"
        ' rm -f .git 2>/dev/null; echo "gitdir: $PWD/nested/.git" > .git 2>/dev/null;'
        " echo end > file0.txt"
    )
    script = f"[[tool Bash {json.dumps({'command': command})} ; say x]]"
    task = desk.give("amy", script, repo=str(repo), worktree="b")
    found = desk.over(task)
    assert found["state"] == "completed", found
    # What the tool itself ran, in its own directory, does not count.
    if not walls:
        ran.unlink(missing_ok=True)
        again = desk.give("amy", "[[say x]]", session_id=found["session_id"])
        desk.over(again)
    assert not ran.exists()
    if not walls:  # who asks git in that directory is answered by the planted repository
        git(Path(found["directory"]), "status")
        assert ran.exists()
    diff = desk.pen.client().get("history", task)["changes"]["uncommitted"]
    assert "+end" in diff
    for name in ("huge", "big", "file1.txt"):
        assert f"#   {name}\n" in diff
    assert len(diff) < 2_000_000
    assert found["duration_seconds"] < 60
    assert desk.done(desk.give("amy", "[[say next]]"))["output"] == "next"
