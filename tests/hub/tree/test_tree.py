"""Children of agents: started, told of, adopted, stopped; with real hubs, holders and programs."""

import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bullpen.hub.tree.children import PATIENCE_SECONDS
from bullpen.worktrees import find_port_variables
from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.processes import kill
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


def test_m1_m2_children_have_a_branch_of_their_own_or_share_their_parents_directory(
    grove: Grove,
) -> None:
    grove.run("lead", pod="team")
    answer = grove.call("lead", "spawn_subtree", task="x", branch_name="CSV!", role="coder")
    path = str(grove.pen.root / "worktrees" / "main.csv")
    assert answer == {"name": "main.csv", "branch": "main.csv", "path": path}
    child = grove.pen.agents()["main.csv"]
    assert (child["parent"], child["pod"], child["birth_branch"]) == ("lead", "team", "main.csv")
    workers = [{"name": "docs", "task": "x"}, {"name": "tests", "task": "y"}]
    started = grove.call("main.csv", "spawn_workers", workers=workers)["started"]
    assert [(each["name"], each["path"]) for each in started] == [
        ("main.csv.w.docs", path),
        ("main.csv.w.tests", path),
    ]
    with pytest.raises(ToolError, match=r"main\.csv already"):
        grove.spawn("lead", "csv")
    # From the parent's own commit, which is not main's any more.
    git(grove.repo, "-C", path, "commit", "-q", "--allow-empty", "-m", "of the child")
    grove.pen.stop("main.csv.w.docs")
    grove.pen.stop("main.csv.w.tests")
    assert grove.spawn("main.csv", "deeper") == "main.csv.deeper"
    heads = {git(grove.repo, "rev-parse", name) for name in ("main.csv", "main.csv.deeper")}
    assert len(heads) == 1
    assert heads != {git(grove.repo, "rev-parse", "main")}
    shown = grove.pen.cli("tree").out
    assert [line.split()[1:3] for line in shown.splitlines()[1:3]] == [
        ["lead", "boss"],
        ["main.csv", "coder"],
    ]
    grove.pen.cli("stop", "lead", "--tree")


def test_n1_n3_a_subtree_of_a_lead_in_the_persons_checkout_is_measured_against_that_branch(
    grove: Grove,
) -> None:
    grove.run("lead")
    grove.spawn("lead", "csv")
    child = grove.pen.root / "worktrees" / "main.csv"
    for tree, text in ((child, "child"), (grove.repo, "person")):
        (tree / "shared.txt").write_text(text)
        git(grove.repo, "-C", str(tree), "add", "-A")
        git(grove.repo, "-C", str(tree), "commit", "-qm", text)
    conflicts = grove.pen.client().get("conflicts")["conflicts"]
    assert [(one["one"], one["other"], one["files"]) for one in conflicts] == [
        ("main.csv", "main", ["shared.txt"])
    ]
    git(grove.repo, "reset", "-q", "--hard", "HEAD^")
    landed = grove.pen.cli("land", "main.csv", cwd=grove.repo)
    assert landed.code == 0, landed.err
    assert git(grove.repo, "show", "main:shared.txt") == "child"
    grove.pen.cli("stop", "lead", "--tree")


def test_m2_all_workers_start_or_none_does(grove: Grove) -> None:
    grove.run("lead")
    grove.pen.role(
        "broken", agent_type="command", command=["/no/such/program"], deliver="lines-from-agents"
    )
    workers = [{"name": "a", "task": "x"}, {"name": "b", "task": "x", "role": "broken"}]
    with pytest.raises(ToolError, match=r"lead\.w\.b"):
        grove.call("lead", "spawn_workers", workers=workers)
    assert grove.names() == {"lead"}
    assert not (grove.pen.root / "sessions" / "lead.w.a").exists()
    assert [event["id"] for event in grove.pen.events("lead", "spawn.failed")] != []


def test_m3_m4_each_end_is_told_once_and_again_until_it_is_acknowledged(grove: Grove) -> None:
    grove.run("lead")
    good, bad, dead = (grove.spawn("lead", name) for name in ("good", "bad", "dead"))
    assert grove.call(good, "notify_parent", status="success", message="done") == {
        "ack": True,
        "to": "lead",
    }
    first = grove.wait("lead")
    assert (first["kind"], first["from"]) == ("child_finished", good)
    assert first["data"] == {"status": "success", "message": "done"}
    assert grove.wait("lead")["id"] == first["id"]  # nobody acknowledged it
    grove.call(bad, "notify_parent", status="failure", message="cannot")
    second = grove.wait("lead", after=first["id"])
    assert (second["from"], second["data"]["status"]) == (bad, "failure")
    kill(grove.pen.program(dead))
    third = grove.wait("lead", after=second["id"])
    assert (third["kind"], third["from"]) == ("child_exited", dead)
    assert third["data"]["how"] == "exited (signal 9)"
    # Those that have reported end without another word.
    grove.pen.stop(good)
    grove.pen.stop(bad)
    assert grove.wait("lead", after=third["id"], seconds=0.5)["kind"] == "timeout"
    assert grove.kinds("lead") == [
        (good, "child_finished"),
        (bad, "child_finished"),
        (dead, "child_exited"),
    ]


