"""Times in JSON for people and scripts."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator

from pydantic import BaseModel

import bullpen.model
from bullpen.clock import TIME_FIELDS, local_time, with_iso_times

# Numbers of models that are no time of day.
FIGURES = {
    *(
        "usd",
        "cost_usd",
        "budget_usd",
        "limit",
        "used",
        "drain_timeout",
        "at_once",
        "per_second",
        "due",
    ),
    *("minutes", "timeout"),
    *("filed_at", "told_at", "hint_at", "turn_started"),  # are never shown
}


def number_fields() -> Iterator[tuple[str, str]]:
    for module in pkgutil.iter_modules(bullpen.model.__path__):
        for value in vars(importlib.import_module(f"bullpen.model.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, BaseModel):
                for name, field in value.model_fields.items():
                    if "float" in str(field.annotation):
                        yield f"{value.__name__}.{name}", name


def test_times_become_text_with_their_zone_and_figures_stay() -> None:
    data = {
        "since": 1.5,
        "input": {"time": 5},
        "until": None,
        "usd": 2.5,
        "tasks": [{"created_at": 2, "at": True}, {"at": 0}],
    }
    assert with_iso_times(data) == {
        "since": "1970-01-01T00:00:01.500000Z",
        "input": {"time": 5},
        "until": None,
        "usd": 2.5,
        "tasks": [{"created_at": "1970-01-01T00:00:02.000000Z", "at": True}, {"at": None}],
    }


def test_it_is_known_of_every_number_of_a_model_whether_it_is_a_time() -> None:
    unknown = {
        field
        for field, name in number_fields()
        if name not in TIME_FIELDS | FIGURES and not name.endswith("seconds")
    }
    assert not unknown, "list them in TIME_FIELDS of clock.py, or in FIGURES here"


def test_o3_a_time_that_is_days_away_has_its_day() -> None:
    now = time.time()
    for seconds in (0, 60, 11 * 3600):
        assert re.fullmatch(r"\d\d:\d\d", local_time(now + seconds)), seconds
    later = now + 4 * 86_400
    assert local_time(later) == time.strftime("%a %Y-%m-%d %H:%M", time.localtime(later))
