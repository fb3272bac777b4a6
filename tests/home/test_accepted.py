"""A home that was found by walking up counts only if the person made or accepted it.

The rule is in `hot/known_homes.py`. Without its `is_accepted` the planted homes here are used.
"""

import contextlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bullpen import __version__
from bullpen.errors import BullpenError, Kind
from bullpen.home import accepted
from bullpen.home.create import create_home
from bullpen.home.paths import find_home
from bullpen.hot import find_hub, known_homes
from tests.commands import BULLPEN, Ran
from tests.homes import accept, marked
from tests.terminal.person import Person

Bullpen = Callable[..., Ran]


@pytest.fixture
def person(tmp_path: Path) -> Path:
    return tmp_path / "person"


def planted(root: Path) -> Path:
    """What an agent can write: a current home, with an id."""
    marked(root, __version__)
    (root / ".bullpen-id.txt").write_text("0123456789abcdef\n")
    return root


def is_found(cwd: Path, person: Path) -> bool:
    """By both searches alike."""
    environ = {b"HOME": os.fsencode(person)}
    hot = find_hub.find_home(environ, os.fsencode(cwd)) is not None
    try:
        find_home({}, cwd, person)
    except BullpenError as error:
        assert error.kind is Kind.DENIED, error
        assert not hot
        return False
    assert hot
    return True


def homes_file(person: Path) -> Path:
    return person / ".config/bullpen/homes"


# ── planted ──


def test_h1_a_planted_home_is_refused_and_nothing_of_it_runs(tmp_path: Path) -> None:
    home = planted(tmp_path / "repo/.bullpen")
    proof = tmp_path / "proof"
    (home / "bullpen").mkdir()
    (home / "bullpen/__init__.py").write_text(f"open({str(proof)!r}, 'w')\n")
    done = subprocess.run(
        [BULLPEN, "list"], cwd=home.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 6
    assert f"bullpen init --accept {home}" in done.stderr
    assert not proof.exists()
    left = {path.name for path in home.iterdir()}
    assert left == {".bullpen-dir.txt", ".bullpen-id.txt", "bullpen"}


@pytest.mark.parametrize("place", ["repo/.bullpen", "repo/.bullpen/worktrees/amy/.bullpen"])
@pytest.mark.parametrize("is_guarded", [True, False])
def test_h1_without_the_list_a_planted_home_is_used(
    tmp_path: Path, person: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_guarded: bool
) -> None:
    """That nothing in a home is imported by what starts there is a defence of its own:
    `tests/hot/test_own_python.py`."""
    home = planted(tmp_path / place)
    if not is_guarded:
        monkeypatch.setattr(known_homes, "is_accepted", lambda *_: True)
        monkeypatch.setattr(accepted, "refuse_agents_directory", lambda _: None)
    assert is_found(home.parent, person) != is_guarded


def test_h1_both_searches_refuse_what_is_not_listed_and_find_what_is(
    tmp_path: Path, person: Path
) -> None:
    home = planted(tmp_path / "repo/.bullpen")
    assert not is_found(home.parent, person)
    accept(home, person)
    assert is_found(home.parent, person)
    (home / ".bullpen-id.txt").write_text("fedcba9876543210\n")
    assert not is_found(home.parent, person), "another one at the same path"


def test_h1_bullpen_dir_is_an_explicit_word(tmp_path: Path, bullpen: Bullpen) -> None:
    home = planted(tmp_path / "repo/.bullpen")
    ran = bullpen("version", "--json", cwd=home.parent, BULLPEN_DIR=str(home))
    assert ran.json["home"] == str(home)
    assert "none that you made" in bullpen("version", "--json", cwd=home.parent).json["problem"]


def test_h1_the_persons_own_home_needs_no_list(person: Path) -> None:
    planted(person / ".bullpen")
    (person / "code/deep").mkdir(parents=True)
    assert is_found(person / "code/deep", person)
    assert is_found(person, person)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["worktrees/amy", "worktrees/amy/deep/er", "sessions/amy/work/t1", "projects/clone"]
)
@pytest.mark.parametrize("name", [".bullpen", "."])
def test_h1_where_agents_work_no_home_counts_even_if_it_is_listed(
    tmp_path: Path, person: Path, bullpen: Bullpen, place: str, name: str
) -> None:
    outer = create_home(tmp_path / "repo/.bullpen").root
    cwd = outer / place
    home = planted(cwd / name)
    assert not is_found(cwd, person)
    ran = bullpen("init", "--accept", cwd, cwd=tmp_path)
    assert ran.code == 6
    assert "an agent works in" in ran.err
    listed = homes_file(person)
    listed.write_text(f"{listed.read_text()}0123456789abcdef {home.resolve()}\n")
    assert not is_found(cwd, person)
    ran = bullpen("init", cwd / "new", cwd=tmp_path)
    assert (ran.code, "no home is made in" in ran.err) == (6, True), ran.err
    # Nothing planted: the home around it is found from there.
    (home / ".bullpen-dir.txt").unlink()
    assert is_found(cwd, person)


