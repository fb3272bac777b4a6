"""`bullpen worktree list` by the hub: the same as the command prints without one."""

import json
import os
import re
from pathlib import Path

import pytest

from bullpen.client import worktrees as calls
from bullpen.client.hub import Hub
from bullpen.home.paths import HUB
from bullpen.hot import fast
from bullpen.model.worktree_shown import BrokenWorktree, WorktreeShown
from tests.hub.http.agents import start_agent, token_of
from tests.hub.pen import Pen
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow


@pytest.fixture
def repo(pen: Pen) -> Path:
    """With a worktree in every state."""
    repo = make_repo(pen.root.parent / "repo")
    made = pen.cli("worktree", "create", "amy", "bob", "cat", "dan", cwd=repo)
    assert made.code == 0, made.err
    base = pen.home.worktrees
    commit(base / "amy", "new.txt")
    (base / "bob" / "\x1b]0;owned\x07").write_text("x")
    (base / "bob" / os.fsdecode(b"\xff")).write_text("x")
    (base / "cat" / ".git").unlink()
    git(repo, "worktree", "lock", "--reason", "mine", str(base / "dan"))
    return repo


def by_hub(
    pen: Pen, capfdbinary: pytest.CaptureFixture[bytes], *words: str, **env: str
) -> bytes | None:
    """What the hub's answer is, if it was taken."""
    given = {**pen.env, "BULLPEN_DIR": str(pen.root), **env}
    environ = {name.encode(): value.encode() for name, value in given.items()}
    code = fast.run(["worktree", "list", *words], environ)
    out, err = capfdbinary.readouterr()
    assert err == b"" and code in (0, None)
    return out if code == 0 else None


def without_ages(text: str) -> list[str]:
    return [re.sub(r" +\d+[smh]$", "", line) for line in text.splitlines()]


@pytest.mark.storm
def test_w16_the_list_is_the_same_with_a_hub_and_without(
    pen: Pen, repo: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = repo / "inner"
    inner.mkdir()
    # Neither the command nor the hub stands in the repository.
    text, fields = (
        pen.cli("worktree", "list", "--repo", repo, *words) for words in ([], ["--json"])
    )
    assert (text.code, text.err, fields.code) == (0, "", 0)
    assert by_hub(pen, capfdbinary, "--repo", str(repo)) is None  # there is none yet
    pen.start()
    found = by_hub(pen, capfdbinary, "--repo", str(repo))
    assert found is not None and without_ages(found.decode()) == without_ages(text.out)
    listed = by_hub(pen, capfdbinary, "--repo", str(repo), "--json")
    assert listed is not None and json.loads(listed) == fields.json
    assert "clean, unmerged" in text.out and "dirty (2 files)" in text.out
    assert "broken: " in text.out and "locked: mine" in text.out
    monkeypatch.chdir(inner)
    for words in ([], ["--repo", ".."], ["--repo=."]):
        again = by_hub(pen, capfdbinary, *words)
        assert again is not None and without_ages(again.decode()) == without_ages(text.out)


def test_w16_programs_get_the_list_with_times_as_numbers(pen: Pen, repo: Path) -> None:
    pen.start()
    listed = Hub(pen.home, start=False).do(calls.list_worktrees(str(repo)))
    amy, bob, cat, dan = listed.worktrees
    assert isinstance(amy, WorktreeShown) and isinstance(bob, WorktreeShown)
    assert (amy.name, amy.ahead, amy.created_at is not None) == ("amy", 1, True)
    assert bob.changes == ("\x1b]0;owned\x07", "?")
    assert isinstance(cat, BrokenWorktree) and "no valid worktree" in cat.error
    assert isinstance(dan, WorktreeShown) and dan.locked == "mine"
    assert listed.not_brought_over == {}


def test_w12_what_agents_have_where_worktrees_were_made_before_is_listed_and_found_by_name(
    pen: Pen, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    repo = make_repo(pen.root.parent / "repo")
    write_role(pen, "worker", list(SLEEP), "worktree: {enabled: true}")
    assert pen.cli("run", "--role", "worker", "--name", "amy", cwd=repo).code == 0
    assert pen.cli("worktree", "create", "bob", cwd=repo).code == 0
    (pen.root / "config.yaml").write_text("worktrees: {base: trees}\n")
    assert pen.cli("worktree", "create", "new", cwd=repo).code == 0
    found = {"new": pen.root / "trees", "amy": pen.home.worktrees, "bob": pen.home.worktrees}

    def listed(text: bytes) -> dict[str, Path]:
        return {each["name"]: Path(each["path"]).parent for each in json.loads(text)["worktrees"]}

    words = ("--repo", str(repo), "--json")

    def by_hub_now() -> bytes:
        return by_hub(pen, capfdbinary, *words) or b'{"worktrees": []}'

    wait_until(lambda: listed(by_hub_now()) == found)  # it has noticed the change
    assert pen.cli("hub", "stop").code == 0  # agents go on
    assert listed(pen.cli("worktree", "list", *words).out.encode()) == found
    info = pen.cli("worktree", "info", "amy", "--json")
    assert (info.code, info.json["path"]) == (0, str(pen.home.worktrees / "amy"))
    refused = pen.cli("worktree", "remove", "amy")
    assert (refused.code, "amy is in use" in refused.err) == (5, True)


def test_w16_what_is_no_repository_is_told_by_the_command(
    pen: Pen, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pen.start()
    place = str(pen.root.parent)
    assert by_hub(pen, capfdbinary, "--repo", place) is None
    ran = pen.cli("worktree", "list", "--repo", place)
    assert ran.code != 0 and "not a git repository" in ran.err
    for directory in ("relative", "", "/a%00b"):
        assert pen.ask("GET", f"/worktrees?repo={directory}")[0] == 400


def test_n2_an_agent_is_not_told_what_worktrees_there_are(
    pen: Pen, repo: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pen.start()
    start_agent(pen.home.socket(HUB), pen, "eve")
    token = token_of(pen.home, "eve")
    assert pen.ask("GET", f"/worktrees?repo={repo}", token=token)[0] == 403
    assert by_hub(pen, capfdbinary, "--repo", str(repo), BULLPEN_TOKEN=token) is None
