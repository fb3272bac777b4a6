"""`attach --status` in a real terminal: the program as it is, and the row below it."""

from pathlib import Path

import pytest

from tests.terminal.stage import Stage
from tests.terminal.tmux import Tmux, wait_for_screen

from .pairs import PROGRAMS, Pair

pytestmark = pytest.mark.slow


@pytest.mark.storm
@pytest.mark.parametrize("name", ["vim", "less", "bash", "python"])
def test_a2_with_a_status_row_the_program_looks_the_same_above_it(
    stage: Stage, tmux: Tmux, place: Path, name: str
) -> None:
    program = PROGRAMS[name]
    pair = Pair(stage, tmux, place, program)
    pair.same(program.ready)
    pair.detach()
    pair.attached = pair.attach("--status")
    tmux.resize(pair.direct, 23, 80)

    def lines(pane: str) -> list[str]:
        return tmux.screen(pane).split("\n")

    def is_same(_: str) -> bool:
        shown, direct = lines(pair.attached), lines(pair.direct)
        return (
            shown[:23] == direct[:23]
            and shown[23].startswith("amy · coder · csv")
            and tmux.ask(pair.attached, "#{cursor_x},#{cursor_y}")
            == tmux.ask(pair.direct, "#{cursor_x},#{cursor_y}")
        )

    def both() -> str:
        return tmux.screen(pair.attached) + "── directly\n" + tmux.screen(pair.direct)

    wait_for_screen(both, is_same)
    for key in program.keys:
        pair.press(key)
        wait_for_screen(both, is_same)
    wait_for_screen(both, lambda text: program.done in text and is_same(text))
    pair.detach()


def test_a2_the_status_row_survives_clear_in_a_real_terminal(
    stage: Stage, tmux: Tmux, place: Path
) -> None:
    pair = Pair(stage, tmux, place, PROGRAMS["bash"])
    pair.same("sh>")
    pair.detach()
    pane = pair.attach("--status")
    pair.wait(pane, lambda text: "amy · coder" in text)
    tmux.keys(pane, "seq 100; clear; echo cleared", "Enter")
    text = pair.wait(pane, lambda text: text.startswith("cleared") and "sh>" in text)
    assert text.split("\n")[23].startswith("amy · coder")
    assert tmux.ask(pane, "#{pane_title}").startswith("amy · coder")
