"""The logs of hub and directors, as people read them."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.cli.component_log import later_lines, text_of, write_log
from tests.commands import Ran

ENTRY = {
    "timestamp": "2026-11-17T13:02:11.250Z",
    "level": "info",
    "component": "hub",
    "logger": "bullpen.hub",
    "message": "serving",
}


def line(**fields: Any) -> str:
    return json.dumps({**ENTRY, **fields})


@pytest.fixture
def in_berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (line(), "2026-11-17 14:02:11  info     serving"),
        (line(port=9199, why=None), "2026-11-17 14:02:11  info     serving · port 9199"),
        (
            line(level="warning", name="amy", files=["ä", "b"]),
            '2026-11-17 14:02:11  warning  serving · name amy · files ["ä", "b"]',
        ),
        (
            line(level="error", exception="Traceback:\n  x\nValueError: no\n", agent="amy"),
            "2026-11-17 14:02:11  error    serving · agent amy\n    Traceback:\n      x\n"
            "    ValueError: no",
        ),
        (line(message="a\x1b[2J\u202e"), "2026-11-17 14:02:11  info     a\\x1b[2J\\u202e"),
        ("Segmentation fault", "Segmentation fault"),
        ("[]", "[]"),
        (line(timestamp="soon"), line(timestamp="soon")),
    ],
)
@pytest.mark.usefixtures("in_berlin")
def test_b9_an_entry_is_a_line_that_people_can_read(entry: str, text: str) -> None:
    assert text_of(entry) == text


def test_b9_the_last_lines_as_text_or_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hub.log"
    path.write_text("".join(line(number=number) + "\n" for number in range(5)))
    write_log(path, start="", follow=False, lines=2, as_json=False)
    shown = [text.rpartition(" · ")[2] for text in capsys.readouterr().out.splitlines()]
    assert shown == ["number 3", "number 4"]
    write_log(path, start="", follow=False, lines=1, as_json=True)
    assert json.loads(capsys.readouterr().out) == {**ENTRY, "number": 4}
    write_log(path, start="", follow=False, lines=0, as_json=False)
    assert capsys.readouterr().out == ""


def test_b9_what_comes_later_is_followed_into_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    path.write_text("a\n")
    with path.open() as file:
        assert list(file) == ["a\n"]
        following = later_lines(file, path)
        with path.open("a") as more:
            more.write("b\n")
        assert next(following) == "b\n"
        with path.open("a") as more:
            more.write("c\n")
        path.rename(tmp_path / "hub.log.1")
        path.write_text("d\n")
        assert [next(following), next(following)] == ["c\n", "d\n"]


def test_b9_a_log_that_is_not_there_yet(home: Path, bullpen: Callable[..., Ran]) -> None:
    del home
    hub = bullpen("hub", "logs")
    assert (hub.code, "hint:  bullpen hub start\n" in hub.err) == (4, True)
    director = bullpen("director", "logs", "robo")
    assert (director.code, "hint:  bullpen director start robo\n" in director.err) == (4, True)
