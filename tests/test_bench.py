"""`make bench`: a short run of every section, so that none rots, and how the table is printed.

Whether a goal is met is never asserted: a machine under test is a machine under load.
"""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.deadline import deadline
from bench.limits import LIMITS, Limit, set_to_limit
from bench.report import WHAT, Report, line, measure, show_value
from bench.results import BEGIN, END, GROWTH, growth_table, results_text, with_table
from bench.sections import SECTIONS, Section, choose
from bench.simulated_hosts import describe
from bench.table import Row, Skipped, interleaved

from bullpen.fleet.direct_get import Entry
from bullpen.fleet.presence import hosts_at
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
# The rows of the table of goals whose features are there, as far as a peer can be run here.
GOALS = {
    *("1a", "1b", "1c", "1d", "2a", "2b", "3a", "3b", "4", "5a", "5b", "5c", "6", "7", "8", "9"),
    *map(str, range(10, 25)),
    *("g", "r", "s", "t", "w"),
}
NO_GOAL = {"h"}
MAY_BE_ZERO = ("", "%")  # failures, and what an idle hub uses
UNITS = {"s", "ms", "µs", "MB", "B/s", *MAY_BE_ZERO}


# ── every row ──


@dataclass(frozen=True)
class Printed:
    """A line of the table, read back from its columns."""

    number: str
    what: str
    ours: str
    beside: str
    ratio: str
    goal: str
    verdict: str

    @classmethod
    def read(cls, text: str) -> "Printed":
        ends = [4, 5 + WHAT, WHAT + 15, WHAT + 25, WHAT + 34, WHAT + 43, len(text)]
        starts = [0, *ends]
        return cls(*(text[a:b].strip() for a, b in zip(starts, ends, strict=False)))


