"""Tasks that agents give to others: who may take them, what they cost, who hears of their end (M7,
M8, D5). A real hub; the takers are plain programs."""

import re
from collections.abc import Iterator

import pytest

from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


def give(grove: Grove, request: str = "", **fields: str) -> str:
    arguments = {"prompt": "x", "role": "coder", **fields}
    return str(grove.call("lead", "delegate_task", request, **arguments)["task_id"])


def test_m8_d5_tasks_get_parts_of_the_givers_budget_and_no_more_than_there_is(
    grove: Grove,
) -> None:
    budget = {"tokens": 8}
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], may_grant="coder", budget=budget)
    grove.run("lead", role="giver")
    tasks = [give(grove, f"r{number}") for number in range(3)]  # 4, 2 and 1 of them
    with pytest.raises(ToolError, match="nothing of your budget is left"):
        give(grove)
    assert give(grove, "r2") == tasks[2]  # asked again, it is known
    # Also for the next hub.
    grove.pen.kill_hub()
    grove.pen.start()
    with pytest.raises(ToolError, match="nothing of your budget is left"):
        give(grove)
    # What a task did not spend is there again.
    grove.call("lead", "cancel_task", task_id=tasks[0])
    give(grove)


def test_m8_d5_a_task_goes_to_nobody_who_may_do_more_than_its_giver_may_grant(
    grove: Grove,
) -> None:
    grove.pen.role("wild", **PROGRAM, sandbox={"enabled": False})
    for name, fields in (("giver", {"may_grant": "coder"}), ("trusted", {})):
        grove.pen.role(name, **PROGRAM, capabilities=["delegate"], **fields)
    grove.run("lead", role="giver")
    grove.run("other", role="trusted")
    grove.pen.cli("agent", "start", "taker", "--role", "wild")
    for fields in ({"role": "wild"}, {"agent": "taker"}):
        with pytest.raises(ToolError, match=r"more than lead may grant \(coder\): sandboxed"):
            grove.call("lead", "delegate_task", prompt="x", **fields)
        # Who may grant nothing in particular names whom it likes (M7).
        grove.call("other", "delegate_task", prompt="x", **fields)
    give(grove, role="coder")


def test_m7_d5_the_end_of_a_task_is_told_once_and_its_conversation_goes_on(grove: Grove) -> None:
    for name in ("giver", "taker"):
        grove.pen.role(name, **PROGRAM, capabilities=["delegate"], sandbox={"enabled": False})
    grove.run("lead", role="giver")
    grove.pen.cli("agent", "start", "tess", "--role", "taker")
    task = give(grove, role="", agent="tess", prompt="hello")
    event = grove.call("lead", "wait_for_event", timeout_seconds=60)
    told = {"task_id": task, "state": "completed", "output": "hello"}
    assert (event["kind"], event["from"], event["data"]) == ("task_finished", "tess", told)
    grove.pen.kill_hub()
    grove.pen.start()
    assert grove.call("lead", "wait_for_event", timeout_seconds=60)["id"] == event["id"]
    ready = grove.pen.client
    wait_until(lambda: ready().get("agents", "tess", "status")["state"] == "idle")
    again = give(grove, role="", continue_task=task)
    later = grove.call("lead", "wait_for_event", timeout_seconds=60, after=event["id"])
    assert later["data"]["task_id"] == again != task
    sessions = {ready().get("task", each)["session_id"] for each in (task, again)}
    assert len(sessions) == 1
    waited = {"timeout_seconds": 0.1, "after": later["id"]}
    assert grove.call("lead", "wait_for_event", **waited)["kind"] == "timeout"


@pytest.mark.storm
def test_m4_d5_what_an_agent_heard_in_one_task_is_not_told_again_in_the_next(
    grove: Grove,
) -> None:
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], sandbox={"enabled": False})
    for name in ("lead", "tess"):
        grove.pen.cli("agent", "start", name, "--role", "giver")
    client = grove.pen.client
    give(grove, role="", agent="tess")
    event = grove.call("lead", "wait_for_event", timeout_seconds=60)
    assert grove.call("lead", "wait_for_event", timeout_seconds=60)["id"] == event["id"]
    own = client().post("agents", "lead", "task", body={"prompt": "x"})["task_id"]
    wait_until(lambda: client().get("task", own)["state"] == "completed")
    assert grove.call("lead", "wait_for_event", timeout_seconds=0.1)["kind"] == "timeout"
    # What came meanwhile is.
    later = give(grove, role="", agent="tess")
    told = grove.call("lead", "wait_for_event", timeout_seconds=60)
    assert told["data"]["task_id"] == later