def test_h1_a_worktree_is_known_by_its_record_wherever_it_lies(
    tmp_path: Path, person: Path
) -> None:
    base = tmp_path / "elsewhere"
    (base / ".records").mkdir(parents=True)
    home = accept(planted(base / "amy/.bullpen"), person)
    assert is_found(home.parent, person)
    (base / ".records/amy.json").write_text("{}")
    assert not is_found(home.parent, person)
    with pytest.raises(BullpenError, match="an agent works in"):
        accepted.accept(home, {}, person)


@pytest.mark.slow
@pytest.mark.parametrize("other", [".bullpen", "code/.bullpen"])
def test_h1_a_home_in_the_directory_of_a_task_cannot_be_accepted(
    tmp_path: Path, person: Path, bullpen: Bullpen, other: str
) -> None:
    """A task of another home worked in the repository itself."""
    home = planted(tmp_path / "repo/deep/.bullpen")
    database = create_home(person / other).root / "state.db"
    with contextlib.closing(sqlite3.connect(database)) as made:
        made.execute("CREATE TABLE task_sessions (id TEXT PRIMARY KEY, data TEXT NOT NULL)")
        data = json.dumps({"directory": str(tmp_path / "repo")})
        made.execute("INSERT INTO task_sessions VALUES ('s', ?)", (data,))
        made.commit()
    assert not is_found(home.parent, person)
    ran = bullpen("init", "--accept", home, cwd=tmp_path)
    assert ran.code == 6
    assert f"worked in {tmp_path / 'repo'}, and may" in ran.err
    assert f"BULLPEN_DIR={home} bullpen init --accept {home}" in ran.err
    assert not is_found(home.parent, person)
    for named in (tmp_path / "repo", home):
        ran = bullpen("init", "--accept", home, cwd=tmp_path, BULLPEN_DIR=str(named))
        assert (ran.code == 0) == (named == home) == is_found(home.parent, person)
    # It is known by the directory: another one is only unknown.
    other_home = planted(tmp_path / "repo2/.bullpen")
    assert bullpen("init", "--accept", other_home, cwd=tmp_path).code == 0
    # A home that the person made stays theirs: no sandbox of another home shows it.
    mine = create_home(tmp_path / "repo/mine").root
    assert is_found(mine, person)


def test_h1_a_link_in_a_worktree_leads_to_no_home(tmp_path: Path, person: Path) -> None:
    outer, other = (create_home(tmp_path / name).root for name in ("outer", "other"))
    worktree = outer / "worktrees/amy"
    worktree.mkdir()
    (worktree / ".bullpen").symlink_to(other)
    assert not is_found(worktree, person)


def test_h1_a_link_to_a_listed_home_is_that_home(tmp_path: Path, person: Path) -> None:
    home = create_home(tmp_path / "home").root
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/.bullpen").symlink_to(home)
    assert find_home({}, tmp_path / "repo", person).root == home


# ── accepted ──


@pytest.mark.slow
def test_h1_the_command_that_is_named_accepts_it(tmp_path: Path, bullpen: Bullpen) -> None:
    home = planted(tmp_path / "my repo/.bullpen")
    refused = bullpen("role", "list", cwd=home.parent)
    assert refused.code == 6
    _, command = refused.err.strip().split("if it is yours: bullpen ")
    ran = bullpen(*shlex.split(command), cwd=tmp_path)
    assert (ran.code, ran.out) == (0, f"Accepted: {home}\n")
    assert bullpen("role", "list", cwd=home.parent).code == 0
    again = bullpen("init", "--accept", "--json", cwd=home.parent)
    assert again.json == {"home": str(home), "accepted": False}
    nothing = bullpen("init", "--accept", cwd=tmp_path)
    assert (nothing.code, "there is no home" in nothing.err) == (4, True)
    exists = bullpen("init", cwd=home.parent)
    assert (exists.code, "bullpen doctor" in exists.err) == (5, True)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_h1_a_person_at_a_terminal_is_asked_once(tmp_path: Path, answer: str) -> None:
    home = planted(tmp_path / "repo/.bullpen")
    words = ["env", "-C", str(home.parent), str(BULLPEN), "role", "list"]
    asked = Person(words, dict(os.environ), (24, 200), None)
    asked.wait_for(b"Is it yours? [y/N]:")
    asked.type(answer.encode() + b"\n")
    assert asked.wait() == (0 if answer == "y" else 6)
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == (0 if answer == "y" else 6)


