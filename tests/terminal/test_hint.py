"""The key that leaves is shown on entering, and nothing of the program's screen is lost by it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.hint import BEGIN_SECONDS, SHOWN_SECONDS, Hint
from bullpen.terminal.screen import Screen
from tests.holder.programs import shell
from tests.terminal.stage import Stage
from tests.terminal.tmux import Tmux, wait_for_screen

ROWS, COLS = 6, 40
TEXT = "ctrl-\\ leaves"
FULL = b"\x1b[H\x1b[2J" + b"\r\n".join(b"row %d of the program's screen" % n for n in range(ROWS))
PIECES = [
    *(FULL, b"\x1b[2;3Hhere", b"\r\nmore", b"\x1b[1;31mred", b"\x1b[m", b"\x1b[2J", b"\x1b[H"),
    *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[2;4r", b"\x1b[r", b"\x1b7", b"\x1b8", b"\x1b[4h"),
    *(b"\x1b[4l", b"x" * (2 * COLS), "漢字".encode(), b"\xe6", b"\x1b[", b"3A", b"\x1b[?6h", b"\t"),
]


def screens(pieces: list[bytes], step: float) -> tuple[Screen, Screen, list[str]]:
    """With a hint, without one, and what was seen while it was on."""
    with_hint, without = Screen(ROWS, COLS), Screen(ROWS, COLS)
    hint = Hint(TEXT, (ROWS, COLS))
    seen = []
    for number, piece in enumerate([*pieces, b"", b"", b""]):
        with_hint.feed(hint.add(piece, number * step))
        without.feed(piece)
        seen.append("\n".join(with_hint.lines()))
    with_hint.feed(hint.end())
    return with_hint, without, seen


def test_a1_the_key_is_shown_and_the_row_below_it_comes_back() -> None:
    with_hint, without, seen = screens([FULL, b""], BEGIN_SECONDS)
    assert any(TEXT in each for each in seen)
    assert with_hint.lines() == without.lines()
    assert "row 5" in with_hint.lines()[5]


def test_a1_the_key_goes_by_itself() -> None:
    hint = Hint(TEXT, (ROWS, COLS))
    screen = Screen(ROWS, COLS)
    screen.feed(hint.add(FULL, 0.0))
    screen.feed(hint.add(b"", BEGIN_SECONDS))
    assert hint.is_shown
    assert hint.wait(BEGIN_SECONDS) == pytest.approx(SHOWN_SECONDS)
    screen.feed(hint.add(b"", BEGIN_SECONDS + SHOWN_SECONDS))
    assert hint.is_over
    assert TEXT not in "\n".join(screen.lines())


def only_after(pieces: list[bytes], saves: bytes, restores: bytes) -> list[bytes]:
    """Terminals differ on what a restored cursor is that was never saved."""
    first = pieces.index(saves) if saves in pieces else len(pieces)
    return [each for number, each in enumerate(pieces) if each != restores or number > first]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from([0.1, 0.5, 2.0]))
def test_a1_whatever_a_program_writes_its_screen_is_the_same_after_the_hint(
    pieces: list[bytes], step: float
) -> None:
    pieces = only_after(only_after(pieces, b"\x1b7", b"\x1b8"), b"\x1b[?1049h", b"\x1b[?1049l")
    if b"\x1b[?1049h" in pieces:  # and on whether each screen has a saved cursor of its own
        pieces = [piece for piece in pieces if piece not in (b"\x1b7", b"\x1b8")]
    with_hint, without, _ = screens(pieces, step)
    assert with_hint.lines() == without.lines()
    assert with_hint.cursor == without.cursor
    restored = b"\x1b8y" if b"\x1b7" in b"".join(pieces) else b""
    for screen in (with_hint, without):
        screen.feed(b"x" + restored)  # in which colours, and where
    rows = range(ROWS)
    assert [with_hint.styled_line(n) for n in rows] == [without.styled_line(n) for n in rows]


@pytest.mark.parametrize("before", [b"\x1b7", b"\x1b[s", b"\x1b[?6h", b"\x1b[?69h"])
def test_a1_no_hint_where_it_would_take_the_programs_saved_cursor(before: bytes) -> None:
    _, _, seen = screens([FULL + before], BEGIN_SECONDS)
    assert not any(TEXT in each for each in seen)


def test_a1_the_key_is_shown_over_claude_code_which_resets_the_margins_first() -> None:
    begins = b"\x1b7\x1b[r\x1b8\x1b[?25h\x1b[?2004h\x1b[?1004h\x1b[?1049h"
    _, _, seen = screens([begins + FULL, b""], BEGIN_SECONDS)
    assert any(TEXT in each for each in seen)


@pytest.mark.parametrize(("size", "text"), [((1, 80), TEXT), ((24, 12), TEXT), ((24, 80), "")])
def test_a1_no_hint_without_room_or_text(size: tuple[int, int], text: str) -> None:
    hint = Hint(text, size)
    assert hint.add(b"x", 0.0) + hint.add(b"y", BEGIN_SECONDS) == b"xy"


@pytest.mark.slow
def test_a1_attach_shows_the_key_on_entering_and_then_the_program_alone(
    stage: Stage, tmux: Tmux, tmp_path: Path
) -> None:
    # Long enough for a busy machine that looks away for a while.
    longer = "import bullpen.terminal.hint as it; it.SHOWN_SECONDS = 12.0\n"
    (tmp_path / "sitecustomize.py").write_text(longer)
    env = {**stage.env(), "PYTHONPATH": str(tmp_path)}
    fill = "for n in $(seq 24); do printf '\\033[%d;1Hrow %d' $n $n; done; read line"
    stage.agent("amy", shell(fill))
    pane = tmux.window(str(stage.bullpen), "attach", "amy", env=env)
    wait_for_screen(lambda: tmux.screen(pane), lambda text: "leaves · amy goes on" in text)
    rows = [f"row {n}" for n in range(1, 25)]
    wait_for_screen(lambda: tmux.screen(pane), lambda text: text.rstrip("\n").split("\n") == rows)
