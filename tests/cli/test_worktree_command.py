"""`bullpen worktree …` as people and scripts meet it: output, JSON, exit codes, next steps."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Ran
from tests.waiting import wait_until
from tests.worktrees.repos import commit, git, make_repo

pytestmark = pytest.mark.slow  # a process for every line

Bullpen = Callable[..., Ran]
VERBS = ("list", "create", "remove", "restore", "lock", "unlock", "info", "conflicts", "cleanup")


@pytest.fixture
def repo(tmp_path: Path, bullpen: Bullpen) -> Path:
    """A repository with a home beside its files."""
    path = make_repo(tmp_path / "shop")
    made = bullpen("init", cwd=path)
    assert made.code == 0, made.err
    return path


@pytest.fixture
def run(bullpen: Bullpen, repo: Path) -> Bullpen:
    def call(*words: str | Path, cwd: Path = repo, **env: str) -> Ran:
        return bullpen("worktree", *words, cwd=cwd, **env)

    return call


@pytest.fixture
def base(repo: Path) -> Path:
    return repo / ".bullpen" / "worktrees"


def ok(ran: Ran) -> Ran:
    assert (ran.code, ran.err) == (0, ""), ran
    return ran


def refused(ran: Ran, code: int, message: str, hint: str) -> None:
    """The exit code, one `error:` line, and what to do about it."""
    assert ran.code == code, ran
    assert ran.out == ""
    assert re.search(rf"^error: .*{message}", ran.err), ran.err
    assert re.search(rf"^hint:  .*{hint}", ran.err, re.MULTILINE), ran.err
    assert "Traceback" not in ran.err


def branches(repo: Path) -> set[str]:
    return set(git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").split("\n"))


# ── list ─────────────────────────────────────────────────────────────────────


def test_w16_list_says_how_to_begin(run: Bullpen) -> None:
    assert ok(run("list")).out == "no worktrees · bullpen worktree create NAME makes one\n"
    assert ok(run("list", "--json")).json["worktrees"] == []


def test_w16_list(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy", "old-spike", "held"))
    ok(run("create", "head", "--detach"))
    for number in range(3):
        commit(base / "amy", f"work {number}.txt")
    for number in range(4):
        (base / "old-spike" / f"new {number}").write_text("x")
    ok(run("lock", "held", "--reason", "mine"))
    lines = ok(run("list")).out.splitlines()
    assert re.split(r"  +", lines[0]) == ["NAME", "BRANCH", "STATE", "AHEAD", "BEHIND", "AGE"]
    rows = {line.split()[0]: re.split(r"  +", line) for line in lines[1:]}
    assert rows["amy"][1:4] == ["amy", "clean, unmerged", "3"]
    assert rows["old-spike"][1:4] == ["old-spike", "dirty (4 files)", "0"]
    assert rows["held"][2] == "clean, locked: mine"
    assert re.fullmatch(r"\([0-9a-f]{10}\)", rows["head"][1])
    assert re.fullmatch(r"\d+[sm]", rows["amy"][5])


def test_w16_list_as_json(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy", "--role", "coder"))
    (base / "amy" / "new").write_text("x")
    [entry] = ok(run("list", "--json")).json["worktrees"]
    assert (entry["name"], entry["branch"], entry["role"]) == ("amy", "amy", "coder")
    assert (entry["path"], entry["changes"]) == (str(base / "amy"), ["new"])
    assert (entry["ahead"], entry["behind"], entry["locked"]) == (0, 0, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["created_at"])


def test_w16_one_broken_worktree_does_not_hide_the_others(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy", "bob"))
    (base / "amy" / ".git").unlink()
    out = ok(run("list")).out
    assert re.search(r"^amy +broken: ", out, re.MULTILINE)
    assert re.search(r"^bob +bob +clean", out, re.MULTILINE)
    found = {entry["name"]: entry for entry in ok(run("list", "--json")).json["worktrees"]}
    assert "error" in found["amy"] and found["bob"]["branch"] == "bob"


def test_w16_escape_sequences_in_names_do_not_reach_the_terminal(
    run: Bullpen, repo: Path, base: Path
) -> None:
    evil = "\x1b]0;owned\x07.txt"
    ok(run("create", "amy"))
    (base / "amy" / evil).write_text("x")
    for words in (("list",), ("info", "amy"), ("remove", "amy")):
        ran = run(*words)
        assert "\x1b" not in ran.out + ran.err and "\x07" not in ran.out + ran.err
    assert "\\x1b]0;owned" in run("info", "amy").out
    commit(repo, evil, "theirs\n")
    git(base / "amy", "add", "-A")
    git(base / "amy", "commit", "-qm", "Evil")
    ran = run("conflicts", "amy", "main")
    assert "\\x1b]0;owned" in ran.out and "\x1b" not in ran.out


# ── create ───────────────────────────────────────────────────────────────────


def test_w16_create(run: Bullpen, repo: Path, base: Path) -> None:
    out = ok(run("create", "amy")).out
    assert out == f"amy · {base}/amy on branch amy\n"
    assert git(base / "amy", "symbolic-ref", "HEAD") == "refs/heads/amy"
    assert git(repo, "status", "--porcelain") == ""  # the home is not in the way


def test_w16_create_with_everything(run: Bullpen, repo: Path, base: Path) -> None:
    old = git(repo, "rev-parse", "HEAD")
    commit(repo, "newer.txt")
    (repo / ".env").write_text("secret")
    words = ("--from", old, "--branch", "task/1", "--copy", ".env", "--setup", "echo hi > said")
    ok(run("create", "amy", *words))
    path = base / "amy"
    assert git(path, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD").split("\n") == [
        *(old, "refs/heads/task/1")
    ]
    assert (path / ".env").read_text() == "secret" and (path / "said").read_text() == "hi\n"


def test_w16_create_as_json(run: Bullpen, base: Path) -> None:
    made = ok(run("create", "amy", "bob", "--json")).json["worktrees"]
    assert made == [
        {"name": name, "path": str(base / name), "branch": name} for name in ("amy", "bob")
    ]
    [made] = ok(run("create", "cat", "--detach", "--json")).json["worktrees"]
    assert made["branch"] == ""
    assert "detached" in ok(run("create", "dan", "--detach")).out


def test_w3_w16_create_for_a_session(run: Bullpen, repo: Path) -> None:
    (repo / ".bullpen" / "config.yaml").write_text("worktrees: {branch_prefix: team}\n")
    made = ok(run("create", "amy", "--session", "17", "--json")).json["worktrees"]
    made += ok(run("create", "bob", "--role", "coder", "--session", "17", "--json")).json[
        "worktrees"
    ]
    assert [each["branch"] for each in made] == ["team/amy-17", "team/coder-17"]
    refused(run("create", "cat", "--session", ""), 2, "needs a session id", "a word or a number")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (("amy",), 5, "worktree amy exists already", "bullpen worktree remove amy"),
        (("main",), 5, "branch main exists already", "name · --from BRANCH begins at one"),
        (("bob", "--from", "nothing"), 4, "called 'nothing'", "git branch --all"),
        (("Bob!",), 2, "'Bob!' is not allowed", "a-z"),
        (("../x",), 2, "not allowed", "a-z"),
        (("bob", "--branch", "a..b"), 2, "does not allow 'a..b'", "check-ref-format"),
        (("bob", "--setup", "echo why; exit 3"), 1, "setup of bob failed", "the whole output"),
        (("bob", "--copy", "../x"), 2, "leaves the repository", "relative"),
        (("bob", "bob"), 2, "bob is asked for twice", "") ,
        (("bob", "cat", "--branch", "x"), 2, "--branch goes with one NAME", "--help"),
        ((), 2, "Missing argument", "--help"),
    ],
)  # fmt: skip
def test_w16_create_refused(
    run: Bullpen, repo: Path, words: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    ok(run("create", "amy"))
    ran = run("create", *words)
    if hint:
        refused(ran, code, message, hint)
    else:
        assert ran.code == code and message in ran.err
    assert branches(repo) == {"main", "amy"}
    assert [entry["name"] for entry in ok(run("list", "--json")).json["worktrees"]] == ["amy"]


def test_w16_errors_as_json(run: Bullpen) -> None:
    ran = run("info", "amy", "--json")
    assert (ran.code, ran.out) == (4, "")
    error = json.loads(ran.err)
    assert (error["error"], error["code"]) == ("not_found", "WORKTREE_NOT_FOUND")
    assert "amy" in error["message"] and error["hint"]
    failed = json.loads(run("create", "bob", "--setup", "echo why; false", "--json").err)
    assert (failed["code"], failed["details"]["output"]) == ("SETUP_FAILED", "why")


def test_w15_w16_pool_is_refilled_after_a_creation(run: Bullpen, repo: Path, base: Path) -> None:
    (repo / ".bullpen" / "config.yaml").write_text("worktrees:\n  pool: 2\n")
    ok(run("create", "amy"))
    wait_until(lambda: len(list(base.glob(".pool/*/*"))) == 2)
    wait_until(lambda: not list((repo / ".git" / "bullpen" / "journal").glob("*")))
    ready = {p.stat().st_ino for p in base.glob(".pool/*/*/file0.txt")}
    ok(run("create", "bob"))
    assert (base / "bob" / "file0.txt").stat().st_ino in ready
    wait_until(lambda: len(list(base.glob(".pool/*/*"))) == 2)
    wait_until(lambda: not list((repo / ".git" / "bullpen" / "journal").glob("*")))


# ── remove and restore ───────────────────────────────────────────────────────


def test_w16_remove(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "amy", "bob"))
    assert ok(run("remove", "amy", "bob")).out == (
        "removed amy and branch amy\nremoved bob and branch bob\n"
    )
    assert not (base / "amy").exists() and branches(repo) == {"main"}
    assert ok(run("remove", "amy")).out == "amy is not there · nothing to do\n"


def test_w16_remove_dirty_tells_both_ways_out(run: Bullpen, base: Path) -> None:
    ok(run("create", "old-spike"))
    for number in range(4):
        (base / "old-spike" / f"{number}.py").write_text("x")
    ran = run("remove", "old-spike")
    assert ran.code == 5
    assert ran.err == (
        "error: old-spike has 4 uncommitted files (0.py, 1.py, 2.py, …)\n"
        "hint:  commit them, or --force (what it drops is kept for 30 days: "
        "bullpen worktree restore old-spike)\n"
    )
    assert (base / "old-spike" / "0.py").exists()


def test_w16_remove_by_force_and_restore(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "amy"))
    tip = commit(base / "amy", "one.txt")
    (base / "amy" / "new").write_text("x")
    out = ok(run("remove", "amy", "--force")).out
    assert out == (
        "removed amy and branch amy\n"
        "what it dropped is kept for 30 days: bullpen worktree restore amy\n"
    )
    assert re.search(r"^amy +\d+[sm] ago +refs/bullpen/kept/amy/", ok(run("restore")).out, re.M)
    [copy] = ok(run("restore", "--json")).json["copies"]
    assert copy["name"] == "amy"
    assert ok(run("restore", "amy")).out == f"amy is back · {base}/amy\n"
    assert (base / "amy" / "new").read_text() == "x"
    assert git(repo, "rev-parse", "amy") == tip
    refused(run("restore", "amy"), 5, "amy exists", "bullpen worktree remove amy")


def test_w16_restore_nothing(run: Bullpen) -> None:
    assert ok(run("restore")).out == "nothing is kept\n"
    refused(run("restore", "amy"), 4, "nothing is kept of amy", "no copies are kept")


def test_w16_remove_keeps_an_unmerged_branch_and_says_so(
    run: Bullpen, repo: Path, base: Path
) -> None:
    ok(run("create", "amy", "bob"))
    commit(base / "amy", "one.txt")
    out = ok(run("remove", "amy")).out
    assert out.startswith("removed amy\nkept branch amy: 1 commit")
    assert "nowhere else" in out and "git branch -D amy" in out
    assert ok(run("remove", "bob", "--keep-branch")).out == "removed bob\n"
    assert branches(repo) == {"main", "amy", "bob"}


def test_w16_remove_as_json(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy"))
    (base / "amy" / "new").write_text("x")
    [result] = ok(run("remove", "amy", "--force", "--json")).json["removed"]
    assert (result["name"], result["existed"], result["branch"]) == ("amy", True, "amy")
    assert result["kept"].startswith("refs/bullpen/kept/amy/")
    [result] = ok(run("remove", "amy", "--json")).json["removed"]
    assert result["existed"] is False


def test_w16_remove_of_something_else_says_where_it_is_held(run: Bullpen, base: Path) -> None:
    (base / "junk").mkdir()
    (base / "junk" / "file").write_text("x")
    out = ok(run("remove", "junk")).out
    held = re.search(r"its files stay 30 days at (.+)", out)
    assert held and (Path(held[1]) / "file").read_text() == "x"


# ── lock, info, conflicts ────────────────────────────────────────────────────


def test_w16_lock_and_unlock(run: Bullpen) -> None:
    ok(run("create", "amy"))
    assert ok(run("lock", "amy", "--reason", "mine")).out == "amy is locked\n"
    refused(run("lock", "amy"), 5, "locked already: mine", "bullpen worktree unlock amy")
    refused(run("remove", "amy"), 5, "amy is locked: mine", "bullpen worktree unlock amy")
    assert ok(run("unlock", "amy", "--json")).json == {"name": "amy", "state": "unlocked"}
    assert ok(run("unlock", "amy")).out == "amy is unlocked\n"
    refused(run("lock", "bob"), 4, "no worktree called bob", "there are: amy")
    ok(run("remove", "amy"))


def test_w16_info(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "amy", "--role", "coder"))
    commit(base / "amy", "one.txt", "1\n2\n")
    commit(repo, "newer.txt")
    (base / "amy" / "new file").write_text("x")
    out = ok(run("info", "amy")).out
    for line in (
        rf"path +{base}/amy",
        "branch +amy",
        "head +[0-9a-f]{40}",
        r"state +dirty \(1 file\)",
        "base +1 ahead.*1 behind.* main",
        r"committed +1 file, \+2 -0, in 1 commit$",
        r"uncommitted +0 files, \+0 -0, and 1 untracked$",
        "role +coder",
        "created +20",
        "  new file",
    ):
        assert re.search(f"^{line}", out, re.MULTILINE), (line, out)
    found = ok(run("info", "amy", "--json")).json
    assert (found["ahead"], found["behind"], found["changes"]) == (1, 1, ["new file"])
    diff = found["diff"]
    assert diff["committed"] == {"files": 1, "insertions": 2, "deletions": 0}
    assert diff["uncommitted"] == {"files": 0, "insertions": 0, "deletions": 0}
    assert (diff["commits"]["count"], diff["untracked"], diff["names"]) == (1, 1, ["new file"])


def test_w16_info_of_a_corrupt_one_says_how_to_clean_up(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy"))
    (base / "amy" / ".git").unlink()
    refused(run("info", "amy"), 5, "no valid worktree", "bullpen worktree remove amy")
    ok(run("remove", "amy"))
    assert not (base / "amy").exists()


def test_w16_conflicts(run: Bullpen, base: Path) -> None:
    ok(run("create", "amy", "bob", "cat"))
    commit(base / "amy", "file0.txt", "amy\n")
    commit(base / "bob", "file0.txt", "bob\n")
    assert ok(run("conflicts")).out == "conflict  amy · bob\n  file0.txt\n"
    assert ok(run("conflicts", "cat")).out == "no conflicts (3 compared)\n"
    assert ok(run("conflicts", "amy", "main")).out == "no conflicts (1 compared)\n"
    assert ok(run("conflicts", "amy", "bob", "--json")).json["pairs"] == [
        {"a": "amy", "b": "bob", "files": ["file0.txt"]}
    ]
    refused(run("conflicts", "amy", "zoe"), 4, "called zoe", "there are: amy, bob, cat")
    refused(run("conflicts", "a", "b", "c"), 2, "at most two", "--help")


# ── cleanup ──────────────────────────────────────────────────────────────────


def session(repo: Path, name: str, ended: bool) -> None:
    path = repo / ".bullpen" / "sessions" / name
    path.mkdir()
    if ended:
        (path / "exit.json").write_text("{}")


def test_w11_w16_cleanup(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "ended", "never-ran", "running", "dirty", "unmerged"))
    session(repo, "ended", ended=True)
    session(repo, "running", ended=False)
    (base / "dirty" / "new").write_text("x")
    commit(base / "unmerged", "one.txt")
    assert ok(run("cleanup")).out == "nothing to clean up\n"  # all are young
    git(repo, "branch", "swarm/old-1")
    dry = ok(run("cleanup", "--older-than", "0s", "--dry-run")).out
    assert "would remove  worktree ended\n" in dry and (base / "ended").exists()
    out = ok(run("cleanup", "--older-than", "0s")).out
    assert "removed  worktree ended\n" in out and "removed  worktree never-ran\n" in out
    assert "kept     running: its agent has not ended\n" in out
    assert "kept     dirty: dirty has 1 uncommitted file (new)\n" in out
    assert "kept     unmerged: 1 commit exists nowhere else\n" in out
    assert sorted(path.name for path in base.glob("[!.]*")) == ["dirty", "running", "unmerged"]
    assert "swarm/old-1" not in branches(repo)


def test_w7_w16_cleanup_of_everything(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "amy", "bob"))
    (base / "bob" / "new").write_text("x")
    assert ok(run("remove", "amy", "--dry-run")).out == "would remove amy and branch amy\n"
    out = ok(run("cleanup", "--all", "--dry-run")).out
    assert "would remove  worktree amy\n" in out and (base / "amy").exists()
    out = ok(run("cleanup", "--all")).out
    assert "removed  worktree amy\n" in out and "kept     bob: " in out
    result = ok(run("cleanup", "--all", "--force", "--json")).json
    assert result["worktrees"] == ["bob"]
    assert branches(repo) == {"main"}
    ok(run("restore", "bob"))
    assert (base / "bob" / "new").read_text() == "x"


def test_w3_w16_cleanup_of_a_session(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "clean", "dirty", "running", "unmerged", "--role", "coder", "--session", "17"))
    ok(run("create", "alone", "--session", "17"))
    ok(run("create", "other", "--session", "1"))
    ok(run("create", "gone", "--role", "reviewer", "--session", "17"))
    session(repo, "running", ended=False)
    (base / "dirty" / "new").write_text("x")
    commit(base / "unmerged", "one.txt")
    ok(run("remove", "gone", "--keep-branch"))
    dry = ok(run("cleanup", "--session", "17", "--dry-run")).out
    assert "would remove  worktree clean\n" in dry and (base / "clean").exists()
    result = ok(run("cleanup", "--session", "17", "--json")).json
    assert result["worktrees"] == ["alone", "clean"]
    assert result["branches"] == ["swarm/reviewer-17"]
    assert result["left"] == {
        "dirty": "dirty has 1 uncommitted file (new)",
        "running": "its agent has not ended",
        "unmerged": "1 commit exists nowhere else",
    }
    assert sorted(path.name for path in base.glob("[!.]*")) == [
        *("dirty", "other", "running", "unmerged"),
    ]
    assert "swarm/coder-17-unmerged" in branches(repo) and "swarm/other-1" in branches(repo)
    assert ok(run("cleanup", "--session", "99")).out == "nothing to clean up\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--force",), "--force goes with --all"),
        (("--session", "17", "--all"), "--session goes without --all"),
        (("--session", ""), "needs a session id"),
        (("--older-than", "soon"), "--older-than"),
        (("--older-than", "-1d"), "--older-than"),
    ],
)
def test_w16_cleanup_refused(run: Bullpen, words: tuple[str, ...], message: str) -> None:
    ok(run("create", "amy"))
    ran = run("cleanup", *words)
    assert ran.code == 2 and message in ran.err and "Traceback" not in ran.err
    assert len(ok(run("list", "--json")).json["worktrees"]) == 1


# ── where ────────────────────────────────────────────────────────────────────


def test_w16_from_a_subdirectory_and_by_repo_option(
    run: Bullpen, repo: Path, tmp_path: Path
) -> None:
    (repo / "src").mkdir()
    ok(run("create", "amy", cwd=repo / "src"))
    home = {"BULLPEN_DIR": str(repo / ".bullpen")}
    [entry] = ok(run("list", "--json", "--repo", repo, cwd=tmp_path, **home)).json["worktrees"]
    assert entry["name"] == "amy"
    [entry] = ok(run("list", "--json", "--repo", "shop", cwd=tmp_path, **home)).json["worktrees"]
    assert entry["name"] == "amy"


@pytest.mark.parametrize("verb", VERBS)
def test_w16_outside_a_repository(run: Bullpen, repo: Path, tmp_path: Path, verb: str) -> None:
    words = {"list": (), "cleanup": (), "conflicts": ()}.get(verb, ("amy",))
    ran = run(verb, *words, cwd=tmp_path, BULLPEN_DIR=str(repo / ".bullpen"))
    refused(ran, 4, "not a git repository", "git init")


def test_w16_a_name_is_enough_from_anywhere(
    run: Bullpen, bullpen: Bullpen, repo: Path, base: Path, tmp_path: Path
) -> None:
    """Outside of any repository, and in another one."""
    other = make_repo(tmp_path / "other")
    home = {"BULLPEN_DIR": str(repo / ".bullpen")}
    for number, place in enumerate((tmp_path, other)):
        name = f"amy-{number}"
        ok(run("create", name))
        (base / name / "new").write_text("x")
        for words in (["info"], ["lock"], ["unlock"], ["conflicts"]):
            assert ok(run(*words, name, cwd=place, **home)).out
        ok(run("remove", name, "--force", cwd=place, **home))
        assert not (base / name).exists()
        ok(run("restore", name, cwd=place, **home))
        assert (base / name / "new").read_text() == "x"
    refused(run("info", "nobody", cwd=other, **home), 4, "no worktree called nobody", "amy-0")


@pytest.mark.parametrize("verb", VERBS)
def test_w16_without_a_home(bullpen: Bullpen, tmp_path: Path, verb: str) -> None:
    repo = make_repo(tmp_path / "bare-bones")
    words = {"list": (), "cleanup": (), "conflicts": ()}.get(verb, ("amy",))
    refused(bullpen("worktree", verb, *words, cwd=repo), 4, "no home", "bullpen init")


def test_w1_w16_without_a_commit(bullpen: Bullpen, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    assert bullpen("init", cwd=tmp_path / "new").code == 0
    ran = bullpen("worktree", "create", "amy", cwd=tmp_path / "new")
    refused(ran, 4, "no commit yet", "git commit")


@pytest.mark.parametrize("words", [("--older-than", "0s"), ("--all",), ("--session", "17")])
def test_w11_w12_cleanup_of_what_was_made_where_worktrees_lay_before(
    run: Bullpen, repo: Path, base: Path, words: tuple[str, ...]
) -> None:
    ok(run("create", "amy", "bob", "dirty", "--role", "coder", "--session", "17"))
    (base / "dirty" / "new").write_text("x")
    session(repo, "dirty", ended=True)
    worktree = {"name": "dirty", "path": str(base / "dirty")}
    (repo / ".bullpen" / "sessions" / "dirty" / "session.json").write_text(
        json.dumps({"worktree": worktree})
    )
    (repo / ".bullpen" / "config.yaml").write_text("worktrees: {base: trees}\n")
    ok(run("create", "cleo", "--role", "coder", "--session", "17"))
    dry = ok(run("cleanup", *words, "--dry-run", "--json")).json
    done = ok(run("cleanup", *words, "--json")).json
    assert dry["worktrees"] == done["worktrees"] == ["cleo", "amy", "bob"]
    assert done["left"] == {"dirty": "dirty has 1 uncommitted file (new)"}
    assert [row["name"] for row in ok(run("list", "--json")).json["worktrees"]] == ["dirty"]
    assert branches(repo) == {"main", "swarm/coder-17-dirty"}


@pytest.mark.parametrize("place", ["absolute", "relative", "~"])
def test_w12_w16_base_from_the_settings(
    run: Bullpen, repo: Path, tmp_path: Path, place: str
) -> None:
    text, path = {
        "absolute": (str(tmp_path / "trees"), tmp_path / "trees"),
        "relative": ("trees", repo / ".bullpen" / "trees"),
        "~": ("~/trees", tmp_path / "person" / "trees"),
    }[place]
    settings = repo / ".bullpen" / "config.yaml"
    settings.write_text(f"worktrees:\n  base: {text}\n  branch_prefix: team\n")
    ok(run("create", "amy"))
    assert (path / "amy" / "file0.txt").exists()
    git(repo, "branch", "team/x-1")
    assert "team/x-1" in ok(run("cleanup")).out


def test_w16_odd_names_of_the_repository(bullpen: Bullpen, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / os.fsdecode(b"caf\xe9 new\nline"))
    assert bullpen("init", cwd=repo).code == 0
    ran = bullpen("worktree", "create", "amy", cwd=repo)
    assert ran.code == 0 and ran.out.count("\n") == 1, ran
    [entry] = bullpen("worktree", "list", "--json", cwd=repo).json["worktrees"]
    assert os.fsencode(entry["path"]) == os.fsencode(repo / ".bullpen/worktrees/amy")
    assert bullpen("worktree", "info", "amy", cwd=repo).code == 0
    assert bullpen("worktree", "remove", "amy", cwd=repo).code == 0


def test_w16_run_inside_a_git_hook(run: Bullpen, repo: Path, tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other")
    astray = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git" / "index")}
    ok(run("create", "amy", **astray))
    assert [entry["name"] for entry in ok(run("list", "--json", **astray)).json["worktrees"]] == [
        "amy"
    ]
    assert branches(other) == {"main"} and branches(repo) == {"main", "amy"}


def test_w16_files_deleted_by_hand(run: Bullpen, repo: Path, base: Path) -> None:
    ok(run("create", "amy", "bob"))
    shutil.rmtree(base / "amy")
    assert re.search("^amy +broken: .*gone", ok(run("list")).out, re.MULTILINE)
    refused(run("info", "amy"), 5, "files of worktree amy are gone", "remove amy")
    out = ok(run("cleanup")).out
    assert re.search(r"\b1\b", out) and "amy" not in out
    assert [entry["name"] for entry in ok(run("list", "--json")).json["worktrees"]] == ["bob"]
    assert branches(repo) == {"main", "amy", "bob"}


def test_w16_every_verb_explains_itself(run: Bullpen) -> None:
    overview = ok(run("--help")).out
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", overview, re.MULTILINE)
        assert "--json" in ok(run(verb, "--help")).out


def test_r1_w16_create_as_a_role_wants_it(run: Bullpen, repo: Path, base: Path) -> None:
    commit(repo, "later.txt")
    (repo / "local.conf").write_text("mine\n")
    (repo / ".bullpen" / "roles" / "probe.yaml").write_text(
        "name: probe\n"
        "worktree: {enabled: true, branch_from: main~1, copy: [local.conf], setup: touch ready}\n"
    )
    made = run("create", "amy", "--role", "probe")
    assert made.code == 0, made.err
    assert "(from main~1)" in made.out
    assert not (base / "amy" / "later.txt").exists()
    assert (base / "amy" / "local.conf").read_text() == "mine\n"
    assert (base / "amy" / "ready").exists()
    assert run("info", "amy", "--json").json["role"] == "probe"
    # What the command line says wins.
    assert run("create", "bob", "--role", "probe", "--from", "main").code == 0
    assert (base / "bob" / "later.txt").exists()
    wrong = run("create", "cleo", "--role", "prob")
    assert wrong.code == 4
    assert "did you mean probe?" in wrong.err
    assert not (base / "cleo").exists()


def test_r1_w16_create_for_a_role_that_wants_no_branch(run: Bullpen, base: Path) -> None:
    made = run("create", "amy", "--role", "reviewer", "--json")
    assert made.json["worktrees"][0]["branch"] == ""
    named = run("create", "bob", "--role", "reviewer", "--branch", "mine", "--json")
    assert named.json["worktrees"][0]["branch"] == "mine"