def test_m3_children_that_end_before_all_of_them_have_started_are_told_of(grove: Grove) -> None:
    grove.pen.role("brief", **{**PROGRAM, "command": ["true"]})
    grove.pen.role("boss", **PROGRAM, may_grant="brief")
    grove.run("lead")
    workers = [{"name": f"w{number}", "task": "x", "role": "brief"} for number in range(6)]
    started = grove.call("lead", "spawn_workers", workers=workers)["started"]
    expected = {(each["name"], "child_exited") for each in started}
    wait_until(lambda: set(grove.kinds("lead")) == expected)
    assert len(grove.kinds("lead")) == len(expected)


def test_m3_the_parent_of_a_program_that_cannot_be_reminded_is_told_at_once(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "child")
    for event in ("UserPromptSubmit", "Stop"):
        answer = grove.pen.ask("POST", f"/agents/{child}/hooks", {"hook_event_name": event})
        assert answer[0] == 200, answer
    # Sooner than by the watch over who is idle for long.
    told = grove.wait("lead", seconds=PATIENCE_SECONDS * 0.7)
    assert (told["kind"], told["from"]) == ("child_idle", child)
    grove.pen.ask("POST", f"/agents/{child}/hooks", {"hook_event_name": "Stop"})
    assert grove.kinds("lead") == [(child, "child_idle")]


def test_m3_the_same_request_reports_writes_and_spawns_once(grove: Grove) -> None:
    grove.run("lead")
    names = {
        grove.call("lead", "spawn_subtree", "r1", task="x", branch_name="csv", role="coder")["name"]
        for _ in range(3)
    }
    assert names == {"main.csv"}
    for _ in range(2):
        grove.call("main.csv", "notify_parent", "r2", status="success", message="done")
        grove.call("main.csv", "send_message", "r3", to="parent", text="hello")
    assert grove.kinds("lead") == [("main.csv", "child_finished")]
    messages = grove.pen.client().get("agents", "lead", "messages")["messages"]
    assert [message["text"] for message in messages] == ["hello"]


def test_m4_a_wait_survives_hubs_and_hears_of_messages(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(grove.wait, "lead", 0, 90.0) for _ in range(2)]
        grove.pen.client().post("agents", "lead", "messages", body={"text": "look here"})
        events = [wait.result(90) for wait in waits]  # all that wait get it
    assert {(event["kind"], event["from"]) for event in events} == {("message", "root")}
    assert "look here" in grove.call("lead", "read_messages")
    grove.pen.kill_hub()
    grove.pen.start()
    grove.call(child, "notify_parent", status="success", message="later")
    event = grove.wait("lead", after=events[0]["id"])
    assert event["data"]["message"] == "later"


def test_i4_children_of_an_agent_that_ends_are_adopted_with_what_waits(grove: Grove) -> None:
    grove.run("lead")
    middle = grove.spawn("lead", "mid")
    leaf = grove.spawn(middle, "leaf")
    grove.call(leaf, "notify_parent", status="success", message="first")
    assert grove.pen.cli("send-keys", middle, "half a line").code == 0  # so the message waits
    grove.call(leaf, "send_message", to="parent", text="for my parent")
    grove.pen.stop(middle)
    wait_until(lambda: grove.pen.agents()[leaf]["parent"] == "lead")
    wait_until(lambda: (leaf, "child_finished") in grove.kinds("lead"))
    grove.call(leaf, "notify_parent", status="success", message="second")
    heard = [event["data"].get("message") for event in grove.queue("lead")]
    assert heard.count("first") == heard.count("second") == 1

    def moved() -> bool:
        messages = grove.pen.client().get("agents", "lead", "messages")["messages"]
        return [message["text"] for message in messages] == ["for my parent"]

    wait_until(moved)
    grove.pen.stop("lead")  # at last to the person
    wait_until(lambda: grove.pen.agents()[leaf]["parent"] == "")
    assert grove.call(leaf, "notify_parent", status="success", message="third")["to"] == "root"
    assert "third" in grove.pen.cli("events").out


@pytest.mark.parametrize("rule", ["keep", "stop"])
def test_i4_a_role_says_what_becomes_of_orphans(grove: Grove, rule: str) -> None:
    fields = {"agent_type": "command", "command": ["cat"], "deliver": "lines", "orphans": rule}
    grove.pen.role("strict", **fields, may_grant="coder")
    grove.run("lead", role="strict")
    child = grove.spawn("lead", "csv")
    grove.pen.stop("lead")
    if rule == "stop":
        wait_until(lambda: not grove.pen.agents()[child]["running"])
    else:
        grove.call(child, "notify_parent", status="success", message="kept")
        assert grove.kinds("lead") == [(child, "child_finished")]
        assert grove.pen.agents()[child]["parent"] == "lead"


