"""Tasks as text: progress, verdicts, tables, options, and the events that they are made of."""

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bullpen.cli.tasks.options import (
    budget_of,
    directory_of,
    labels_of,
    repository_of,
    variables_of,
)
from bullpen.cli.tasks.progress import (
    ApprovalAwaited,
    SeenEvent,
    TurnProgress,
    line,
    see,
    unsaid,
    unwritten,
)
from bullpen.cli.tasks.text import (
    exit_code,
    field_text,
    hint_for,
    shown_output,
    task_lines,
    verdict,
)
from bullpen.client import follow as client_follow
from bullpen.client import follow_task
from bullpen.client.hub import Hub
from bullpen.client.task_events import read_event
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.model.task import Error, Run
from bullpen.model.task_shown import TaskShown
from bullpen.model.task_table import DROPPED_HEADERS, OPEN_HEADERS, open_rows, state_text
from bullpen.table import lay_out
from bullpen.text import width

ID = "t-0123456789ab"
BAD = "a\x1b]0;pwned\x07b\x9b31m"


def task(**fields: Any) -> TaskShown:
    """A completed one, but for these fields."""
    known: dict[str, Any] = dict.fromkeys(TaskShown.model_fields)
    known |= {
        "task_id": ID,
        "state": "completed",
        "agent": "amy",
        "session_id": "00000000-0000-4000-8000-000000000000",
        "prompt": "Run the tests",
        "created_at": 1000.0,
        "started_at": 1000.0,
        "duration_seconds": 220.0,
        "turns": 1,
        "runs": (),
        "env_names": (),
        "commits": (),
        "commit_count": 0,
        "warnings": (),
    }
    return TaskShown.model_validate({**known, **fields})


def failed(kind: str) -> TaskShown:
    return task(state="failed", error={"type": kind, "message": "it broke"})


def events(*pairs: tuple[str, dict[str, Any]]) -> Iterator[SeenEvent]:
    for name, data in pairs:
        yield ApprovalAwaited(data["id"]) if name == "approval" else read_event(name, data)


def seen_after(*pairs: tuple[str, dict[str, Any]]) -> TurnProgress:
    seen = TurnProgress()
    for event in events(*pairs):
        seen = see(seen, event)
    return seen


def test_o3_a_task_that_waits_for_a_rate_limit_says_until_when() -> None:
    until = time.time() + 1
    waiting = task(state="queued", limited_until=until)
    clock = datetime.fromtimestamp(until).strftime("%H:%M")
    assert re.fullmatch(rf"queued \(rate limit until .*{clock}.*\)", state_text(waiting))


# ── progress ──

BASH = ("tool", {"tool": "Bash", "detail": "pytest -x"})
USED = ("usage", {"input_tokens": 18_000, "output_tokens": 400, "answer": "a"})
WORKING = ("state", {"state": "working"})


def test_t13_the_line_names_tool_time_tokens_and_cost() -> None:
    seen = see(TurnProgress(usd=0.15), read_event(*WORKING))
    for event in events(USED, BASH):
        seen = see(seen, event)
    assert line(seen, "amy", 72.2, 100) == (
        "⠹ amy · Bash (pytest -x) · 1m12s · 18.4k tokens · $0.15"
    )


@pytest.mark.parametrize(
    ("told", "doing"),
    [
        ([], "waits"),
        ([WORKING], "thinks"),
        ([WORKING, BASH], "Bash (pytest -x)"),
        ([WORKING, BASH, ("text", {"text": "hm"})], "thinks"),
        ([WORKING, BASH, USED], "thinks"),
        ([WORKING, USED, BASH], "Bash (pytest -x)"),
        ([WORKING, ("tool", {"tool": "Read", "detail": ""})], "Read"),
        ([WORKING, ("retry", {"attempt": 1, "why": "529"})], "tries again (529)"),
        ([WORKING, ("denied", {"tool": "Bash"})], "Bash was denied"),
        ([WORKING, BASH, ("approval", {"id": 7})], "waits for you: bullpen approve 7"),
        ([WORKING, BASH, ("approval", {"id": 7}), ("approval", {"id": 0})], "Bash (pytest -x)"),
        ([("state", {"state": "cancelling"})], "is being cancelled"),
    ],
)
def test_the_line_says_what_it_does(told: list[tuple[str, dict[str, Any]]], doing: str) -> None:
    assert doing in line(seen_after(*told), "amy", 3.0, 100)