@pytest.mark.storm
def test_m7_d5_a_task_works_in_no_worktree_but_those_of_its_givers_tasks(grove: Grove) -> None:
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], worktree={"enabled": True})
    plant = ["sh", "-c", "cat; echo x > planted.txt"]
    grove.pen.role("end", **{**PROGRAM, "command": plant}, sandbox={"enabled": False})
    grove.run("lead", role="giver")
    grove.run("amy", role="coder")
    grove.pen.cli("agent", "start", "tess", "--role", "end")
    assert grove.pen.cli("worktree", "create", "mine", cwd=grove.repo).code == 0

    def end_on(branch: str) -> str:
        task = give(grove, role="", agent="tess", branch_name=branch)
        client = grove.pen.client()
        wait_until(lambda: client.get("task", task)["state"] in ("completed", "failed"))
        shown = client.get("task", task)
        return shown["state"] if not shown["error"] else shown["error"]["message"]

    for others in ("amy", "lead", "mine"):
        assert "was not made for tasks of lead" in end_on(others)
        assert not (grove.pen.root / "worktrees" / others / "planted.txt").exists()
    assert [end_on("csv"), end_on("csv")] == ["completed"] * 2
    # Nor in one of its own, once an agent runs there.
    grove.run("csv", role="coder")
    assert "an agent runs in it" in end_on("csv")


def test_m8_d5_what_the_takers_own_file_adds_is_more_than_its_giver_may_grant(
    grove: Grove,
) -> None:
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], may_grant="coder")
    grove.run("lead", role="giver")
    file = grove.pen.root / "agents" / "tess.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("role: coder\nsandbox: {enabled: false}\nenv: {KEY: secret}\n")
    file.chmod(0o600)
    grove.pen.cli("agent", "start", "tess")
    refusal = r"tess may do more than lead may grant \(coder\): sandboxed, .*given"
    with pytest.raises(ToolError, match=refusal):
        give(grove, role="", agent="tess")
    give(grove, role="coder")  # and tess is the only one
    data = grove.call("lead", "wait_for_event", timeout_seconds=60)["data"]
    assert data["state"] == "failed"
    assert re.match(refusal, data["error"])


def test_m8_d5_a_task_of_an_agent_or_with_a_budget_gives_no_others(grove: Grove) -> None:
    slow = {**PROGRAM, "command": ["sleep", "300"]}
    for name, fields in (("giver", PROGRAM), ("mid", slow)):
        grove.pen.role(name, **fields, capabilities=["delegate"], sandbox={"enabled": False})
    grove.run("lead", role="giver")
    grove.pen.cli("agent", "start", "mid", "--role", "mid")
    client = grove.pen.client()

    def wait(task: str, state: str) -> None:
        wait_until(lambda: client.get("task", task)["state"] == state)

    def ask_mid() -> None:
        grove.call("mid", "delegate_task", prompt="x", role="coder")

    def of_person(**fields: object) -> str:
        return str(client.post("tasks", body={"prompt": "x", "agent": "mid", **fields})["task_id"])

    for make in (lambda: give(grove, role="", agent="mid"), lambda: of_person(budget={"usd": 1})):
        task = make()
        wait(task, "working")
        with pytest.raises(ToolError, match="gives no others"):
            ask_mid()
        client.post("task", task, "cancel")
        wait(task, "cancelled")
    wait(of_person(), "working")
    ask_mid()


@pytest.mark.storm
def test_m7_d5_the_next_goal_of_an_agent_knows_nothing_of_the_tasks_of_the_last(
    grove: Grove,
) -> None:
    slow = {**PROGRAM, "command": ["sleep", "300"]}
    for name, fields in (("giver", slow), ("end", PROGRAM), ("endless", slow)):
        grove.pen.role(name, **fields, capabilities=["delegate"], sandbox={"enabled": False})
    for name, role in (("lead", "giver"), ("tess", "end"), ("toby", "endless")):
        grove.pen.cli("agent", "start", name, "--role", role)
    client = grove.pen.client()

    def wait(task: str, state: str) -> str:
        wait_until(lambda: client.get("task", task)["state"] == state)
        return task

    def begin_goal() -> str:
        body = {"prompt": "x", "agent": "lead"}
        return wait(str(client.post("tasks", body=body)["task_id"]), "working")

    def cancel(task: str) -> None:
        client.post("task", task, "cancel")
        wait(task, "cancelled")

    first = begin_goal()
    told = wait(give(grove, role="", agent="tess"), "completed")  # it has not asked for its end
    late = wait(give(grove, role="", agent="toby"), "working")
    assert grove.call("lead", "task_status", task_id=told)["state"] == "completed"
    cancel(first)
    begin_goal()
    cancel(late)
    for tool in ("task_status", "task_diff", "cancel_task"):
        with pytest.raises(ToolError, match="no task that you delegated"):
            grove.call("lead", tool, task_id=late)
    own = give(grove, role="", agent="tess")
    event = grove.call("lead", "wait_for_event", timeout_seconds=60)
    assert event["data"]["task_id"] == own