def run_bench(
    *words: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# The peers are installed from elsewhere for it.
LONG = {"fleet_size", "engine_hooks"}
HERE = [
    pytest.param(section, marks=pytest.mark.storm) if section.name in LONG else section
    for section in SECTIONS
    if section.only_with != "peers"
]


@pytest.mark.slow
@pytest.mark.parametrize("section", HERE, ids=lambda section: section.name)
@pytest.mark.few(5)
def test_short_run_measures_every_row_of_the_section(section: Section) -> None:
    done = run_bench("--short", section.name)
    assert done.returncode == 0, done.stdout + done.stderr
    if missing := re.search(r": skipped: (.*)", done.stdout):
        pytest.skip(missing[1])
    table, _, _ = done.stdout.partition("\n\n")
    rows = [Printed.read(text) for text in table.splitlines()[1:]]
    assert {row.number for row in rows} == set(section.numbers)
    for row in rows:
        assert_value(row.ours)
        assert_value(row.beside)
        # A failure of ours where git had none is a miss, and no number.
        is_number = re.fullmatch(r"\d+(\.\d\d)?x|1/\d+", row.ratio)
        assert is_number or (row.beside, row.ratio) == ("0", "infx"), row
        assert re.fullmatch(r"\d+(\.\d\d)?x|1/\d+|none", row.goal), row
        assert row.verdict in (("-",) if row.goal == "none" else ("ok", "MISSED")), row
    for number in section.numbers:
        assert any(row.goal != "none" for row in rows if row.number == number), number


def assert_value(text: str) -> None:
    value, _, unit = text.partition(" ")
    assert unit in UNITS, text
    assert re.fullmatch(r"\d+(\.\d+)?", value), text  # neither nan nor inf
    assert float(value) > 0 or unit in MAY_BE_ZERO, text


def test_every_goal_has_a_section() -> None:
    assert {number for section in SECTIONS for number in section.numbers} == GOALS | NO_GOAL


def test_simulated_hosts_are_shown_as_real_ones_are() -> None:
    """One whose clock is wrong would cost whoever reads of it more, and look as if it did here."""
    state = describe("s1")
    entry = Entry(state.model_dump_json().encode(), 1, 5_000.0)
    (host,) = hosts_at(state.at + 1, {"s1": Entry(b"life", 1, 5_001.0)}, {"s1": entry})
    assert host.state == state and host.reachable
    assert all(state.at - agent.since == 60 for agent in state.agents)


# ── the table is printed while it is measured ──


def steady(_short: bool) -> Iterator[Row]:
    yield Row("1", "a good one", 0.0012, 0.001, 1.5)
    yield Row("2", "a bad one", 0.0021, 0.001, 1.5)
    yield Row("2", "  beside a peer", 0.000_021, 4.2, None)


def failing(_short: bool) -> Iterator[Row]:
    yield Row("3", "before it fails", 1, 1, 1)
    raise ValueError("the tool said no")


def absent(_short: bool) -> Iterator[Row]:
    yield Row("4", "without the tool", 1, 1, 1)
    raise Skipped("the tool is not installed")


STEADY = Section("steady", ("1", "2"), steady)
FAILING = Section("failing", ("3",), failing)
ABSENT = Section("absent", ("4",), absent)


def printed(*sections: Section) -> str:
    out = io.StringIO()
    measure(sections, False, out)
    return out.getvalue()


def test_each_row_has_its_goal_and_verdict_in_columns() -> None:
    heading, *rows = printed(STEADY).splitlines()[:4]
    assert Printed.read(heading) == Printed("row", "what", "ours", "beside", "ratio", "goal", "")
    assert [Printed.read(row) for row in rows] == [
        Printed("1", "a good one", "1.2 ms", "1.0 ms", "1.20x", "1.50x", "ok"),
        Printed("2", "a bad one", "2.1 ms", "1.0 ms", "2.10x", "1.50x", "MISSED"),
        Printed("2", "beside a peer", "21 µs", "4.2 s", "1/200000", "none", "-"),
    ]


@pytest.mark.parametrize("value", [0.0, 0.0000391, 0.00391, 0.391, 3.91, 3910.0])
def test_a_value_fits_its_column(value: float) -> None:
    assert len(show_value(value, "MB")) <= 9


def test_summary_names_the_misses() -> None:
    _, _, summary = printed(STEADY).partition("\n\n")
    assert summary.splitlines() == [
        "1 of 2 goals met",
        "missed: 2 a bad one: 2.10x, goal 1.50x",
    ]


def test_section_that_fails_is_named_and_the_others_go_on() -> None:
    out = io.StringIO()
    report = measure((FAILING, STEADY), False, out)
    table, _, summary = out.getvalue().partition("\n\n")
    assert "3    failing: FAILED\nTraceback" in table
    assert [row.number for row in report.rows] == ["3", "1", "2", "2"]
    assert report.failed == {"failing": "ValueError: the tool said no"}
    assert summary.endswith("failed: failing: ValueError: the tool said no\n")


def test_section_that_cannot_be_measured_here_says_why_and_the_others_go_on() -> None:
    out = io.StringIO()
    report = measure((ABSENT, STEADY), False, out)
    table, _, summary = out.getvalue().partition("\n\n")
    assert "4    absent: skipped: the tool is not installed\n" in table
    assert [row.number for row in report.rows] == ["4", "1", "2", "2"]
    assert not report.failed
    assert summary.endswith("skipped: absent: the tool is not installed\n")


def test_heading_and_rows_are_out_before_the_next_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "table"
    seen: list[list[str]] = []

    def curious(_short: bool) -> Iterator[Row]:
        for number in "12":
            seen.append(file.read_text().splitlines())
            yield Row(number, "looked before", 1, 1, 1)

    with file.open("w") as out:  # which keeps what is not flushed
        measure(
            [Section("curious", ("1", "2"), curious), Section("other", ("1",), curious)], False, out
        )
    assert [len(lines) for lines in seen] == [1, 2, 3, 4]
    assert seen[0][0].startswith("row  what")


def test_what_came_out_so_far_is_told_after_each_section() -> None:
    told: list[tuple[int, list[str]]] = []
    measure(
        (STEADY, FAILING, ABSENT),
        False,
        io.StringIO(),
        between=lambda report: told.append((len(report.rows), list(report.left))),
    )
    assert told == [(3, ["failing", "absent"]), (4, ["absent"]), (5, [])]


@pytest.mark.slow
def test_a_section_that_hangs_is_ended_and_the_others_go_on() -> None:
    def hanging(_short: bool) -> Iterator[Row]:
        yield Row("3", "before it hangs", 1, 1, 1)
        threading.Event().wait()

    report = measure(
        (Section("hanging", ("3",), hanging), STEADY),
        False,
        io.StringIO(),
        limit=partial(deadline, 2.0),  # long enough for its row, on a busy machine as well
    )
    assert report.failed == {"hanging": "TimeoutError: not done after 2 s"}
    assert [row.number for row in report.rows] == ["3", "1", "2", "2"]


def test_rows_that_were_not_asked_for_are_not_printed() -> None:
    out = io.StringIO()
    report = measure(choose(["1"], sections=[STEADY]), False, out)
    assert [row.number for row in report.rows] == ["1"]


def test_section_is_left_when_its_rows_cannot_be_printed() -> None:
    left: list[str] = []

    def with_server(_short: bool) -> Iterator[Row]:
        with contextlib.ExitStack() as stack:
            stack.callback(left.append, "server")
            yield Row("1", "served", 1, 1, 1)

    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            if "served" in text:
                raise KeyboardInterrupt
            return super().write(text)

    with pytest.raises(KeyboardInterrupt):
        measure([Section("with_server", ("1",), with_server)], False, Interrupted())
    assert left == ["server"]


# ── what is kept of it ──


def kept(*sections: Section) -> str:
    return results_text(
        measure(sections, False, io.StringIO()), "2026-11-17 18:00 UTC", "a machine"
    )


def test_results_have_when_where_every_row_and_why_a_goal_is_missed() -> None:
    text = kept(STEADY, FAILING, ABSENT)
    assert "2026-11-17 18:00 UTC, a machine.\n\n**3 of 4 goals met.**" in text
    assert "| 1 | a good one | 1.2 ms | 1.0 ms | 1.20x | 1.50x | ok |" in text
    assert "| 2 | beside a peer | 21 µs | 4.2 s | 1/200000 | none | - |" in text
    assert "## Missed\n\n- 2 a bad one: " in text
    assert "- absent: the tool is not installed\n- failing: ValueError: the tool said no" in text


def test_results_say_which_sections_were_not_reached() -> None:
    assert "## Not measured\n\n- later: not reached\n" in results_text(
        Report(left=["later"]), "2026-11-17 18:00 UTC", "a machine"
    )


def test_a_limit_that_a_profile_has_shown_is_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "a bad", Limit(2.2, "the disk turns no faster"))
    text = kept(STEADY)
    assert "| 2 | a bad one | 2.1 ms | 1.0 ms | 2.10x | 2.20x (wished: 1.50x) | ok |" in text
    reason = "- 2 a bad one: the disk turns no faster\n"
    assert f"## Goals that are set to a limit\n\n{reason}" in text
    assert "## Missed" not in text
    # It holds only as far as it was shown.
    monkeypatch.setitem(LIMITS, "a bad", Limit(2.0, "the disk turns no faster"))
    assert f"## Missed\n\n{reason}" in kept(STEADY)