@pytest.mark.parametrize("columns", [1, 2, 10, 40, 79, 200])
def test_the_line_is_never_wider_than_the_terminal(columns: int) -> None:
    seen = seen_after(WORKING, ("tool", {"tool": "漢字" * 200, "detail": "x" * 500}), USED)
    assert width(line(seen, "amy", 5.0, columns)) <= columns


def test_the_figures_stay_in_sight_beside_a_long_command() -> None:
    seen = seen_after(WORKING, USED, ("tool", {"tool": "Bash", "detail": "x" * 500}))
    assert line(seen, "amy", 5.0, 120).endswith("… · 5s · 18.4k tokens")


def test_control_characters_of_tools_do_not_reach_the_terminal() -> None:
    seen = seen_after(WORKING, ("tool", {"tool": BAD, "detail": BAD}))
    assert line(seen, "amy", 5.0, 200).isprintable()


def test_a_turn_counts_as_answered_only_if_it_went_well() -> None:
    assert seen_after(("turn", {"fault": "", "why": ""})).is_answered
    assert not seen_after(("turn", {"fault": "engine_error", "why": "500"})).is_answered
    assert seen_after(("turn", {"fault": "x"}), ("turn", {"fault": ""})).is_answered


def test_an_output_that_was_streamed_is_not_printed_twice() -> None:
    seen = seen_after(("text", {"text": "first"}), ("text", {"text": "all done\n"}))
    assert unsaid(seen, "all done") == ""
    assert unsaid(seen, "another result") == "another result"
    assert unsaid(seen, None) == ""


def test_t13_a_text_that_was_streamed_in_pieces_is_printed_once() -> None:
    pieces = [("partial", {"text": "", "is_first": True}), ("partial", {"text": "all "})]
    seen = seen_after(*pieces)
    assert unwritten(seen, "all done") == "done"
    assert unwritten(seen, "all ") == "\n"  # its line is not at an end
    assert unwritten(seen, "another") == "\nanother"
    assert unwritten(seen_after(*pieces, ("text", {"text": "all "})), "next") == "next"
    assert unwritten(seen_after(*pieces, *pieces), "all done") == "done"  # begun again
    # Ended in the middle of it.
    assert unsaid(seen, "first\n\nall ") == "\n"


# ── events ──


def test_an_event_knows_the_run_that_it_is_of() -> None:
    assert read_event("text", {}, "12.5.0").run == 12
    assert read_event("state", {}).run == 0


def test_patience_with_a_hub_that_stays_away_has_an_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_follow, "PATIENCE_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(BullpenError, match=f"lost sight of task {ID}") as caught:
        list(follow_task.follow(Hub(Home(home), start=False), ID))
    assert time.monotonic() - began > 0.5
    assert caught.value.hint.endswith(f"bullpen task show {ID}")


# ── the end ──


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (task(), 0),
        (task(state="idle"), 0),
        (failed("engine_error"), 1),
        (failed("sandbox_error"), 1),
        (failed("timeout"), 124),
        (task(state="cancelled"), 130),
    ],
)
def test_t13_exit_codes(found: TaskShown, code: int) -> None:
    assert exit_code(found) == code


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (task(), f"task {ID} completed in 3m40s · bullpen task show {ID}"),
        (
            task(commits=("a", "b"), commit_count=2),
            f"task {ID} completed in 3m40s · 2 commits · bullpen task show {ID}",
        ),
        (task(state="cancelled"), f"task {ID} was cancelled after 3m40s · bullpen task show {ID}"),
        (failed("lost"), f"task {ID} failed after 3m40s · bullpen task show {ID}"),
        (
            task(state="idle"),
            f'task {ID} stays open · bullpen task continue {ID} "…" · bullpen task end {ID}',
        ),
    ],
)
def test_verdict(found: TaskShown, text: str) -> None:
    assert verdict(found) == text


