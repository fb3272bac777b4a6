"""What a repository brings: texts for every agent, code only where somebody trusts it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.engines import get_engine
from bullpen.engines.repository import find_code, list_directories, read_texts
from bullpen.engines.trusted import find_untrusted, is_trusted, top_of
from bullpen.home import trust
from bullpen.home.paths import Home
from tests.at_terminal import AtTerminal
from tests.engines.team import made_team

NAMES = (".claude/settings.json", ".mcp.json", ".codex")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    (path / ".git").mkdir(parents=True)
    (path / "a/b").mkdir(parents=True)
    return path


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_e3_code_is_found_from_the_top_down_to_where_the_agent_starts(repo: Path) -> None:
    put(repo / ".mcp.json")
    put(repo / "a/.claude/settings.json")
    put(repo / "a/b/c/.mcp.json")  # below
    put(repo.parent / ".mcp.json")  # above
    (repo / ".codex").mkdir()  # says nothing
    assert find_code(NAMES, repo, repo / "a/b") == ("a/.claude/settings.json", ".mcp.json")
    assert find_code(NAMES, repo, repo) == (".mcp.json",)
    put(repo / ".codex/hooks.json")
    assert ".codex" in find_code(NAMES, repo, repo)
    assert list_directories(repo, repo / "a/b") == (repo, repo / "a", repo / "a/b")
    assert list_directories(repo / "a", repo) == (repo,)


def test_e3_a_link_to_nowhere_may_lead_somewhere_later(repo: Path) -> None:
    (repo / ".mcp.json").symlink_to("/nowhere")
    assert find_code(NAMES, repo, repo) == (".mcp.json",)


def test_e7_texts_are_read_outermost_first_and_never_from_outside(repo: Path) -> None:
    put(repo / "CLAUDE.md", "of the top\n")
    (repo / "AGENTS.md").symlink_to("CLAUDE.md")
    put(repo / "a/AGENTS.override.md", "instead")
    put(repo / "a/AGENTS.md", "left out")
    put(repo.parent / "secret", "not yours")
    (repo / "a/b/AGENTS.md").symlink_to(repo.parent / "secret")
    names = ("AGENTS.override.md", "AGENTS.md")
    assert read_texts(names, repo, repo / "a/b") == "of the top\n\ninstead"


@pytest.mark.parametrize("what", ["pipe", "loop", "directory"])
def test_e7_what_is_no_file_is_no_text(repo: Path, what: str) -> None:
    path = repo / "AGENTS.md"
    make: dict[str, Callable[[], None]] = {
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path),
        "directory": path.mkdir,
    }
    make[what]()
    assert read_texts(("AGENTS.md",), repo, repo) == ""


def accept_claude(person: Path, repo: Path) -> None:
    put(person / ".claude.json", json.dumps({"projects": {str(repo): ACCEPTED}}))


def accept_codex(person: Path, repo: Path) -> None:
    put(person / ".codex/config.toml", f'[projects."{repo}"]\ntrust_level = "trusted"\n')


def accept_gemini(person: Path, repo: Path) -> None:
    put(person / ".gemini/trustedFolders.json", json.dumps({str(repo): "TRUST_FOLDER"}))


ACCEPTED = {"hasTrustDialogAccepted": True}
ACCEPTING = {"claude": accept_claude, "codex": accept_codex, "gemini": accept_gemini}
CODE = {"claude": ".mcp.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}


@pytest.mark.parametrize("name", ACCEPTING)
def test_e3_a_trust_that_the_person_gave_the_program_counts(
    name: str, repo: Path, tmp_path: Path
) -> None:
    engine, home, person = get_engine(name), Home(tmp_path / "home"), tmp_path / "person"
    put(repo / CODE[name])
    given = (engine, home, person, {}, repo)
    assert not is_trusted(*given)
    assert find_untrusted(*given)
    ACCEPTING[name](person, repo.parent)  # wider than a repository: not meant for this one
    assert not is_trusted(*given)
    ACCEPTING[name](person, repo)
    assert is_trusted(*given)
    assert is_trusted(engine, home, person, {}, repo / "a/b")
    assert find_untrusted(*given) == ()


@pytest.mark.parametrize("name", ACCEPTING)
@pytest.mark.parametrize("text", ["", "[", "[]", '{"projects": 3}', "projects = 3\n"])
def test_e3_a_broken_file_of_the_program_trusts_nothing(
    name: str, text: str, repo: Path, tmp_path: Path
) -> None:
    for file in (".claude.json", ".codex/config.toml", ".gemini/trustedFolders.json"):
        put(tmp_path / "person" / file, text)
    home = Home(tmp_path / "home")
    assert not is_trusted(get_engine(name), home, tmp_path / "person", {}, repo)


def test_e3_what_bullpen_accepted_itself_is_no_trust_of_the_persons(
    repo: Path, tmp_path: Path
) -> None:
    from bullpen.engines.claude import config

    person = tmp_path / "person"
    person.mkdir(exist_ok=True)
    config.make_ready(config.Config(None, person / ".claude.json"), str(repo), "")
    given = (get_engine("claude"), Home(tmp_path / "home"), person, {}, repo)
    assert not is_trusted(*given)
    accept_claude(person, repo)
    config.make_ready(config.Config(None, person / ".claude.json"), str(repo), "")
    assert is_trusted(*given)


def test_e3_what_lies_in_the_home_is_in_no_checkout_of_the_persons(repo: Path) -> None:
    home = Home(repo / ".bullpen")
    assert top_of(home, repo / "a") == repo
    assert top_of(home, home.root / "sessions/amy/work") == home.root / "sessions/amy/work"


def test_e3_a_no_is_remembered_until_the_person_says_yes(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    home = Home(tmp_path / "home")
    trust.decline(home, repo)
    assert trust.is_declined(home, repo / "a")
    assert not trust.is_trusted(home, repo)
    trust.add(home, repo)
    assert trust.is_trusted(home, repo)
    assert not trust.is_declined(home, repo)


@pytest.mark.storm
def test_e3_run_asks_once_and_a_detached_one_says_what_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made_team(tmp_path, "standin") as team:
        work = team.claude.work
        put(work / ".claude/settings.json", "{}")
        ran = team.cli("run", "--role", "worker", "--name", "bob", "--detach")
        assert ran.code == 0, ran.err
        assert ran.err == "not used: .claude/settings.json · bullpen trust\n"
        monkeypatch.chdir(work)
        env = {**team.pen.env, "BULLPEN_DIR": str(team.pen.root)}
        words = ("run", "--role", "worker", "--name")
        for name, answer in (("amy", "n\n"), ("eve", "")):
            person = AtTerminal(*words, name, **env)
            if answer:
                person.expect("It runs with your rights. Use it? [y/N]")
                person.type(answer)
            person.expect("not used: .claude/settings.json")
            assert ("Use it?" in person.text) == bool(answer), "it asks once"
            person.expect("❯")  # attached
            person.type("\x1c")  # and detached
            assert person.end() == 0
        assert trust.is_declined(team.pen.home, work)
        assert not trust.is_trusted(team.pen.home, work)
