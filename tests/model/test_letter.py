"""L4: letters are taken in their order, each once, and whose they are is not theirs to say."""

import pytest
from pydantic import ValidationError

from bullpen.model.letter import Letter, Written, message_of, place_in_line

WRITTEN = Written(id="m-0123456789ab", to="amy", priority="normal", created=5.0)


@pytest.mark.parametrize(
    ("number", "taken", "last", "place"),
    [
        (1, 0, None, "next"),
        (2, 0, 1, "next"),
        (2, 1, 1, "next"),
        (1, 0, 1, "before"),
        (1, 0, 7, "before"),
        (3, 0, 1, "too soon"),
        (2, 0, None, "too soon"),
        # The other's database was lost: what it said that it had taken is not sent again.
        (5, 4, None, "next"),
        (5, 4, 2, "next"),
        (6, 4, 2, "too soon"),
        (3, 2, 7, "before"),
    ],
)
def test_l4_a_letter_has_one_place_in_its_line(
    number: int, taken: int, last: int | None, place: str
) -> None:
    letter = Letter(line="0" * 16, number=number, taken=taken, about=WRITTEN)
    assert place_in_line(letter, last) == place


def test_l4_the_host_that_has_signed_it_says_whose_machine_it_comes_from() -> None:
    bob = WRITTEN.model_copy(update={"agent": "bob", "sender": "root"})
    owner = WRITTEN.model_copy(update={"sender": "ann"})
    assert message_of("h1", bob, "x", 9.0).sender == "h1/bob"
    assert message_of("h3", bob, "x", 9.0).sender == "h3/bob"
    assert message_of("h1", WRITTEN, "x", 9.0).sender == "root"
    assert message_of("h1", owner, "x", 9.0).sender == "ann"


def test_l4_the_same_letter_is_the_same_row_and_another_hosts_is_not() -> None:
    ids = {message_of(host, WRITTEN, "x", 9.0).id for host in ("h1", "h1", "h3")}
    assert len(ids) == 2 and WRITTEN.id not in ids


def test_l4_a_clock_that_goes_ahead_does_not_date_a_message_into_the_future() -> None:
    assert message_of("h1", WRITTEN, "x", 2.0).created == 2.0
    assert message_of("h1", WRITTEN, "x", 9.0).created == 5.0


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "h1/bob"},
        {"agent": "bob\n"},
        {"to": "h3/amy"},
        {"to": ""},
        {"id": "m-1"},
        {"created": float("nan")},
        {"created": -1.0},
        {"priority": "now"},
        {"sender": "x" * 81},
    ],
)
def test_l4_what_is_no_letter_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Written.model_validate({**WRITTEN.model_dump(), **fields})
