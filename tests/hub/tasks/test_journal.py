"""The journal of a task agent: in its status, in a file, in the hub's log."""

import json
import logging
from pathlib import Path

import pytest

from bullpen.component.journal import ENTRIES, Journal, read_journal
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until

LOG = logging.getLogger("tests.journal")


def test_c1_a_journal_outlives_its_process_and_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal.opened(LOG, "amy", path)
    first.note("info", "started")
    assert path.stat().st_mode & 0o777 == 0o600
    for number in range(3 * ENTRIES):
        first.note("info", "again", number=number)
    assert len(path.read_text().splitlines()) <= 2 * ENTRIES
    path.write_text(path.read_text() + '{"half')  # its process was killed
    second = Journal.opened(LOG, "amy", path)
    assert second.entries() == first.entries() == tuple(read_journal(path))
    assert len(second.entries()) == ENTRIES
    second.note("warn", "last")
    assert read_journal(path)[-1].message == "last"


def test_c1_a_journal_without_its_directory_goes_on(tmp_path: Path) -> None:
    journal = Journal.opened(LOG, "amy", tmp_path / "gone" / "journal.jsonl")
    journal.note("info", "started")
    assert [entry.message for entry in journal.entries()] == ["started"]


def messages(desk: Desk) -> list[str]:
    """Of amy's journal."""
    return [entry["message"] for entry in desk.status("amy")["log"]]


@pytest.mark.slow
def test_c1_logs_of_a_task_agent_are_its_journal_also_of_hubs_before(desk: Desk) -> None:
    desk.agent("amy", walls=False)
    task = desk.done(desk.give("amy", "[[say hi]]"))["task_id"]
    wait_until(lambda: "a task is completed" in messages(desk))
    desk.pen.kill_hub()
    lines = desk.cli("logs", "amy").out.splitlines()  # no hub is needed
    assert lines[0].endswith("started") and lines[-1].endswith(f"completed · task {task}")
    (last,) = desk.cli("logs", "amy", "-n", "1", "--raw").out.splitlines()
    assert json.loads(last)["task"] == task
    desk.pen.start()
    desk.wait_ready("amy")
    log = messages(desk)
    assert log.count("started") == 2 and "a task is completed" in log
    hub_log = (desk.pen.root / "logs" / "hub.log").read_text().splitlines()
    told = [json.loads(line) for line in hub_log]
    assert {line.get("agent") for line in told if "a task" in line["message"]} == {"amy"}
