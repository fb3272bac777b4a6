"""What happens to a task while it works and rests: cancelled, continued, ended, out of time."""

import json
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from bullpen.model.agent_file import TaskRunSettings
from tests.hub.scripted_hub import CLOCK, scripted_hub
from tests.hub.tasks.desk import Desk
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

STUBBORN = """
signal.signal(signal.SIGTERM, lambda *_: say("I heard that"))
say("part", tokens=3)
while True:
    time.sleep(0.05)
"""


def program_of(desk: Desk, task: str, number: int = 1) -> int:
    return int(json.loads((desk.run_directory(task, number) / "holder.json").read_text())["child"])


def when_begun(desk: Desk, task: str) -> float:
    events = [event for event in desk.pen.events("", "task.state") if event["task"] == task]
    return next(float(event["time"]) for event in events if event["state"] == "working")


# ── cancelling ──


@pytest.mark.storm
def test_t3_cancel_keeps_what_was_said(any_desk: Desk) -> None:
    any_desk.agent("amy", walls=any_desk.claude.model is not None)
    task = any_desk.give("amy", '[[say so far ; tool Bash {"command": "true"} ; hold one]]')
    any_desk.claude.wait_held("one")
    wait_until(lambda: "so far" in (any_desk.task(task)["output"] or ""))
    status, body = any_desk.ask("POST", f"/task/{task}/cancel")
    assert status == 200
    assert (body["task_id"], body["state"]) == (task, "cancelling")
    assert body["message"]
    found = any_desk.over(task)
    assert found["state"] == "cancelled"
    assert "so far" in found["output"]
    assert found["error"] is None
    assert [run["fault"] for run in found["runs"]] == ["cancelled"]
    record = any_desk.cli("history", "show", task).out
    assert "1 was cancelled\n" in record and "error" not in record
    if any_desk.claude.model:  # the stand-in tells it only at the end
        assert found["token_usage"]["input"] > 0
    assert any_desk.moves(task) == ["queued", "working", "cancelling", "cancelled"]
    status, body = any_desk.ask("POST", f"/task/{task}/cancel")
    assert (status, body["error"], body["final_state"]) == (409, "already_completed", "cancelled")
    any_desk.claude.release("one")
    assert any_desk.done(any_desk.give("amy", "[[say next]]"))["output"] == "next"
    wait_until(lambda: any_desk.pen.state("amy") == "idle")


@pytest.mark.storm
def test_t3_one_that_does_not_listen_is_killed_after_ten_seconds(desk: Desk) -> None:
    desk.program(STUBBORN)
    desk.agent("amy")
    task = desk.give("amy", "x")
    wait_until(lambda: desk.task(task)["output"] == "part")
    began, program = time.monotonic(), program_of(desk, task)
    desk.cancel(task)
    assert desk.cancel(task)["state"] == "cancelling"
    wait_until(lambda: "heard" in desk.task(task)["output"])
    found = desk.over(task)
    assert time.monotonic() - began > 9
    assert found["state"] == "cancelled"
    assert found["output"].startswith("part\n\nI heard that")
    assert found["token_usage"] == {"input": 4, "output": 4}
    assert not alive(program)


@pytest.mark.storm
def test_t3_cancel_holds_over_a_kill_of_the_hub(desk: Desk) -> None:
    desk.program(STUBBORN)
    desk.agent("amy", walls=False)
    task = desk.give("amy", "x")
    wait_until(lambda: desk.task(task)["output"] == "part")
    desk.cancel(task)
    desk.pen.kill_hub()
    found = desk.over(task)
    assert (found["state"], len(found["runs"])) == ("cancelled", 1)


@pytest.mark.storm
def test_t3_a_task_that_waits_for_its_next_attempt_is_cancelled_at_once(desk: Desk) -> None:
    desk.program("""
with open("count", "a") as file:
    file.write("x")
result("no", is_error=True, terminal_reason="api_error", api_error_status=503)
""")
    desk.agent("amy", walls=False, max_retries=20)
    task = desk.give("amy", "x")
    wait_until(lambda: len(desk.task(task)["runs"]) >= 3)
    desk.cancel(task)
    found = desk.over(task)
    assert found["state"] == "cancelled"
    count = (Path(found["directory"]) / "count").read_text()
    assert len(count) == len(found["runs"])