def test_a_limit_eases_no_goal_that_can_be_met_and_has_numbers() -> None:
    row = Row("1a", "bullpen hook", 1.0, 1.0, 2.5)
    assert set_to_limit(row) == row
    assert set_to_limit(replace(row, goal=None)).goal is None
    assert set_to_limit(replace(row, goal=1.5)) == replace(row, goal=1.9, wished=1.5)
    assert all(re.search(r"\d|two|nine", limit.why) for limit in LIMITS.values())


def test_growth_is_told_by_sizes_costs_and_class() -> None:
    rows = [
        Row("g", "page of one agent: 250k events beside 25k", 0.0011, 0.001, 1.3),
        Row("g", "conflicts, each pair: 40 worktrees beside 10", 0.003, 0.001, 1.3),
        Row("1a", "bullpen hook", 0.003, 0.001, 1.5),
    ]
    assert growth_table(rows).splitlines() == [
        "| what | size | cost | ratio | class |",
        "| --- | --- | --- | --- | --- |",
        "| page of one agent | 25k → 250k events | 1.0 ms → 1.1 ms | 1.10x | flat |",
        "| conflicts, each pair | 10 → 40 worktrees | 1.0 ms → 3.0 ms | 3.00x | grows |",
    ]


def test_only_the_table_of_the_page_is_written_anew() -> None:
    page = GROWTH.read_text()
    once = with_table(page, "| a |")
    assert with_table(once, "| b |") == with_table(page, "| b |")
    assert once.partition(BEGIN)[0] == page.partition(BEGIN)[0]
    assert once.partition(END)[2] == page.partition(END)[2]


def test_the_table_of_growth_in_the_docs_is_as_the_command_writes_it() -> None:
    table = GROWTH.read_text().partition(f"{BEGIN}\n")[2].partition(f"\n{END}")[0]
    heads, rule, *rows = table.splitlines()
    assert [heads, rule] == growth_table(()).splitlines()
    for row in rows:
        assert re.fullmatch(
            r"\| [^|]+ \| [^|]+ → [^|]+ \| [^|]+ → [^|]+ \| [^|]+ \| (flat|grows) \|", row
        ), row