@pytest.mark.parametrize("kind", Error.model_fields["type"].annotation.__args__)  # type: ignore[union-attr]
def test_every_failure_has_a_next_step(kind: str) -> None:
    found = failed(kind)
    assert found.error is not None
    run = Run(number=1, began=1000.0, ended=1001.0)
    begun = found.model_copy(update={"runs": (run,)})
    assert "bullpen " in hint_for(begun, found.error)
    assert "debug" not in hint_for(found, found.error)


def test_output_is_harmless_for_terminals_and_in_pipes() -> None:
    piped = shown_output(f"{BAD}\r\n\t\u202ex\n", is_terminal=False)
    assert piped == "a\\x1b]0;pwned\\x07b\\x9b31m\r\n\t\\u202ex\n"
    shown = shown_output(f"{BAD}\r\n\tx\n", is_terminal=True)
    assert shown.splitlines() == ["a\\x1b]0;pwned\\x07b\\x9b31m", "        x"]
    assert shown_output("", is_terminal=True) == ""


# ── tables ──


def test_nothing_that_an_agent_wrote_reaches_a_table_raw() -> None:
    found = task(
        state="working",
        prompt=BAD,
        doing=BAD,
        error=None,
        directory=f"/tmp/{BAD}",
        warnings=(BAD,),
        commits=(BAD,),
        runs=({"number": 1, "began": 0, "ended": 0, "fault": "engine_error", "why": BAD},),
    )
    lines = field_text(task_lines(found))
    assert all(line.isprintable() for line in lines)
    assert sum("pwned" in line for line in lines) >= 5


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_table_fits_into_the_terminal(columns: int) -> None:
    found = task(state="working", doing="mcp__" + "x" * 90 + " (y)", prompt="漢字 " * 40)
    rows = [OPEN_HEADERS, *open_rows([found], 1005.0)]
    lines = lay_out(OPEN_HEADERS, rows, columns, drop=DROPPED_HEADERS)
    assert max(map(width, lines)) <= columns
    assert lines[1].endswith("…")


def test_the_state_names_the_tool_and_the_failure() -> None:
    assert state_text(task(state="working", doing="Bash (pytest -x)")) == "working (Bash)"
    assert state_text(failed("timeout")) == "failed (timeout)"
    assert state_text(task()) == "completed"


def test_a_value_of_several_lines_stands_under_itself() -> None:
    assert field_text([("prompt", "a\nb"), ("x", "c")]) == ["prompt  a", "        b", "x       c"]


# ── options ──


def test_variables_come_from_the_word_or_from_the_shell() -> None:
    shell = {"TOKEN": "s3cret"}
    assert variables_of(["A=1", "B=", "C=x=y", "TOKEN"], shell) == {
        "A": "1",
        "B": "",
        "C": "x=y",
        "TOKEN": "s3cret",
    }
    for word in ("MISSING", "=x", ""):
        with pytest.raises(BullpenError, match="--env"):
            variables_of([word], shell)


def test_budget() -> None:
    assert budget_of("usd=1.5,tokens=200000,minutes=20") == {
        "usd": 1.5,
        "tokens": 200_000,
        "minutes": 20,
    }
    assert budget_of(None) is None
    for text in (
        "",
        "usd",
        "usd=x",
        "usd=-1",
        "usd=nan",
        "usd=inf",
        "tokens=1.5",
        "eur=1",
        "usd=1,",
    ):
        with pytest.raises(BullpenError, match="--budget"):
            budget_of(text)


def test_labels() -> None:
    assert labels_of(["team=web", "x="]) == {"team": "web", "x": ""}
    for word in ("team", "=web"):
        with pytest.raises(BullpenError, match="--label"):
            labels_of([word])


def test_places_are_as_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tess")
    (tmp_path / "shop").mkdir()
    assert directory_of("shop", tmp_path) == str(tmp_path / "shop")
    assert directory_of("../x", tmp_path / "shop") == str(tmp_path / "x")
    assert directory_of("~/shop", tmp_path) == "/home/tess/shop"
    assert repository_of("shop", tmp_path) == str(tmp_path / "shop")
    assert repository_of("./shop", tmp_path) == str(tmp_path / "shop")
    assert repository_of("https://host/shop.git", tmp_path) == "https://host/shop.git"
    assert repository_of("git@host:shop.git", tmp_path) == "git@host:shop.git"