# ── the list ──


def test_h1_init_notes_the_home_for_nobody_elses_eyes(
    tmp_path: Path, person: Path, bullpen: Bullpen
) -> None:
    old = os.umask(0)
    try:
        assert bullpen("init", cwd=tmp_path).code == 0
    finally:
        os.umask(old)
    listed = homes_file(person)
    assert (listed.stat().st_mode & 0o777, listed.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    home = tmp_path / ".bullpen"
    home_id = (home / ".bullpen-id.txt").read_text().strip()
    assert listed.read_text() == f"{home_id} {home}\n"


def test_h1_many_inits_at_once_lose_nothing(tmp_path: Path, person: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda number: create_home(tmp_path / f"h{number}").root, range(16)))
    assert set(accepted.read(homes_file(person))) == made


@pytest.mark.parametrize("name", ["a b", "back\\slash", "back\\new", "line\nbreak", "\udcff", "é"])
def test_h1_any_name_can_be_listed(tmp_path: Path, person: Path, name: str) -> None:
    home = create_home(tmp_path / name).root
    other = create_home(tmp_path / "other").root
    assert set(accepted.read(homes_file(person))) == {home, other}
    assert is_found(home, person)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_h1_a_list_that_others_can_write_accepts_nothing(
    tmp_path: Path, person: Path, mode: int
) -> None:
    home = create_home(tmp_path / "home").root
    homes_file(person).chmod(mode)
    assert not is_found(home, person)
    with pytest.raises(BullpenError, match="can be written by others") as caught:
        create_home(tmp_path / "another")
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize("text", ["", "\n\n", "0123456789abcdef", "/repo\n", "\0\xff\n"])
def test_h1_a_damaged_list_accepts_nothing_and_is_written_anew(
    tmp_path: Path, person: Path, text: str
) -> None:
    listed = homes_file(person)
    listed.parent.mkdir(parents=True)
    listed.write_text(text)
    listed.chmod(0o600)
    home = planted(tmp_path / "repo/.bullpen")
    assert not is_found(home.parent, person)
    accept(home, person)
    assert is_found(home.parent, person)


@pytest.mark.parametrize("text", ["", "0123\n", "0123456789abcde\n", "0123456789abcdef x\n"])
def test_h1_a_home_without_an_id_is_not_accepted(tmp_path: Path, person: Path, text: str) -> None:
    home = accept(planted(tmp_path / "repo/.bullpen"), person)
    (home / ".bullpen-id.txt").write_text(text)
    assert not is_found(home.parent, person)


def test_h1_a_configuration_that_cannot_be_written_is_said(tmp_path: Path, person: Path) -> None:
    (person / ".config").write_text("a file is in the way")
    with pytest.raises(BullpenError, match="cannot note the home") as caught:
        create_home(tmp_path / "home")
    assert "XDG_CONFIG_HOME" in caught.value.hint
    assert not (tmp_path / "home/.bullpen-dir.txt").exists()


# ── moved and copied ──


def test_h1_a_moved_home_says_where_it_was(tmp_path: Path, person: Path) -> None:
    before = create_home(tmp_path / "before").root
    home_id = (before / ".bullpen-id.txt").read_text()
    after = before.rename(tmp_path / "after")
    with pytest.raises(BullpenError) as caught:
        find_home({}, after, person)
    assert f"the home {after} was at {before}" in caught.value.message
    assert accepted.accept(after, {}, person)
    assert is_found(after, person)
    assert (after / ".bullpen-id.txt").read_text() == home_id


def test_h8_a_copied_home_says_so_and_gets_an_id_of_its_own(tmp_path: Path, person: Path) -> None:
    original = create_home(tmp_path / "original").root
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    with pytest.raises(BullpenError) as caught:
        find_home({}, copy, person)
    assert f"{copy} is a copy of the home {original}" in caught.value.message
    assert accepted.accept(copy, {}, person)
    ids = {find_home({}, root, person).id for root in (original, copy)}
    assert len(ids) == 2