# ── turns ──


@pytest.mark.storm
def test_t5_continued_three_times_and_ended(any_desk: Desk) -> None:
    any_desk.agent("amy")
    task = any_desk.give("amy", "[[say one]]", keep_open=True)
    assert any_desk.wait(task, "idle")["output"] == "one"
    status, body = any_desk.ask("POST", "/agents/amy/task", {"prompt": "x"})
    assert (status, body["error"], body["current_task"]) == (409, "agent_busy", task)
    for number, word in enumerate(("two", "three", "four"), 2):
        answer = any_desk.go_on(task, f"[[say {word}]]")
        assert (answer["task_id"], answer["state"]) == (task, "working")
        found = any_desk.wait(task, "idle")
        assert (found["output"], found["turns"], len(found["runs"])) == (word, number, number)
    if any_desk.claude.model is not None:
        # The model is shown the whole conversation: it is one.
        last = json.dumps(any_desk.claude.model.requests[-1].body)
        assert all(f"[[say {word}]]" in last for word in ("one", "two", "three", "four"))
    costs = [run["usd"] for run in found["runs"]]
    assert all(cost == pytest.approx(costs[0], rel=0.9) for cost in costs)
    answer = any_desk.end(task)
    assert (answer["state"], answer["output"]) == ("completed", "four")
    for verb, fields in (("end", None), ("continue", {"prompt": "x"}), ("cancel", None)):
        status, body = any_desk.ask("POST", f"/task/{task}/{verb}", fields)
        assert (status, body["error"]) == (409, "already_completed")
        assert body["final_state"] == "completed"
    rest = ["working", "idle"]
    assert any_desk.moves(task) == ["queued", *rest, *rest, *rest, *rest, "completed"]
    assert any_desk.done(any_desk.give("amy", "[[say free]]"))["output"] == "free"


def test_t5_a_task_that_works_takes_no_further_turn(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[hold one ; say x]]", keep_open=True)
    desk.claude.wait_held("one")
    for verb, fields in (("end", None), ("continue", {"prompt": "x"})):
        status, body = desk.ask("POST", f"/task/{task}/{verb}", fields)
        assert (status, body["error"], body["task_id"]) == (409, "task_in_progress", task)
    desk.claude.release("one")
    desk.wait(task, "idle")
    assert desk.cancel(task)["state"] == "cancelled"


@pytest.mark.storm
def test_t5_rest_survives_the_hub_and_ends_after_its_time(desk: Desk) -> None:
    desk.agent("amy", walls=False, keep_open=True, open_timeout="30s")
    task = desk.give("amy", "[[say one]]")
    desk.wait(task, "idle")
    desk.pen.kill_hub()
    assert desk.task(task)["state"] == "idle"
    desk.go_on(task, "[[say two]]")
    rested = desk.wait(task, "idle")
    since = rested["started_at"] + rested["duration_seconds"]
    wait_until(lambda: time.time() > since + 25)
    desk.pen.kill_hub()  # its time goes on
    found = desk.done(task)
    assert found["output"] == "two"
    assert found["completed_at"] > since + 25
    assert found["completed_at"] < desk.pen.events(kind="hub.started")[-1]["time"] + 29.9
    assert desk.done(desk.give("amy", "x", keep_open=False))["state"] == "completed"


# ── what it is told ──


def test_w9_t6_the_persona_of_a_role_is_told_with_its_tasks(desk: Desk) -> None:
    desk.program(
        "file = sys.argv[sys.argv.index('--append-system-prompt-file') + 1]\n"
        "result(open(file).read())"
    )
    directory = desk.pen.root / "roles" / "boss"
    directory.mkdir()
    role = {"name": "boss", "instructions": "Write little.", "sandbox": {"enabled": False}}
    (directory / "role.yaml").write_text(json.dumps(role))
    (directory / "CLAUDE.md").write_text("# You lead the herons.\n")
    desk.write_file("boss")
    desk.start("boss")
    told = desk.done(desk.give("boss", "x"))["output"]
    assert told.index("You lead the herons.") < told.index("Write little.")


