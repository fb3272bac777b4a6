"""A scheduler's file (D1): checked with line and key, changed with what a person wrote kept."""

from pathlib import Path

import pytest

from bullpen.directors.config import check_director_document
from bullpen.directors.scheduler.config import STARTER, Entry, SchedulerConfig
from bullpen.directors.scheduler.file import ScheduleFile
from bullpen.errors import BullpenError
from bullpen.home.paths import Home, make_directories
from bullpen.home.yamlfile import parse
from tests.hub.pen import made_pen

FILE = """\
# Mine.
type: scheduler
port: 9150   # behind the proxy
schedule:
  # every night
  - name: tidy
    cron: 30 2 * * *
    prompt: "Tidy up."
    role: coder
  - name: count   # of lines
    cron: "@daily"
    prompt: Count.
# The end.
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    make_directories(tmp_path)
    return Home(tmp_path)


@pytest.fixture
def file(home: Home) -> ScheduleFile:
    path = home.directors / "nightly.yaml"
    path.write_text(FILE)
    made = ScheduleFile(home, path)
    made.look()
    return made


def test_d1_an_entry_is_added_at_the_end_and_the_rest_stays(file: ScheduleFile) -> None:
    file.add({"name": "new", "cron": "@hourly", "prompt": "Go.", "timeout": "20m"})
    text = file.path.read_text()
    assert list(file.entries) == ["tidy", "count", "new"]
    for line in FILE.splitlines():
        assert line.strip() in text
    assert "timeout: 20m" in text


@pytest.mark.slow
def test_d1_a_directory_is_meant_as_seen_from_where_it_is_added(tmp_path: Path) -> None:
    """The scheduler stands elsewhere: a relative path would fail at every run."""
    shop = tmp_path / "shop"
    shop.mkdir()
    with made_pen() as pen:
        (pen.home.directors / "nightly.yaml").write_text("type: scheduler\nschedule: []\n")
        entry = ["schedule", "add", "tests", "@daily", "Run the tests.", "--role", "coder"]
        ran = pen.cli(*entry, "--workdir", ".", "--json", cwd=shop)
        assert ran.json["workdir"] == str(shop.resolve())


def test_d1_an_entry_is_removed_and_the_rest_stays(file: ScheduleFile) -> None:
    file.remove("count")
    assert list(file.entries) == ["tidy"]
    for line in ("# Mine.", "# The end.", "port: 9150   # behind the proxy", "  # every night"):
        assert line in file.path.read_text()
    file.remove("tidy")
    file.add({"name": "new", "cron": "@hourly", "prompt": "Go."})
    assert list(file.entries) == ["new"]


def test_d1_the_whole_schedule_is_replaced(file: ScheduleFile) -> None:
    tidy = {"name": "tidy", "cron": "30 2 * * *", "prompt": "Tidy up.", "role": "coder"}
    file.replace([{"name": "a", "cron": "@daily", "prompt": "A."}, tidy])
    assert list(file.entries) == ["a", "tidy"]
    assert 'prompt: "Tidy up."' in file.path.read_text()  # as it was written


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "tidy", "cron": "@daily", "prompt": "x"}, "tidy is there already"),
        ({"name": "x", "cron": "@every 5m", "prompt": "x"}, "cron: @every is not known"),
        ({"name": "x", "cron": "@daily"}, "prompt: is required"),
        ({"name": "a b", "cron": "@daily", "prompt": "x"}, "name: "),
        ({"name": "x", "cron": "@daily", "prompt": "x", "timezone": "Mars"}, "timezone: "),
        ({"name": "x", "cron": "@daily", "prompt": "x", "agent": "a", "role": "b"}, "no role"),
        ({"name": "x", "cron": "@daily", "prompt": "x", "promt": "y"}, "did you mean prompt"),
    ],
)
def test_d1_a_wrong_entry_changes_nothing(
    file: ScheduleFile, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(BullpenError, match=message):
        file.add(fields)
    assert file.path.read_text() == FILE
    with pytest.raises(BullpenError):
        file.replace([{"name": "ok", "cron": "@daily", "prompt": "x"}, {**fields, "cron": "x"}])
    assert file.path.read_text() == FILE


def test_d1_a_file_with_errors_leaves_the_schedule_of_before(file: ScheduleFile) -> None:
    file.path.write_text(FILE.replace("30 2 * * *", "30 25 * * *"))
    assert file.look()
    assert list(file.entries) == ["tidy", "count"]
    assert file.problem.startswith('line 7: schedule.0.cron "30 25 * * *": bad hour')
    assert not file.look()  # it has not changed since
    file.path.write_text(FILE.replace("tidy", "neat"))
    file.look()
    assert (list(file.entries), file.problem) == (["neat", "count"], "")
    file.path.unlink()
    file.look()
    assert list(file.entries) == ["neat", "count"]
    assert file.problem


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("schedule: []\n", "type", "is required · one of "),
        ("type: schedular\n", "type", "did you mean scheduler?"),
        ("type: scheduler\nname: other\n", "name", '"other" is not the name of the file'),
        ("type: scheduler\nautostart: maybe\n", "autostart", "neither true nor false"),
        ("type: scheduler\ndiscovery: {method: magic}\n", "discovery.method", "scan, mdns"),
        ("type: scheduler\nschedule: {}\n", "schedule", "is no list"),
        (
            "type: scheduler\nschedule:\n"
            "  - {name: a, cron: '@daily', prompt: x}\n  - {name: a, cron: '@daily', prompt: y}\n",
            "schedule",
            "two entries are called a",
        ),
    ],
)
def test_a_directors_file_is_checked_with_line_and_key(
    home: Home, text: str, key: str, message: str
) -> None:
    _, problems = check_director_document(parse(home.directors / "nightly.yaml", text), home)
    assert [(one.key, message in one.message) for one in problems] == [(key, True)]


def test_a_key_that_is_there_twice_is_the_only_error(home: Home) -> None:
    text = "type: github\nrepo: acme/shop\nrole: coder\nport: 9150\nport: 9151\n"
    _, problems = check_director_document(parse(home.directors / "robo.yaml", text), home)
    assert [(one.line, one.key, one.message) for one in problems] == [
        (5, "port", "is there twice · first in line 4")
    ]
    _, problems = check_director_document(parse(home.directors / "a.yaml", "a: 1\na: 2\n"), home)
    assert [one.key for one in problems] == ["a", "type"]


def test_two_files_cannot_have_one_port(home: Home, file: ScheduleFile) -> None:
    other = home.directors / "other.yaml"
    _, problems = check_director_document(parse(other, "type: scheduler\nport: 9150\n"), home)
    assert [one.message for one in problems] == [
        "9150 is the port of directors/nightly.yaml already · choose another"
    ]


def test_the_starter_file_names_every_key_and_is_right(home: Home) -> None:
    config, problems = check_director_document(parse(home.directors / "x.yaml", STARTER), home)
    assert (problems, isinstance(config, SchedulerConfig)) == ([], True)
    for key in (*SchedulerConfig.key_names(), *Entry.key_names()):
        assert f"{key}:" in STARTER, key
    whole = STARTER.replace("schedule: []\n", "")
    uncommented = "\n".join(
        line.removeprefix("# ") if ": " in line or line.endswith(":") else line
        for line in whole.splitlines()
        if "bullpen" not in line or "autostart" in line
    ).replace("name: nightly ", "name: x ")
    _, problems = check_director_document(parse(home.directors / "x.yaml", uncommented), home)
    assert problems == []
