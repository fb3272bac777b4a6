"""One look at the branches for all pages that are open, and a rest after it (V9)."""

from bullpen.client.async_hub import RawAnswer
from bullpen.web.conflicts import KEPT_SECONDS, REST_SECONDS, REST_TIMES, Look
from tests.web.inside import InsideView

ANSWER = RawAnswer(200, b"{}", "application/json")


def test_v9_a_look_is_due_when_something_has_happened_and_it_has_rested() -> None:
    look = Look(ANSWER, event=7, began=100.0, ended=101.0)
    rested = 101.0 + REST_TIMES
    assert not look.is_due(8, rested - 0.1)
    assert look.is_due(8, rested)
    assert not look.is_due(7, rested)
    assert look.is_due(7, 101.1 + KEPT_SECONDS)


def test_v9_a_quick_look_is_soon_taken_again_although_nobody_said_that_anything_happened() -> None:
    look = Look(ANSWER, event=7, began=100.0, ended=100.02)
    assert not look.is_due(7, 100.02 + REST_SECONDS - 0.1)
    assert look.is_due(7, 100.02 + REST_SECONDS + 0.1)


def test_v9_a_look_that_took_long_is_followed_by_a_long_rest() -> None:
    look = Look(ANSWER, event=7, began=100.0, ended=105.0)
    assert look.rest_seconds(105.0) == 5.0 * REST_TIMES
    assert not look.is_due(8, 105.0 + 5.0 * REST_TIMES - 0.1)


def test_v9_what_is_asked_for_is_the_id_of_an_event(view: InsideView) -> None:
    for text in ("x", "-1", "1" * 19, "1; drop"):
        assert view.ask("GET", f"/api/conflicts?event={text}").status_code == 400, text
