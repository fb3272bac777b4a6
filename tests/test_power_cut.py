"""What is acknowledged is on the disk, and what has a name there is whole: for every writer."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen.files import create_once, write_atomically
from bullpen.holder import records
from bullpen.home import create as homes
from bullpen.home import credentials, marker, trust
from bullpen.home.agent_files import write_agent_file
from bullpen.home.paths import Home, make_directories
from bullpen.hub.agents import sessions, tokens
from bullpen.hub.agents.rules import add_rule
from bullpen.hub.agents.sessions import LaunchEnv
from bullpen.hub.store import database
from bullpen.hub.tasks import run_plan
from bullpen.model.agent import Agent
from bullpen.worktrees import Site, journal, open_site
from bullpen.worktrees.journal import Making
from bullpen.worktrees.repo_lock import locked
from tests.power_cut import Disk
from tests.worktrees.repos import make_repo

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="what a descriptor is of is asked of /proc"
)


@pytest.fixture
def pen(tmp_path: Path) -> Home:
    root = tmp_path / "pen"
    root.mkdir()
    make_directories(root)
    (root / "sessions/amy").mkdir()
    (root / "roles/coder.yaml").write_text("description: writes\n")
    return Home(root)


@pytest.fixture
def disk(pen: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk(pen.root, monkeypatch)
    yield found
    found.close()


def agent(run: str = "r1", name: str = "bob") -> Agent:
    return Agent(name=name, run=run, cwd="/work", command=("x",), created="now")


def over(pen: Home) -> None:
    write_atomically(pen.root / "a", "before\n")
    write_atomically(pen.root / "a", "after\n")


def mark_old(pen: Home) -> None:
    marker.create(pen.root, "0.0.1")
    marker.bring_up_to_date(pen.root, [])


def start_again(pen: Home) -> None:
    sessions.create(pen, agent(), LaunchEnv({}))
    sessions.rewrite(pen, agent("r2"), LaunchEnv({"a": "b"}))


def start_and_set_aside(pen: Home) -> None:
    sessions.create(pen, agent(), LaunchEnv({}))
    sessions.set_aside(pen, "bob", "k")


def set_an_old_one_aside(pen: Home) -> None:
    write_atomically(pen.session("amy") / "session.json", "{}")
    sessions.set_aside(pen, "amy", "k")


def start_again_and_take_back(pen: Home) -> None:
    start_and_set_aside(pen)
    sessions.rewrite(pen, agent("r2"), LaunchEnv({"a": "b"}))
    sessions.take_back(pen, "bob", "r2", "k")


BOB = ("sessions/bob/session.json", "sessions/bob/private/env")
ASIDE = "sessions/bob/private/before-k"
WRITERS: dict[str, tuple[Callable[[Home], object], tuple[str, ...]]] = {
    "a new file": (lambda pen: write_atomically(pen.root / "a", "x" * 70_000), ("a",)),
    "a file over another": (over, ("a",)),
    "a file that is made once": (lambda pen: create_once(pen.root / "a", b"x" * 70_000), ("a",)),
    "a home": (lambda pen: homes.create_home(pen.root), (marker.MARKER, marker.ID)),
    "a home's version": (mark_old, (marker.MARKER,)),
    "a credential": (
        lambda pen: credentials.store(pen, "claude-token", b"secret-1"),
        ("credentials/claude-token",),
    ),
    "the owner's token": (tokens.owner_token, ("credentials/api-token",)),
    "the list of trust": (lambda pen: trust.add(pen, pen.root), (trust.FILE,)),
    "an agent's file": (
        lambda pen: write_agent_file(pen, "amy", {"role": "coder"}),
        ("agents/amy.yaml",),
    ),
    "a rule": (lambda pen: add_rule(pen.session("amy"), "Read"), ("sessions/amy/rules.json",)),
    "an engine's file": (
        lambda pen: sessions.write_files(pen, "amy", {"settings.json": "{}"}),
        ("sessions/amy/settings.json",),
    ),
    "a task's variables": (
        lambda pen: run_plan.keep_variables(pen, "t1", {"A": "b"}),
        (f"{run_plan.VARIABLES}/t1",),
    ),
    "a session": (lambda pen: sessions.create(pen, agent(), LaunchEnv({"a": "b"})), BOB),
    "a session's next run": (start_again, BOB),
    "a session set aside": (
        start_and_set_aside,
        (f"{ASIDE}/session.json", f"{ASIDE}/private/env", *BOB),
    ),
    "a session of an older version set aside": (
        set_an_old_one_aside,
        ("sessions/amy/private/before-k/session.json",),
    ),
    "a session taken back": (start_again_and_take_back, BOB),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_written_survives_a_power_cut(pen: Home, disk: Disk, writer: str) -> None:
    write, names = WRITERS[writer]
    write(pen)
    for name in names:
        assert (pen.root / name).stat().st_size
        assert disk.left(pen.root / name) == (pen.root / name).read_bytes(), name
    assert disk.hollow == []


def test_a_credential_that_was_cleared_does_not_come_back(pen: Home, disk: Disk) -> None:
    credentials.store(pen, "claude-token", b"secret-1")
    assert credentials.clear(pen, "claude-token")
    assert disk.left(pen.credentials / "claude-token") is None


def test_how_a_run_ended_is_never_half_a_file(pen: Home, disk: Disk) -> None:
    session = pen.session("amy")
    records.write_exit(str(session), records.exit_record(0, "t", 0.0, b"bye"))
    assert disk.hollow == []
    found = (session / records.EXIT).stat()
    assert (session / records.EXIT).read_bytes() == disk.files[found.st_dev, found.st_ino]
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_new_database_is_there_after_a_power_cut(pen: Home, disk: Disk) -> None:
    """Its contents are SQLite's to flush, by calls that are not Python's."""
    database.open_database(pen.root / "state.db").close()
    names = disk.directories[_key(pen.root)]
    assert names["state.db"] == _key(pen.root / "state.db")


def test_an_intent_is_on_disk_before_it_is_carried_out_and_gone_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site: Site = open_site(make_repo(tmp_path / "repo", 1), tmp_path / "base")
    disk = Disk(site.repo.common_dir, monkeypatch)
    with (
        locked(site.repo) as lock,
        journal.announced(site.repo, Making(str(site.base), ()), lock) as entry,
    ):
        assert disk.left(entry.file) == entry.file.read_bytes() != b""
        journal.withdraw(entry)
        assert disk.left(entry.file) is None
    assert disk.hollow == []
    disk.close()


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
