"""Nothing is trusted by itself; what is, stays listed; a list nobody can believe trusts nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.errors import BullpenError, Kind
from bullpen.home import trust
from bullpen.home.create import create_home, exclude_patterns
from bullpen.home.paths import Home
from tests.at_terminal import AtTerminal
from tests.commands import Ran

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]


@pytest.fixture
def pen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = create_home(tmp_path / "pen")
    monkeypatch.setenv("BULLPEN_DIR", str(home.root))
    return home


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "src" / "deep").mkdir(parents=True)
    return root


def the_list(home: Home) -> Path:
    return home.root / trust.FILE


def test_e3_nothing_is_trusted_by_itself(pen: Home, repo: Path) -> None:
    assert not trust.is_trusted(pen, repo)
    assert not the_list(pen).exists()


def test_e3_trust_covers_what_is_inside_and_nothing_beside(pen: Home, repo: Path) -> None:
    trust.add(pen, repo)
    assert trust.is_trusted(pen, repo)
    assert trust.is_trusted(pen, repo / "src" / "deep")
    assert not trust.is_trusted(pen, repo.parent)
    assert not trust.is_trusted(pen, repo.with_name("shop-evil"))
    assert not trust.is_trusted(pen, repo / ".." / "other")
    assert not trust.is_trusted(pen, repo.with_name("sho"))


def test_e3_links_are_followed_both_ways(pen: Home, repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / "escape").symlink_to(outside)
    way = tmp_path / "way"
    way.symlink_to(repo)
    trust.add(pen, way)
    assert trust.is_trusted(pen, repo)
    assert trust.is_trusted(pen, way / "src")
    assert not trust.is_trusted(pen, repo / "escape")
    # The listed place becomes a link to a stranger's.
    repo.rename(tmp_path / "moved")
    repo.symlink_to(outside)
    assert not trust.is_trusted(pen, repo)
    assert trust.remove(pen, repo) is not None
    assert trust.list_entries(pen) == []


def test_loop_of_links_is_not_trusted(pen: Home, tmp_path: Path, repo: Path) -> None:
    trust.add(pen, repo)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not trust.is_trusted(pen, tmp_path / "loop" / "x")


def test_list_is_private_and_keeps_names_in_other_encodings(pen: Home, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9\n")
    odd.mkdir()
    trust.add(pen, odd)
    assert the_list(pen).stat().st_mode & 0o777 == 0o600
    assert trust.is_trusted(pen, odd)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_list_that_is_open_to_others_trusts_nothing(
    pen: Home, repo: Path, bullpen: Bullpen, mode: int
) -> None:
    trust.add(pen, repo)
    the_list(pen).chmod(mode)
    assert not trust.is_trusted(pen, repo)
    ran = bullpen("trust", "--list")
    assert ran.code == 6
    assert f"is open to others ({mode:04o}): nothing is trusted" in ran.err
    assert f"chmod 600 {the_list(pen)}" in ran.err
    # Adding would make it look right again, with entries that others may have put there.
    assert bullpen("trust", repo / "src").code == 6
    assert the_list(pen).stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_list_of_another_user_trusts_nothing(pen: Home, repo: Path) -> None:
    trust.add(pen, repo)
    os.chown(the_list(pen), 12345, -1)
    assert not trust.is_trusted(pen, repo)
    with pytest.raises(BullpenError, match="belongs to another user"):
        trust.list_entries(pen)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"trusted": ["/"]}',
        '{"trusted": {"/": 1}}',
        '{"trusted": {"shop": "2026-01-01T00:00:00Z"}}',
        '{"trusted": {"/a/../": "2026-01-01T00:00:00Z"}}',
        "[" * 100_000,
        "\udcff",
    ],
)
def test_damaged_list_trusts_nothing_and_is_not_written_over(
    pen: Home, repo: Path, text: str
) -> None:
    raw = os.fsencode(text)
    the_list(pen).touch(0o600)
    the_list(pen).write_bytes(raw)
    assert not trust.is_trusted(pen, repo)
    for act in (trust.list_entries, lambda h: trust.add(h, repo), lambda h: trust.remove(h, repo)):
        with pytest.raises(BullpenError) as caught:
            act(pen)
        assert caught.value.kind is Kind.DENIED
        assert caught.value.hint
    assert the_list(pen).read_bytes() == raw


def test_list_that_is_a_link_a_pipe_or_a_directory_trusts_nothing(
    pen: Home, repo: Path, tmp_path: Path
) -> None:
    trust.add(pen, repo)
    the_list(pen).rename(tmp_path / "elsewhere")
    the_list(pen).symlink_to(tmp_path / "elsewhere")
    assert not trust.is_trusted(pen, repo)
    the_list(pen).unlink()
    os.mkfifo(the_list(pen), 0o600)
    assert not trust.is_trusted(pen, repo)
    the_list(pen).unlink()
    the_list(pen).mkdir(mode=0o700)
    assert not trust.is_trusted(pen, repo)


def test_several_processes_lose_no_entry(pen: Home, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bullpen.home import trust;"
        "from bullpen.home.paths import Home; home = Home(Path(sys.argv[1]));"
        "[trust.add(home, Path(sys.argv[2]) / str(n)) for n in range(15)];"
        "trust.remove(home, Path(sys.argv[2]) / '3')"
    )
    places = [tmp_path / f"p{number}" for number in range(4)]
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(pen.root), str(place)])
        for place in places
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    wanted = {place / str(n) for place in places for n in range(15) if n != 3}
    assert {entry.directory for entry in trust.list_entries(pen)} == wanted
    assert list(pen.root.glob(".trusted*")) == []


# ── the command ──


def test_command_trusts_the_repository_around_and_says_what_that_means(
    pen: Home, repo: Path, bullpen: Bullpen
) -> None:
    (repo / ".claude").mkdir()
    (repo / ".claude" / "settings.json").write_text("{}")
    (repo / ".gemini").mkdir()
    (repo / ".gemini/settings.json").symlink_to("/nowhere")
    (repo / ".mcp.json").write_text("{}")
    ran = bullpen("trust", "--yes", cwd=repo / "src" / "deep")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == f"{repo} is trusted from now on; it was not before"
    assert "run with your rights" in lines[1]
    assert lines[2] == "there now: .claude/settings.json, .mcp.json, .gemini/settings.json"
    assert lines[3] == f"take it back: bullpen trust --remove {repo}"
    assert [entry.directory for entry in trust.list_entries(pen)] == [repo]
    again = bullpen("trust", repo)
    assert again.out.startswith(f"{repo} was trusted already, since 20")
    inside = bullpen("trust", "src", "--json", cwd=repo).json
    assert inside["before"]["directory"] == str(repo)
    assert inside["brings"] == []


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
@pytest.mark.few(1)
def test_e3_what_nobody_named_is_shown_and_asked_for(
    pen: Home, repo: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    (repo / ".mcp.json").write_text("{}")
    monkeypatch.chdir(repo / "src")
    person = AtTerminal("trust")
    person.expect(f"{repo} brings .mcp.json.")
    person.expect("Trust it? [y/N]: ")
    person.type(f"{answer}\n")
    assert person.end() == code
    is_trusted = answer == "y"
    assert [entry.directory for entry in trust.list_entries(pen)] == [repo] * is_trusted
    assert ("is not trusted" in person.text) is not is_trusted
    if is_trusted:  # it is not asked for again
        again = AtTerminal("trust")
        assert again.end() == 0
        assert "was trusted already" in again.text


def test_e3_without_a_terminal_it_is_named(pen: Home, repo: Path, bullpen: Bullpen) -> None:
    ran = bullpen("trust", cwd=repo / "src")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error: {repo} is around here; without a terminal it has to be named\n"
        f"hint:  bullpen trust {repo}, or --yes\n"
    )
    assert trust.list_entries(pen) == []
    assert bullpen("trust", ".", cwd=repo).code == 0


def test_command_in_a_linked_worktree_means_that_worktree(
    pen: Home, repo: Path, bullpen: Bullpen
) -> None:
    (repo / "src" / ".git").write_text("gitdir: /elsewhere\n")
    bullpen("trust", "--yes", cwd=repo / "src" / "deep")
    assert [entry.directory for entry in trust.list_entries(pen)] == [repo / "src"]


def test_command_outside_a_repository_means_the_directory(
    pen: Home, tmp_path: Path, bullpen: Bullpen
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (tmp_path / ".git").mkdir()  # as Codex leaves one in /tmp
    assert bullpen("trust", "--yes", cwd=plain).code == 0
    assert [entry.directory for entry in trust.list_entries(pen)] == [plain]


def test_remove_says_what_still_covers_it(pen: Home, repo: Path, bullpen: Bullpen) -> None:
    bullpen("trust", repo)
    bullpen("trust", repo / "src")
    ran = bullpen("trust", "--remove", repo / "src")
    assert ran.code == 0
    assert f"still trusted, by {repo} · bullpen trust --remove {repo}" in ran.out
    gone = bullpen("trust", "--remove", repo, "--json").json
    assert (gone["trusted"], gone["by"]) == (False, None)
    assert gone["before"]["directory"] == str(repo)
    assert "was not listed" in bullpen("trust", "--remove", repo).out
    assert not trust.is_trusted(pen, repo / "src")


def test_directory_that_is_gone_can_be_removed_but_not_added(
    pen: Home, tmp_path: Path, bullpen: Bullpen
) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    bullpen("trust", place)
    place.rmdir()
    ran = bullpen("trust", place)
    assert (ran.code, ran.err) == (4, f"error: no such directory: {place}\n")
    assert bullpen("trust", "--remove", place).code == 0
    assert trust.list_entries(pen) == []


def test_root_and_home_directory_need_force(pen: Home, tmp_path: Path, bullpen: Bullpen) -> None:
    person = tmp_path / "person"
    for place in ("/", "~", str(person), str(tmp_path), f"{person}/../person"):
        ran = bullpen("trust", place)
        assert ran.code == 6, place
        assert "--force" in ran.err
    assert trust.list_entries(pen) == []
    assert bullpen("trust", person, "--force").code == 0
    assert trust.is_trusted(pen, person / "anything")


def test_directory_that_others_write_to_needs_force(
    pen: Home, repo: Path, bullpen: Bullpen
) -> None:
    repo.chmod(0o777)
    ran = bullpen("trust", repo)
    assert ran.code == 6
    assert f"chmod o-w {repo}" in ran.err
    assert bullpen("trust", repo, "--force").code == 0


def test_directory_of_another_user_needs_force(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.refuse_too_wide(repo, tmp_path / "person")
    if os.geteuid() == 0:
        os.chown(repo, 65534, 65534)
    else:
        another = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: another)
    with pytest.raises(BullpenError, match="can be written by other users") as caught:
        trust.refuse_too_wide(repo, tmp_path / "person")
    assert caught.value.kind is Kind.DENIED


def test_list_of_the_command(pen: Home, repo: Path, bullpen: Bullpen) -> None:
    assert "no directory is trusted" in bullpen("trust", "--list").out
    assert bullpen("trust", "--list", "--json").json["directories"] == []
    trust.add(pen, repo)
    [entry] = bullpen("trust", "--list", "--json").json["directories"]
    assert entry["directory"] == str(repo)
    assert str(repo) in bullpen("trust", "--list").out
    assert bullpen("trust", "--list", repo).code == 2
    assert bullpen("trust", "--list", "--remove").code == 2


def test_trust_belongs_to_one_home_and_is_not_committed(
    pen: Home, repo: Path, tmp_path: Path
) -> None:
    trust.add(pen, repo)
    assert not trust.is_trusted(create_home(tmp_path / "other"), repo)
    assert "/trusted.json" in exclude_patterns("")
    assert json.loads(the_list(pen).read_text())["trusted"].keys() == {str(repo)}