def test_i4_a_restart_of_the_parent_keeps_its_children(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")
    grove.pen.client().post("agents", "lead", "restart")
    grove.call(child, "notify_parent", status="success", message="done")
    assert grove.wait("lead")["from"] == child


@pytest.mark.storm
def test_i3_the_tree_is_rebuilt_from_sessions_alone(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")
    grove.call(child, "spawn_workers", workers=[{"name": "docs", "task": "x"}])

    def shape(nodes: list[dict[str, object]]) -> object:
        return [
            (n["name"], n["kind"], n["branch"], n["running"], shape(n["children"])) for n in nodes
        ]  # type: ignore[arg-type]

    before = shape(grove.pen.client().get("tree")["agents"])
    assert len(json.dumps(before)) > 100
    grove.pen.kill_hub()
    for file in grove.pen.root.glob("state.db*"):
        file.unlink()
    grove.pen.start()
    assert shape(grove.pen.client().get("tree")["agents"]) == before


def test_i5_a_script_waits_for_agents_and_sees_what_they_report(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")
    assert grove.pen.cli("wait", child, "--timeout", "1s").code == 124
    assert grove.pen.cli("events").out == "nothing was reported\n"
    grove.pen.stop(child)
    done = grove.pen.cli("wait", child, "lead", "--any")
    assert (done.code, done.out.split()[:2]) == (11, [child, "gone"])
    grove.call("lead", "notify_parent", status="failure", message="no luck")
    assert "no luck" in grove.pen.cli("events").out
    wait_until(lambda: bool(grove.kinds("lead")))
    event = json.loads(grove.pen.cli("events", "--for", "lead", "--json").out.splitlines()[0])
    assert (event["from"], event["kind"]) == (child, "child_exited")
    assert grove.pen.cli("events", "lead").out == grove.pen.cli("events", "--for", "lead").out != ""
    assert grove.pen.cli("events", "lead", "--for", "lead").code == 2
    shown = [grove.pen.cli(*words).out for words in (("list", "--tree"), ("tree",))]
    assert len({re.sub(r" +\d+[sm]\n", "\n", text) for text in shown}) == 1  # but for the age
    assert grove.pen.cli("wait", "nobody").code == 4
    assert "(removed)" not in grove.pen.cli("events").out
    assert grove.pen.cli("rm", "lead").code == 0
    assert "lead (removed)  child_finished" in grove.pen.cli("events").out


def test_m6_a_parent_takes_the_work_of_a_child_that_has_ended(grove: Grove) -> None:
    grove.run("lead", role="coder")
    child = grove.spawn("lead", "csv")
    tree = grove.pen.root / "worktrees" / child
    commit(tree, "csv.txt", "csv\n")
    with pytest.raises(ToolError, match="not finished"):
        grove.call("lead", "merge_child", name=child)
    grove.pen.stop(child)
    in_the_way = grove.pen.root / "worktrees" / "lead" / "csv.txt"
    in_the_way.write_text("lead's\n")
    refused = grove.call("lead", "merge_child", name=child)
    assert (refused["state"], refused["files"]) == ("refused", ["csv.txt"]), refused
    assert refused["hint"].endswith("and call merge_child again")
    in_the_way.unlink()
    asked = uuid.uuid4().hex
    landed = grove.call("lead", "merge_child", asked, name=child)
    assert (landed["state"], landed["into"]) == ("landed", "lead"), landed
    assert (grove.pen.root / "worktrees" / "lead" / "csv.txt").read_text() == "csv\n"
    wait_until(lambda: child not in grove.names() and child not in grove.branches())
    # Asked again, as by a relay whose hub died before it answered: the same answer.
    assert grove.call("lead", "merge_child", asked, name=child) == landed


def test_m6_a_child_that_has_reported_is_taken_when_its_turn_is_over(grove: Grove) -> None:
    """A parent hears of the report while the child still ends its turn."""
    grove.run("lead", role="coder")
    child = grove.spawn("lead", "csv")
    commit(grove.pen.root / "worktrees" / child, "csv.txt", "csv\n")
    grove.hook(child, "UserPromptSubmit")
    grove.call(child, "notify_parent", status="success", message="done")
    assert grove.wait("lead")["kind"] == "child_finished"
    with ThreadPoolExecutor() as pool:
        merged = pool.submit(grove.call, "lead", "merge_child", name=child)
        assert grove.pen.state(child) == "working"
        assert not merged.done()
        grove.hook(child, "Stop")
        assert merged.result()["state"] == "landed"


def test_m6_a_program_that_says_nothing_of_its_turns_is_finished_when_it_has_reported(
    grove: Grove,
) -> None:
    grove.run("lead", role="coder")
    child = grove.spawn("lead", "csv")
    commit(grove.pen.root / "worktrees" / child, "csv.txt", "csv\n")
    with ThreadPoolExecutor() as pool:
        waited = pool.submit(grove.pen.cli, "wait", child, "--timeout", "1m")
        grove.call(child, "notify_parent", status="success", message="done")
        assert waited.result().out.split()[:2] == [child, "finished"]
    grove.call("lead", "send_message", to=child, text="more")
    wait_until(lambda: grove.pen.cli("wait", child, "--timeout", "0s").code == 124)
    with pytest.raises(ToolError, match="not finished"):
        grove.call("lead", "merge_child", name=child)
    grove.call(child, "notify_parent", status="success", message="done again")
    assert grove.call("lead", "merge_child", name=child)["state"] == "landed"


def test_m6_a_conflict_names_the_files_and_changes_nothing(grove: Grove) -> None:
    grove.run("lead", role="coder")
    lead = grove.pen.root / "worktrees" / "lead"
    child = grove.spawn("lead", "csv")
    commit(grove.pen.root / "worktrees" / child, "same.txt", "child\n")
    commit(lead, "same.txt", "lead\n")
    grove.pen.stop(child)
    answer = grove.call("lead", "merge_child", name=child)
    assert (answer["state"], answer["files"]) == ("came_back", ["same.txt"]), answer
    assert (lead / "same.txt").read_text() == "lead\n"
    assert "conflict with lead: same.txt" in grove.pen.cli("tree").out
    ran = grove.pen.cli("land", child, cwd=grove.repo)
    assert ran.err.splitlines()[1] == f"hint:  bullpen land {child} --into lead"


def test_m6_a_parent_hears_that_a_child_which_conflicts_has_ended_and_what_it_can_do(
    grove: Grove,
) -> None:
    grove.run("lead", role="coder")
    lead, child = grove.pen.root / "worktrees" / "lead", grove.spawn("lead", "csv")
    tip = commit(grove.pen.root / "worktrees" / child, "same.txt", "child\n")
    commit(lead, "same.txt", "lead\n")
    grove.hook(child, "Stop")
    assert "child_has_ended" not in grove.call("lead", "merge_child", name=child)
    grove.pen.stop(child)
    advice = grove.call("lead", "merge_child", name=child)["child_has_ended"]
    assert advice.startswith(f"{child} does not run: ") and f"git merge {tip}" in advice
    git(lead, "merge", "-q", tip, check=False)
    commit(lead, "same.txt", "both\n", "Merge")
    assert grove.call("lead", "merge_child", name=child)["was_there_already"]
    wait_until(lambda: child not in grove.names())


def test_m6_only_a_parent_takes_a_childs_work(grove: Grove) -> None:
    grove.run("lead", role="coder")
    child = grove.spawn("lead", "csv")
    grove.run("other", role="coder")
    grove.pen.stop(child)
    with pytest.raises(ToolError, match="no child of other"):
        grove.call("other", "merge_child", name=child)


def test_m6_who_has_no_branch_is_told_what_becomes_of_the_work(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")
    grove.pen.stop(child)
    words = f"notify_parent · a person can run: bullpen land {child} --into BRANCH$"
    with pytest.raises(ToolError, match=words):
        grove.call("lead", "merge_child", name=child)
    # Which works.
    commit(grove.pen.root / "worktrees" / child, "csv.txt", "csv\n")
    assert grove.pen.cli("land", child, "--into", "main", cwd=grove.repo).code == 0
    assert (grove.repo / "csv.txt").read_text() == "csv\n"


def test_w17_two_subtrees_have_ports_of_their_own(grove: Grove) -> None:
    grove.pen.role("coder", **PROGRAM, worktree={"enabled": True, "ports": 3})
    show = ["sh", "-c", 'echo "worker: $PORT."; cat']
    grove.pen.role("shows", **{**PROGRAM, "command": show})
    grove.run("lead")
    firsts = set()
    for name in (grove.spawn("lead", "one"), grove.spawn("lead", "two")):
        ports = find_port_variables(grove.pen.root / "worktrees" / name)
        assert set(ports) >= {"PORT", "BULLPEN_PORT_2"}
        firsts.add(ports["PORT"])
        # A worker works there, too.
        worker = {"name": "w", "task": "x", "role": "shows"}
        [started] = grove.call(name, "spawn_workers", workers=[worker])["started"]
        line = f"worker: {ports['PORT']}.".encode()
        wait_until(lambda line=line, who=started["name"]: line in grove.pen.log(who))
    assert len(firsts) == 2
