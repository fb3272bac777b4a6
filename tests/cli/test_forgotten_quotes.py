"""Words that were meant as one text are an error that shows them quoted; no text, one that shows
where it belongs."""

from collections.abc import Callable

import pytest

from tests.commands import Ran

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("run --role coder --prompt Fix the bug", "--prompt 'Fix the bug'"),
        ("task tester Fix the bug", "bullpen task tester 'Fix the bug'"),
        ("task --any Fix the bug", "bullpen task --any 'Fix the bug'"),
        ("send amy Fix the bug", "bullpen send amy 'Fix the bug'"),
    ],
)
def test_t13_the_quoted_form_is_shown(bullpen: Bullpen, typed: str, meant: str) -> None:
    ran = bullpen(*typed.split())
    assert ran.code == 2
    assert ran.err.endswith(
        f"ends at 'Fix', before: the bug · quote it as a whole\nhint:  {meant}\n"
    )


@pytest.mark.parametrize(
    ("typed", "missing", "form"),
    [
        ("task tester", "no prompt for tester", 'bullpen task tester "PROMPT"'),
        ("task --any", "no prompt for whoever is free", 'bullpen task --any "PROMPT"'),
        ("send amy", "no text for amy", 'bullpen send amy "TEXT"'),
    ],
)
def test_t13_a_missing_text_is_named_with_the_form(
    bullpen: Bullpen, typed: str, missing: str, form: str
) -> None:
    ran = bullpen(*typed.split())
    assert (ran.code, ran.err) == (2, f"error: {missing}\nhint:  {form}\n")