@pytest.mark.storm
def test_t6_instructions_project_and_prompt_in_order_and_once(desk: Desk) -> None:
    desk.agent("amy")
    (desk.pen.root / "projects").mkdir(exist_ok=True)
    file = {"name": "shop", "prompt": "It sells shoes."}
    (desk.pen.root / "projects" / "shop.yaml").write_text(json.dumps(file))
    task = desk.give("amy", "PROMPT [[say one]]", project="shop", keep_open=True)
    found = desk.wait(task, "idle")
    told = desk.prompt_of(task)
    shipped = told.partition("Project shop:\nIt sells shoes.")[0]
    assert "Mention no AI" in shipped
    assert told.index("Project shop:\nIt sells shoes.") < told.index("PROMPT")
    assert told.endswith("PROMPT [[say one]]")
    desk.go_on(task, "NEXT [[say two]]")
    desk.wait(task, "idle")
    assert desk.prompt_of(task, 2) == "NEXT [[say two]]"
    desk.end(task)
    context = {"name": "told along", "prompt": "Of this task."}
    again = desk.give("amy", "MORE", session_id=found["session_id"], project=context)
    desk.done(again)
    assert desk.prompt_of(again) == "Project told along:\nOf this task.\n\nMORE"
    own = desk.pen.root / "instructions" / "agent.md"
    own.parent.mkdir(exist_ok=True)
    own.write_text("OUR OWN RULES\n")
    new = desk.give("amy", "LAST", project=context)
    desk.done(new)
    assert desk.prompt_of(new) == "OUR OWN RULES\n\nProject told along:\nOf this task.\n\nLAST"


def test_t6_a_conversation_that_left_nothing_is_told_everything_again(desk: Desk) -> None:
    """Killed before its first prompt was written, it cannot be resumed: another one begins."""
    desk.program("""
if "DIE" in prompt:
    os.kill(os.getpid(), signal.SIGKILL)
result(conversation, total_cost_usd=0.25)
""")
    desk.agent("amy", walls=False, max_retries=0)
    first = desk.over(desk.give("amy", "DIE"))
    assert first["state"] == "failed"
    second = desk.give("amy", "go on", session_id=first["session_id"])
    found = desk.done(second)
    assert len(desk.prompt_of(second)) > 200
    assert found["cost_usd"] == 0.25
    assert found["directory"] == first["directory"]


# ── time ──


def test_t7_time_is_over_and_what_was_said_is_kept(any_desk: Desk) -> None:
    any_desk.agent("amy", walls=any_desk.claude.model is not None)
    script = '[[say so far ; tool Bash {"command": "true"} ; hold one]]'
    for seconds in (2, 8, 32, 128):  # until it comes so far, on a busy machine
        task = any_desk.give("amy", script, timeout_seconds=seconds)
        found = any_desk.over(task, 300)
        assert found["state"] == "failed"
        assert found["error"] == {"type": "timeout", "message": f"it took longer than {seconds} s"}
        assert all(run["fault"] == "timeout" for run in found["runs"])
        if "so far" in (found["output"] or ""):
            break
    assert "so far" in found["output"]
    if any_desk.claude.model:  # the stand-in tells it only at the end
        assert found["token_usage"]["input"] > 0
    assert seconds <= found["duration_seconds"]
    assert len(found["runs"]) == 1
    wait_until(lambda: any_desk.pen.state("amy") == "idle")
    any_desk.claude.release("one")


@pytest.mark.storm
def test_t7_the_task_s_time_the_agent_s_and_the_default(desk: Desk) -> None:
    assert TaskRunSettings().timeout == timedelta(minutes=30)
    desk.agent("amy", walls=False, claude={"timeout": "1s"})
    found = desk.over(desk.give("amy", "[[hold one]]"))
    assert found["error"] == {"type": "timeout", "message": "it took longer than 1 s"}
    task = desk.give("amy", "[[hold one]]", timeout_seconds=1.5)
    assert desk.over(task)["error"]["message"] == "it took longer than 1.5 s"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.few(1)
