"""When the letters to another machine are sent again: pure."""

from bullpen.hub.fleet_mail.outgoing import LONGEST_SECONDS, Line


def waits(line: Line, *, is_missing: bool, times: int) -> list[float]:
    """Seconds between tries of which nothing comes but, perhaps, that the first is missing."""
    now, found = 1000.0, []
    for _ in range(times):
        line.begin_again(now)
        if is_missing:
            for _ in range(15):  # all that came before their turn
                line.note_missing(now)
        found.append(line.due - now)
        now = line.due
    return found


def test_l4_what_nobody_takes_is_sent_less_and_less_often() -> None:
    assert waits(Line(), is_missing=False, times=4) == [10.0, 20.0, 40.0, 80.0]
    assert waits(Line(), is_missing=False, times=2000)[-1] == LONGEST_SECONDS


def test_l4_what_the_other_hub_misses_is_sent_soon_and_then_less_and_less_often() -> None:
    assert waits(Line(), is_missing=True, times=4) == [1.0, 2.0, 4.0, 8.0]
    assert waits(Line(), is_missing=True, times=2000)[-1] == LONGEST_SECONDS


def test_l4_a_letter_that_is_taken_or_a_new_connection_begins_anew() -> None:
    line = Line()
    waits(line, is_missing=True, times=5)
    line.note_taken(2000.0)
    assert line.due == 2010.0
    line.note_missing(2000.0)
    assert line.due == 2001.0
    waits(line, is_missing=True, times=5)
    line.note_connected()
    assert line.due == 0.0
    assert waits(line, is_missing=True, times=2) == [1.0, 2.0]