@pytest.mark.parametrize("words", [["--short"], ["6"], ["6", "--short"]])
def test_a_part_of_a_run_is_not_kept(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--write", *words])
    assert ended.value.code == 2
    assert "--write is for a whole run" in capsys.readouterr().err


# ── what is measured ──


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["2a"], {"memory": ("2a",)}),
        (["2"], {"memory": ("2a",), "spawn": ("2b",)}),
        (["1"], {"hot_verbs": ("1a", "1b", "1d"), "other_verbs": ("1c",)}),
        (["15", "5b"], {"trees": ("5b",), "many": ("15",)}),
        (["big_trees", "5a"], {"trees": ("5a",), "big_trees": ("5a", "5b")}),
        (["events", "6", "events"], {"events": ("6",)}),
    ],
)
def test_rows_are_chosen_by_number_or_section(
    words: list[str], expected: dict[str, tuple[str, ...]]
) -> None:
    assert {section.name: section.numbers for section in choose(words)} == expected


@pytest.mark.parametrize(
    ("option", "section", "row", "usual"),
    [("full", "big_trees", "5a", "trees"), ("peers", "peers", "13", "idle")],
)
def test_what_takes_long_is_measured_only_if_asked_for(
    option: str, section: str, row: str, usual: str
) -> None:
    without = [each.name for each in choose([])]
    assert [each.name for each in choose([], [option]) if each.name not in without] == [section]
    assert [each.name for each in choose([row], [option])] == [usual, section]


@pytest.mark.parametrize("word", ["nonsense", "99", "", "2a,2b", "1z"])
def test_wrong_name_is_refused_with_what_there_is(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--short", "6", word])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert f"no row or section {word!r}" in err
    assert all(section.name in err for section in SECTIONS)


def test_help_names_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(word in text for word in ("--short", "--full", "--peers", *GOALS))
    assert all(section.name in text for section in SECTIONS)


def test_rounds_go_there_and_back_and_the_median_counts() -> None:
    turns: list[str] = []
    times = iter([5.0, 1.0, 2.0, 9.0, 7.0, 3.0])

    def work(name: str) -> float:
        turns.append(name)
        return next(times)

    assert interleaved(3, lambda: work("a"), lambda: work("b")) == [7.0, 2.0]
    assert "".join(turns) == "abbaab"


@pytest.mark.parametrize(
    ("ours", "bare", "goal", "verdict"),
    [
        (1.5, 1.0, 1.5, "ok"),
        (1.51, 1.0, 1.5, "MISSED"),
        (0, 0, 0, "ok"),
        (1, 0, 0, "MISSED"),
        (9, 1, None, "-"),
    ],
)
def test_verdict(ours: float, bare: float, goal: float | None, verdict: str) -> None:
    row = Row("1", "x", ours, bare, goal)
    assert row.verdict == verdict
    assert line(row).endswith(f"  {verdict}")


# ── the whole command ──


@pytest.mark.slow
def test_exit_code_tells_of_a_section_that_failed_and_not_of_one_that_was_skipped(
    tmp_path: Path,
) -> None:
    env = {**os.environ, "PATH": str(tmp_path)}  # no git, no bwrap
    done = run_bench("--short", "storm", "sandbox", env=env)
    assert done.returncode == 1, done
    assert "storm: FAILED" in done.stdout
    assert "9    sandbox: skipped: bwrap is not installed" in done.stdout
    assert run_bench("--short", "sandbox", env=env).returncode == 0


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "running", "times"),
    [("spawn", 6, 1), ("spawn", 6, 2), ("many", 4, 1), ("store", 1, 2)],
)
def test_interrupted_it_leaves_neither_processes_nor_files(
    section: str, running: int, times: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "bench", section],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bench:
        mark = f"bullpen-bench-{bench.pid}-"
        try:
            wait_until(lambda: bench.poll() is not None or len(marked(mark)) >= running, 120)
            for _ in range(times):
                bench.send_signal(signal.SIGINT)
            _, err = bench.communicate(timeout=120)
        finally:
            bench.terminate()
    assert bench.returncode == 130, err
    assert "\ninterrupted\n" in err
    assert marked(mark) == []
    assert [*Path("/tmp").glob(f"{mark}*"), *Path("/dev/shm").glob(f"{mark}*")] == []


def marked(mark: str) -> list[str]:
    """Processes that have it in their command line or environment, but the bench's own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != mark.split("-")[2]:
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if mark.encode() in words + (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {words!r}")
    return found