def test_t7_time_goes_on_without_the_hub(desk: Desk, when: str) -> None:
    """Killed before the time is over, or after it told the program to end, and before that did."""
    desk.program("""
def leave(*_):
    say("I heard that")
    while not os.path.exists("go"):
        time.sleep(0.01)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
say("part")
while True:
    time.sleep(0.05)
""")
    desk.agent("amy", walls=False)
    for seconds in (6, 24, 96):  # until the program begins early enough, on a busy machine
        task = desk.give("amy", "x", timeout_seconds=seconds)
        has_begun = lambda: desk.task(task)["output"] or desk.task(task)["state"] == "failed"  # noqa: B023, E731
        wait_until(has_begun, 2 * seconds + 60)
        began = when_begun(desk, task)
        if desk.task(task)["output"] and time.time() < began + seconds / 2:
            break
        desk.over(task, 2 * seconds + 60)
    program = program_of(desk, task)
    go = Path(desk.task(task)["directory"]) / "go"
    if when == "after":
        log = desk.run_directory(task) / "output.log"
        wait_until(lambda: b"heard" in log.read_bytes())
        desk.pen.kill_hub()
        assert alive(program)
        assert desk.moves(task)[-1] == "working"
        go.touch()
        wait_until(lambda: not alive(program))
    else:
        desk.pen.kill_hub()
        assert alive(program)
        go.touch()
        wait_until(lambda: time.time() > began + seconds)
    found = desk.over(task)
    assert found["error"]["type"] == "timeout"
    assert found["output"].startswith("part")
    assert len(found["runs"]) == 1
    assert not alive(program)
    assert desk.moves(task).count("failed") == 1


@pytest.mark.storm
def test_t7_one_that_does_not_listen_is_killed(desk: Desk) -> None:
    desk.program(STUBBORN)
    desk.agent("amy")
    for seconds in (1, 4, 16, 60):  # until the program listens, on a busy machine
        found = desk.over(desk.give("amy", "x", timeout_seconds=seconds), 120)
        assert found["error"]["type"] == "timeout"
        if "part" in (found["output"] or ""):
            break
    assert found["output"] == "part\n\nI heard that"
    assert found["duration_seconds"] > 10


@pytest.mark.storm
def test_t7_a_clock_that_is_set_ends_no_task_and_spares_none(desk: Desk) -> None:
    offset = desk.pen.root / "offset"
    offset.write_text("0")
    hold, let = desk.claude.wait_held, desk.claude.release
    with scripted_hub(desk.pen, CLOCK, str(offset)):
        desk.agent("amy", walls=False)
        task = desk.give("amy", "[[hold one ; say so far ; hold two ; say x]]", timeout_seconds=99)
        hold("one")
        desk.wait(task, "working")
        offset.write_text("7200")
        let("one")
        hold("two")
        wait_until(lambda: desk.task(task)["output"] == "so far")  # looked at again
        let("two")
        desk.done(task)
        task = desk.give("amy", "[[hold three]]", timeout_seconds=15)
        hold("three")
        offset.write_text("-7200")
        assert desk.over(task)["error"]["type"] == "timeout"
        let("three")


# ── budgets ──


@pytest.mark.storm
def test_t1_a_budget_of_money_ends_a_run_of_the_real_program(real: Desk) -> None:
    real.agent("amy")
    script = '[[tool Bash {"command": "true"} ; tool Bash {"command": "true"} ; say done]]'
    found = real.over(real.give("amy", script, budget={"usd": 0.000001}))
    assert (found["state"], found["error"]["type"]) == ("failed", "budget"), found["error"]
    assert len(found["runs"]) == 1


