"""Tables in terminals of all widths."""

from typing import Any

import pytest

from bullpen.table import hang, lay_out, lay_out_whole
from bullpen.text import width

HEADERS = ("NAME", "STATE", "PORT", "TEXT")
ROWS = [("amy", "working (Bash)", "8123", "fix the login bug " * 5), ("漢字", "idle", "9", "")]


def table(columns: int = 0, **limits: Any) -> list[str]:
    return lay_out(HEADERS, [HEADERS, *ROWS], columns, **limits)


def names(lines: list[str]) -> list[str]:
    return lines[0].split()


def test_without_a_limit_rows_are_whole() -> None:
    lines = table()
    assert lines[0] == "NAME  STATE           PORT  TEXT"
    assert lines[1].endswith("fix the login bug")
    assert lines[2] == "漢字  idle            9"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (200, ["NAME", "STATE", "PORT", "TEXT"]),
        (60, ["NAME", "STATE", "PORT", "TEXT"]),
        (55, ["NAME", "STATE", "TEXT"]),
        (45, ["NAME", "TEXT"]),
    ],
)
def test_columns_are_dropped_in_their_order(columns: int, shown: list[str]) -> None:
    assert names(table(columns, drop=("PORT", "STATE"))) == shown


def test_texts_are_cut_before_columns_are_dropped() -> None:
    lines = table(62, drop=("PORT", "STATE"))
    assert names(lines) == list(HEADERS)
    assert lines[1].startswith("amy   working (Bash)  8123  fix the login bug ")
    assert lines[1].endswith("…")


def test_only_the_columns_that_may_be_cut_are() -> None:
    lines = table(40, drop=("PORT",), cut=("TEXT",))
    assert "working (Bash)" in lines[1]
    named = lay_out(("NAME", "TEXT"), [("a" * 60, "short")], 40, cut=("NAME",))
    assert named[0] == "a" * 32 + "…  short"


@pytest.mark.parametrize("columns", [*range(1, 30), 40, 80, 160])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    for drop in ((), ("PORT", "STATE", "NAME", "TEXT"), ("ELSEWHERE",)):
        assert max(map(width, table(columns, drop=drop))) <= columns


def test_a_column_without_any_text_takes_no_room() -> None:
    assert lay_out(("a", "b", "c"), [("1", "", "2"), ("3", "", "4")]) == ["1  2", "3  4"]


def test_figures_stand_under_each_others_ends() -> None:
    lines = lay_out(("N", "COST"), [("a", "$1"), ("b", "$10.00")], figures=("COST",))
    assert lines == ["a      $1", "b  $10.00"]


@pytest.mark.parametrize("columns", [0, 20, 40, 60, 200])
def test_what_is_laid_out_whole_loses_and_breaks_no_word(columns: int) -> None:
    lines = lay_out_whole(HEADERS, ROWS, columns, "TEXT")
    words = sorted(word for row in ROWS for cell in row for word in cell.split())
    assert sorted(word for line in lines for word in line.split()) == words
    assert not columns or max(map(width, lines)) <= columns
    assert (len(lines) == len(ROWS)) is (columns in (0, 200))


def test_words_that_do_not_fit_hang_below_their_line() -> None:
    assert hang("  1 message waits: it is at a dialog", 0) == [
        "  1 message waits: it is at a dialog"
    ]
    assert hang("  1 message waits: it is at a dialog", 24) == [
        "  1 message waits:",
        "    it is at a dialog",
    ]