def test_t1_a_budget_is_of_the_whole_task(desk: Desk) -> None:
    desk.program("""
say("x", tokens=40)
result(json.dumps(sys.argv), total_cost_usd=0.3 * int(prompt.rpartition(" ")[2]))
""")
    desk.agent("amy", walls=False)
    task = desk.give("amy", "turn 1", keep_open=True, budget={"usd": 0.5, "tokens": 200})
    desk.wait(task, "idle")
    # As if it were resumed: the cost is told of the whole conversation.
    desk.go_on(task, "turn 2")
    found = desk.wait(task, "idle", "failed")
    argv = json.loads(found["output"])
    limit = float(argv[argv.index("--max-budget-usd") + 1])
    assert limit == pytest.approx(0.2)
    desk.go_on(task, "turn 3")
    found = desk.over(task)
    assert found["error"]["type"] == "budget"
    assert "0.5" in found["error"]["message"]
    assert len(found["runs"]) == 2


def test_t1_tokens_are_counted_once_and_end_the_run(desk: Desk) -> None:
    desk.program("""
for number in range(2000):
    say("x", id=str(number // 2), tokens=10)
    time.sleep(0.02)
result("all of it")
""")
    desk.agent("amy", walls=False)
    found = desk.over(desk.give("amy", "x", budget={"tokens": 400}))
    assert found["error"]["type"] == "budget"
    used = found["token_usage"]
    assert used["input"] == used["output"]
    assert 200 < used["input"] < 10_000, "long before all of it"
    said = found["output"].count("x")
    assert used["input"] == 10 * ((said + 1) // 2)


def test_an_agent_s_own_budget_ends_its_task(desk: Desk) -> None:
    desk.program("say('part')\nwhile True:\n    time.sleep(0.1)\n")
    desk.agent("amy", walls=False, role={"budget": {"tokens": 100}})
    task = desk.give("amy", "x")
    desk.wait_said(task, "part")
    token = desk.pen.record("amy", "private/env")["env"]["BULLPEN_TOKEN"]
    usage = {
        "resourceMetrics": [
            {
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "claude_code.token.usage",
                                "sum": {
                                    "aggregationTemporality": 2,
                                    "isMonotonic": True,
                                    "dataPoints": [
                                        {
                                            "asInt": "500",
                                            "timeUnixNano": str(time.time_ns()),
                                            "startTimeUnixNano": str(time.time_ns()),
                                            "attributes": [
                                                {"key": "type", "value": {"stringValue": "input"}},
                                                {
                                                    "key": "session.id",
                                                    "value": {"stringValue": "s"},
                                                },
                                            ],
                                        }
                                    ],
                                },
                            }
                        ]
                    }
                ]
            }
        ]
    }
    status, body = desk.pen.ask("POST", "/v1/metrics", usage, token)
    assert status == 200, body
    found = desk.over(task)
    assert (found["error"]["type"], found["output"]) == ("budget", "part")
    assert desk.over(desk.give("amy", "x"))["error"]["type"] == "budget"


@pytest.mark.storm
def test_t5_the_same_request_is_one_turn_and_one_end(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.give("amy", "[[say one]]", keep_open=True)
    desk.wait(task, "idle")
    more, enough = uuid.uuid4().hex, uuid.uuid4().hex
    desk.go_on(task, "[[say two]]", request=more)
    desk.go_on(task, "[[say two]]", request=more)  # also while it works
    assert desk.wait(task, "idle")["turns"] == 2
    desk.pen.kill_hub()
    assert desk.go_on(task, "[[say two]]", request=more)["state"] == "idle"
    assert desk.go_on(task, "[[say three]]", request=uuid.uuid4().hex)["state"] == "working"
    desk.wait(task, "idle")
    assert [desk.end(task, request=enough)["output"] for _ in range(2)] == ["three"] * 2
    desk.pen.kill_hub()
    assert desk.end(task, request=enough)["state"] == "completed"
    status, body = desk.ask("POST", f"/task/{task}/end", {"request": more[:-1]})
    assert (status, "request" in body["message"]) == (400, True)
    rest = ["working", "idle"]
    assert desk.moves(task) == ["queued", *rest, *rest, *rest, "completed"]
