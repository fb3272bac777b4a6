"""N1-N5 through a real hub: commands, HTTP, the queue, what comes back."""

import contextlib
import json
import uuid
from pathlib import Path

import pytest

from tests.hub.landing.yard import Yard
from tests.listing import list_files
from tests.waiting import wait_until
from tests.worktrees.landing.works import status
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


@pytest.mark.storm
def test_n3_one_branch_lands_by_a_command(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    old = yard.head()
    ran = yard.pen.cli("land", "amy", cwd=yard.repo)
    assert ran.code == 0, ran
    new = yard.head()
    assert ran.out.splitlines() == [
        f"amy  on main {old[:7]} · merged · landed as {new[:7]}",
        f"main moved {old[:7]} → {new[:7]} · {yard.repo} was fast-forwarded",
    ]
    assert git(yard.repo, "log", "-1", "--format=%an %cn") == "Ann Ann"
    assert (yard.repo / "a.txt").exists() and status(yard.repo) == ""
    again = yard.pen.cli("land", "amy", cwd=yard.repo)
    assert "landed (already there)" in again.out and again.code == 0
    assert yard.head() == new
    assert yard.pen.cli("land", "--list").out == "nothing waits to land\n"


@pytest.mark.storm
def test_n4_a_conflict_goes_back_to_its_author_and_lands_when_it_has_answered(yard: Yard) -> None:
    tree = yard.agent("amy", file0_txt="amy\n")
    commit(yard.repo, "file0.txt", "main\n")
    base = yard.head()
    ran = yard.pen.cli("land", "amy", cwd=yard.repo)
    assert ran.code == 1
    assert ran.out.startswith("amy  conflict in file0.txt · amy was told")
    wait_until(lambda: bool(yard.messages("amy")))  # that it came back is noted before
    (text,) = yard.messages("amy")
    assert "- file0.txt" in text and base[:7] in text
    assert "conflict with main: file0.txt" in yard.pen.cli("list").out
    assert "conflict in file0.txt" in yard.pen.cli("land", "--list").out
    (entry,) = json.loads(yard.pen.cli("land", "--list", "--json").out)["landings"]
    assert yard.head() == base
    git(tree, "merge", "-q", "main", check=False)
    commit(tree, "file0.txt", "both\n", "Merge main")
    wait_until(lambda: yard.landing(entry["id"])["status"]["state"] == "landed", 60)
    rested = yard.landing(entry["id"])
    assert rested["tip"] == git(tree, "rev-parse", "HEAD")
    assert (yard.repo / "file0.txt").read_text() == "both\n"
    assert len(yard.messages("amy")) == 1


def test_n4_of_a_worktree_without_an_agent_nobody_is_said_to_be_told(yard: Yard) -> None:
    assert yard.pen.cli("worktree", "create", "eve", "--from", "main", cwd=yard.repo).code == 0
    commit(yard.tree("eve"), "file0.txt", "eve\n")
    commit(yard.repo, "file0.txt", "main\n")
    ran = yard.pen.cli("land", "eve", cwd=yard.repo)
    answer = "no agent has it, lands when you have committed on eve"
    assert ran.out == f"eve  conflict in file0.txt · {answer} · bullpen land --list\n", ran
    listed = yard.pen.cli("land", "--list").out
    assert "conflict in file0.txt · waits for your commit on eve, since " in listed


def test_n4_of_an_author_that_does_not_run_it_is_said_how_it_hears_of_it(yard: Yard) -> None:
    yard.agent("bob", file0_txt="bob\n")
    commit(yard.repo, "file0.txt", "main\n")
    yard.pen.stop("bob")
    ran = yard.pen.cli("land", "bob", cwd=yard.repo)
    answer = "bob does not run, the message waits for it: bullpen resume bob"
    assert ran.out == f"bob  conflict in file0.txt · {answer} · bullpen land --list\n", ran
    waits = "waits for bob, which does not run: bullpen resume bob"
    assert f"conflict in file0.txt · {waits}" in yard.pen.cli("land", "--list").out
    assert yard.pen.cli("resume", "bob").code == 0
    assert "waits for a commit of bob, told " in yard.pen.cli("land", "--list").out
    assert len(yard.messages("bob")) == 1


def test_n3_what_came_back_can_be_cancelled(yard: Yard) -> None:
    tree = yard.agent("amy", file0_txt="amy\n")
    base = commit(yard.repo, "file0.txt", "main\n")
    (entry,) = yard.landed("amy")
    assert entry["status"]["state"] == "came_back"
    header, row, hint = yard.pen.cli("land", "--list").out.splitlines()
    assert header.split() == ["AGENT", "INTO", "STATE"]
    assert row.startswith("amy    main  conflict in file0.txt · waits for a commit of amy, told ")
    assert hint == "bullpen land --cancel AGENT takes it out"
    assert yard.pen.cli("land", "--cancel", "amy").out == "amy  cancelled\n"
    assert yard.pen.cli("land", "--list").out == "nothing waits to land\n"
    commit(tree, "more.txt")
    assert yard.landing(entry["id"])["status"]["state"] == "cancelled"
    assert yard.head() == base
    ran = yard.pen.cli("land", "--cancel", "amy")
    assert (ran.code, "nothing of amy waits to land" in ran.err) == (4, True)


def _command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            lines.append(path.read_text(errors="replace"))
    return "\n".join(lines)


def test_n3_what_is_verified_can_be_cancelled_and_those_that_wait_for_it_land(yard: Yard) -> None:
    """Bob is verified with cy, dan waits behind them."""
    yard.agent("cy", cy_txt="cy\n")
    yard.agent("bob", bob_txt="bob\n")
    yard.agent("dan", dan_txt="dan\n")
    mark = uuid.uuid4().hex
    verify = f"! test -f cy.txt || sleep 98765; : {mark}"
    entries = {each["name"]: each["id"] for each in yard.land("cy", "bob", verify=verify)}
    log = yard.pen.root / "logs" / "landings" / f"{entries['bob']}.log"
    wait_until(log.exists)
    (dan,) = yard.land("dan")
    ran = yard.pen.cli("land", "--cancel", "cy")
    assert (ran.code, ran.out) == (0, "cy  cancelled\n"), ran
    ends = [yard.rested(id)["status"]["state"] for id in (entries["bob"], dan["id"])]
    assert ends == ["landed", "landed"]
    assert not (yard.repo / "cy.txt").exists()
    wait_until(lambda: mark not in _command_lines())
    assert not list_files(yard.pen.root / "worktrees", ".landing/*/*")
    ran = yard.pen.cli("land", "--cancel", "bob")
    assert (ran.code, "nothing of bob waits to land" in ran.err) == (4, True)


def test_n4_several_land_together_and_a_bad_one_does_not_hold_up_the_good(yard: Yard) -> None:
    for name in ("amy", "bob", "cleo", "dan", "eve"):
        yard.agent(name, **{f"{name}_txt": "bad\n" if name == "cleo" else "good\n"})
    names = ("amy", "bob", "cleo", "dan", "eve")
    verify = "echo checking; ! grep -l bad *.txt"
    entries = {e["name"]: e for e in yard.landed(*names, verify=verify)}
    assert entries["cleo"]["status"]["state"] == "came_back"
    assert entries["cleo"]["status"]["why"] == "verify"
    assert "cleo.txt" in entries["cleo"]["status"]["output"]
    good = ("amy", "bob", "dan", "eve")
    assert {entries[name]["status"]["state"] for name in good} == {"landed"}
    assert all((yard.repo / f"{name}.txt").exists() for name in good)
    assert not (yard.repo / "cleo.txt").exists()
    (text,) = yard.messages("cleo")
    assert "cleo.txt" in text and "exit 1" in text
    assert not list((yard.pen.root / "worktrees").glob(".landing/*/*"))
    assert status(yard.repo) == ""
    logs = list((yard.pen.root / "logs" / "landings").glob("*.log"))
    assert logs and all("checking" in log.read_text() for log in logs)


def test_v9_what_a_verification_writes_is_read_while_it_runs_of_all_that_are_tried_together(
    yard: Yard,
) -> None:
    yard.agent("amy", a_txt="a\n")
    yard.agent("bob", b_txt="b\n")
    verify = "printf 'half a \\377'; test -f stop.txt || sleep 98765"
    ids = [each["id"] for each in yard.land("amy", "bob", verify=verify)]

    def outputs() -> list[str]:
        answers = [yard.pen.ask("GET", f"/landings/{id}/output") for id in ids]
        assert [status for status, _ in answers] == [200, 200]
        return [answer["output"] for _, answer in answers]

    wait_until(lambda: outputs() == ["half a \ufffd"] * 2, 120)
    assert {yard.landing(id)["status"]["state"] for id in ids} == {"verifying"}
    for name in ("amy", "bob"):
        assert yard.pen.ask("DELETE", f"/landings/{name}")[0] == 200
    assert yard.pen.ask("GET", "/landings/nobody/output")[0] == 404


def test_n4_a_command_that_failed_is_shown_with_its_last_lines(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    verify = "seq 30; printf '\\033[31mred\\n'; exit 3"
    for command in (("land", "amy", "--verify", verify), ("finish", "amy", "--land")):
        ran = yard.pen.cli(*command, cwd=yard.repo)
        first, *lines, last = ran.out.splitlines()
        assert (ran.code, "failed (exit 3) · amy was told" in first) == (1, True), ran
        assert lines == [*(f"  {number}" for number in range(12, 31)), "  \\x1b[31mred"]
        log = Path(last.removeprefix("  all of it: ")).expanduser()
        assert len(log.read_text().splitlines()) == 31


@pytest.mark.storm
def test_n4_one_that_conflicts_with_another_is_tried_on_what_that_made(yard: Yard) -> None:
    yard.agent("amy", file0_txt="amy\n")
    yard.agent("bob", file0_txt="bob\n")
    yard.agent("cleo", c_txt="c\n")
    entries = {e["name"]: e["status"] for e in yard.landed("amy", "bob", "cleo")}
    assert entries["cleo"]["state"] == "landed"
    assert sorted(entries[name]["state"] for name in ("amy", "bob")) == ["came_back", "landed"]


@pytest.mark.storm
def test_n3_verify_runs_in_a_sandbox_in_a_checkout_of_its_own(yard: Yard) -> None:
    tree = yard.agent("amy", a_txt="a\n")
    secret = Path(yard.pen.env["HOME"]) / "secret"
    secret.write_text("s\n")
    verify = (
        f"pwd; test -f a.txt; echo spoilt > a.txt; touch rubbish; ! cat {secret};"
        f" ! touch {yard.repo}/evil; ! touch {tree}/evil; ! git update-ref refs/heads/evil HEAD"
    )
    (entry,) = yard.landed("amy", verify=verify)
    assert entry["status"]["state"] == "landed", entry
    log = (yard.pen.root / "logs" / "landings" / f"{entry['id']}.log").read_text()
    assert "/.landing/" in log.splitlines()[0]
    assert (yard.repo / "a.txt").read_text() == "a\n"
    assert not (yard.repo / "rubbish").exists() and not (yard.repo / "evil").exists()
    assert "evil" not in git(yard.repo, "branch")


@pytest.mark.storm
def test_n3_verify_has_a_time_out_and_settings_of_the_home_and_the_project(yard: Yard) -> None:
    config = yard.pen.root / "config.yaml"
    config.write_text(
        config.read_text()
        + "landing: {verify: 'false', strategy: squash, protected: [release/*], timeout: 8s}\n"
    )
    git(yard.repo, "branch", "release/1")
    yard.pen.cli("hub", "restart")
    yard.agent("amy", a_txt="a\n")
    (entry,) = yard.landed("amy")
    assert (entry["strategy"], entry["status"]["why"]) == ("squash", "verify")
    code, answer = yard.pen.ask("POST", "/landings", {"names": ["amy"], "into": "release/1"})
    assert (code, "protected" in answer["message"]) == (403, True)
    (entry,) = yard.landed("amy", verify="sleep 600")
    assert "did not end within 8 s" in entry["status"]["problem"]
    project = {"name": "shop", "prompt": "Shop.", "repo": str(yard.repo)}
    project["landing"] = {"verify": "true", "strategy": "rebase", "timeout": "10m"}
    (yard.pen.root / "projects" / "shop.yaml").write_text(json.dumps(project))
    assert yard.pen.cli("validate", "--all").code == 0
    assert yard.pen.cli("land", "--cancel", "amy").code == 0  # with the command that was named
    (entry,) = yard.landed("amy")
    assert (entry["strategy"], entry["verify"]) == ("rebase", "true")
    assert entry["status"]["state"] == "landed"


@pytest.mark.storm
def test_n3_asked_again_it_is_verified_as_before_until_another_command_is_named(
    yard: Yard,
) -> None:
    yard.agent("amy", a_txt="a\n")
    old = yard.head()
    for words in (("--verify", "exit 3"), ()):
        ran = yard.pen.cli("land", "amy", *words, cwd=yard.repo)
        assert ran.out.startswith("amy  exit 3 failed (exit 3) · amy was told"), ran
    assert yard.head() == old
    ran = yard.pen.cli("land", "amy", "--verify", "", cwd=yard.repo)
    assert (ran.code, "landed as" in ran.out) == (0, True), ran


@pytest.mark.storm
def test_n3_scratch_checkouts_are_prepared_as_worktrees_are(yard: Yard) -> None:
    (yard.repo / ".env").write_text("KEY=1\n")
    role = yard.pen.root / "roles" / "worker.yaml"
    text = role.read_text().replace(
        "branch_from: main}", "branch_from: main, copy: [.env], setup: 'echo made > made'}"
    )
    role.write_text(text)
    yard.agent("amy", a_txt="a\n")
    verify = "grep KEY=1 .env && grep made made"
    (entry,) = yard.landed("amy", verify=verify)
    assert entry["status"]["state"] == "landed", entry


@pytest.mark.storm
def test_n3_a_checkout_in_the_way_is_an_error_that_names_the_files(yard: Yard) -> None:
    yard.agent("cleo", file0_txt="cleo\n")
    yard.agent("dan", d_txt="d\n")
    (yard.repo / "file0.txt").write_text("mine\n")
    old = yard.head()
    ran = yard.pen.cli("land", "cleo", "dan", cwd=yard.repo)
    assert ran.code == 5
    assert f"main is checked out in {yard.repo} with changes in file0.txt" in ran.err
    assert "hint:" in ran.err
    assert (yard.repo / "file0.txt").read_text() == "mine\n"
    assert "dan   on main" in ran.out and (yard.repo / "d.txt").exists()
    assert yard.head() != old
    assert git(yard.repo, "status", "--porcelain") == " M file0.txt"


@pytest.mark.storm
def test_n3_nothing_lands_in_the_home_which_says_what_agents_may(yard: Yard) -> None:
    """Files that git ignores, added by force: a role without a sandbox, say."""
    shop = yard.pen.root.parent  # the home lies in it
    git(shop, "init", "-q", "-b", "main")
    (shop / ".gitignore").write_text("*\n")
    git(shop, "add", "-f", ".gitignore")
    git(shop, "commit", "-q", "-m", "first")
    home = yard.pen.root.name
    name, upper = f"{home}/roles/evil.yaml", f"{home.upper()}/x"
    for agent, file in (("amy", name), ("bob", upper), ("joe", f"{home}ish/x")):
        assert yard.pen.cli("run", "--role", "worker", "--name", agent, "-d", cwd=shop).code == 0
        path = yard.tree(agent) / file
        path.parent.mkdir(parents=True)
        path.write_text("name: evil\n")
        git(yard.tree(agent), "add", "-f", file)
        git(yard.tree(agent), "commit", "-q", "-m", agent)
    amy, bob, joe = yard.landed("amy", "bob", "joe")
    assert joe["status"]["state"] == "landed"
    for each, file in ((amy, name), (bob, upper)):
        assert each["status"]["state"] == "refused"
        assert each["status"]["message"].endswith(f"what agents may: {file}")
    assert not (yard.pen.root / "roles" / "evil.yaml").exists()
    assert git(shop, "ls-files").split() == [".gitignore", f"{home}ish/x"]


def test_n3_where_it_lands_has_to_be_said_where_that_is_not_clear(yard: Yard) -> None:
    pen = yard.pen
    yard.agent("amy", a_txt="a\n")
    git(yard.repo, "update-ref", "refs/remotes/origin/main", yard.head())
    for name, base in (("det", "HEAD~0"), ("rem", "origin/main"), ("kid", "amy")):
        ran = pen.cli("worktree", "create", name, "--from", base, cwd=yard.repo)
        assert ran.code == 0, ran
        commit(yard.tree(name), f"{name}.txt")
        ran = pen.cli("land", name, cwd=yard.repo)
        assert (ran.code, "--into" in ran.err) == (5, True), ran
    for nowhere in ("nowhere", "main/"):
        assert pen.cli("land", "kid", "--into", nowhere, cwd=yard.repo).code == 4
    assert pen.cli("land", "amy", "--into", "amy", cwd=yard.repo).code == 2
    ran = pen.cli("land", "kid", "--into", "main", cwd=yard.repo)
    assert ran.code == 0 and (yard.repo / "kid.txt").exists(), "a worktree that no agent has"
    assert pen.cli("land", "nobody", cwd=yard.repo).code == 4


def test_n3_an_entry_lands_the_commit_that_was_asked_for(yard: Yard) -> None:
    """What comes while it waits is not landed with it."""
    tree = yard.agent("amy", a_txt="a\n")
    asked = git(tree, "rev-parse", "HEAD")
    (entry,) = yard.land("amy", verify=f"cd {tree} 2>/dev/null; sleep 1")
    commit(tree, "later.txt")
    rested = yard.rested(entry["id"])
    assert (rested["tip"], rested["status"]["state"]) == (asked, "landed")
    assert not (yard.repo / "later.txt").exists()


@pytest.mark.storm
def test_n4_a_target_that_moves_meanwhile_is_built_on_again(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    wait = "test -e main.txt || until test -e go; do sleep 0.1; done"
    (entry,) = yard.land("amy", verify=wait)
    scratch = yard.pen.root / "worktrees" / ".landing"
    wait_until(lambda: bool(list_files(scratch, "*/*/a.txt")))
    new = commit(yard.repo, "main.txt")
    (checkout,) = scratch.glob("*/*")
    (checkout / "go").write_text("")
    rested = yard.rested(entry["id"])
    assert (rested["status"]["state"], rested["status"]["base"]) == ("landed", new)
    assert (yard.repo / "a.txt").exists() and status(yard.repo) == ""


def test_n3_asked_twice_it_is_one_entry(yard: Yard) -> None:
    tree = yard.agent("amy", file0_txt="amy\n")
    commit(yard.repo, "file0.txt", "main\n")
    (first,) = yard.landed("amy")
    assert first["status"]["state"] == "came_back"
    (second,) = yard.land("amy", strategy="squash")
    assert (second["id"], second["tip"]) == (first["id"], git(tree, "rev-parse", "HEAD"))


def test_n2_no_agent_may_land(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    environment = Path(f"/proc/{yard.pen.program('amy')}/environ").read_bytes().split(b"\0")
    token = next(e for e in environment if e.startswith(b"BULLPEN_TOKEN=")).split(b"=", 1)[1]
    for method, target, body in (
        ("POST", "/landings", {"names": ["amy"]}),
        ("GET", "/landings", None),
        ("GET", "/landings/l-1", None),
        ("DELETE", "/landings/amy", None),
    ):
        code, _ = yard.pen.ask(method, target, body, token.decode())
        assert code == 403, (method, target)


@pytest.mark.storm
def test_n1_diff_says_what_is_committed_and_what_is_not(yard: Yard) -> None:
    tree = yard.agent("amy", a_txt="a\n", file0_txt="amy\n")
    yard.agent("bob", file0_txt="bob\n")
    (tree / "new.txt").write_text("new \x1b[31m\n")
    ran = yard.pen.cli("diff", "amy", cwd=yard.repo)
    committed, _, uncommitted = ran.out.partition("not committed\n")
    assert "+amy" in committed and "+new" not in committed
    assert "+new \\x1b[31m" in uncommitted and "\x1b" not in ran.out
    last = "2 commits, 1 uncommitted file · no conflict with main · conflicts with bob in file0.txt"
    assert ran.out.splitlines()[-1] == last
    stat = yard.pen.cli("diff", "amy", "--stat", cwd=yard.repo).out.splitlines()
    assert stat == [
        " a.txt     | 1 +",
        " file0.txt | 2 +-",
        "not committed:",
        " new.txt | 1 +",
        last,
    ]
    data = json.loads(yard.pen.cli("diff", "amy", "--json", cwd=yard.repo).out)
    assert {"name": "new.txt", "added": 1, "deleted": 0, "part": "uncommitted"} in data["files"]
    assert data["conflicts"] == {"bob": ["file0.txt"]} and data["commit_count"] == 2
    ran = yard.pen.cli("diff", "amy", "--against", "bob", "--stat", cwd=yard.repo)
    assert "conflicts with bob in file0.txt" in ran.out
    ran = yard.pen.cli("conflicts", cwd=yard.repo)
    assert ran.out.splitlines() == ["conflict  amy · bob", "  file0.txt"]
    ran = yard.pen.cli("conflicts", "--json", cwd=yard.repo)
    assert len(json.loads(ran.out)["pairs"]) == 3


def test_n1_diff_of_an_agent_without_a_worktree_says_where_it_works(yard: Yard) -> None:
    for name, where in (("amy", yard.repo), ("bob", Path("/"))):
        assert yard.pen.cli("run", "-d", "--name", name, "--", "cat", cwd=where).code == 0
        ran = yard.pen.cli("diff", name, cwd=where)
        assert (ran.code, ran.err) == (
            5,
            f"error: {name} has no worktree of its own: what it changed is in {where}\n"
            "hint:  look there with git diff\n",
        )
    assert "no worktree called nobody" in yard.pen.cli("diff", "nobody", cwd=yard.repo).err


def test_n1_land_names_what_was_not_committed_and_so_did_not_land(yard: Yard) -> None:
    (yard.agent("amy") / "left.txt").write_text("left\n")
    ran = yard.pen.cli("land", "amy", cwd=yard.repo)
    told = "amy: not landed is 1 uncommitted file: left.txt"
    assert (ran.code, ran.out.splitlines()[-1]) == (0, told), ran


@pytest.mark.storm
def test_n1_finish_lands_and_removes_in_one_step_that_can_be_run_again(yard: Yard) -> None:
    tree = yard.agent("amy", a_txt="a\n")
    (tree / "left.txt").write_text("left\n")
    finish = ("finish", "amy", "--land")
    ran = yard.pen.cli(*finish, cwd=yard.repo)
    assert (ran.code, "left.txt" in ran.err) == (5, True)
    assert yard.pen.agents()["amy"]["running"] and not (yard.repo / "a.txt").exists()
    ran = yard.pen.cli(*finish, "--commit", "Add what was left", cwd=yard.repo)
    assert ran.code == 0, ran
    assert (yard.repo / "left.txt").read_text() == "left\n" and (yard.repo / "a.txt").exists()
    assert not tree.exists() and "amy" not in yard.pen.agents()
    assert git(yard.repo, "branch").split() == ["*", "main"]
    assert git(yard.repo, "log", "--format=%an", "-1", "main^2") == "Ann"
    again = yard.pen.cli(*finish, cwd=yard.repo)
    assert (again.code, again.out) == (0, "amy is gone already\n"), again
    typo = yard.pen.cli("finish", "ammy", "--land", cwd=yard.repo)
    assert (typo.code, typo.err.splitlines()[0]) == (4, "error: no agent or worktree called ammy")


@pytest.mark.storm
def test_n1_finish_keeps_the_branch_or_drops_it_for_thirty_days(yard: Yard) -> None:
    yard.agent("amy", a_txt="a\n")
    tree = yard.agent("bob", b_txt="b\n")
    (tree / "left.txt").write_text("left\n")
    ran = yard.pen.cli("finish", "amy", "--keep", cwd=yard.repo)
    assert (ran.code, ran.out) == (0, "amy removed · branch amy stays\n"), ran
    assert git(yard.repo, "show", "amy:a.txt") == "a"
    ran = yard.pen.cli("finish", "amy", "--keep", cwd=yard.repo)
    assert (ran.code, ran.out) == (0, "amy is gone already · branch amy stays\n"), ran
    yard.agent("cleo")
    ran = yard.pen.cli("finish", "cleo", "--keep", cwd=yard.repo)
    assert (ran.code, ran.out) == (0, "cleo removed · branch cleo stays\n"), ran
    assert "cleo" in git(yard.repo, "branch") and "cleo" not in yard.pen.agents()
    ran = yard.pen.cli("finish", "bob", "--discard", cwd=yard.repo)
    assert ran.code == 0 and "bullpen worktree restore bob" in ran.out, ran
    assert "bob" not in git(yard.repo, "branch") and not tree.exists()
    assert yard.pen.cli("worktree", "restore", "bob", cwd=yard.repo).code == 0
    assert (tree / "left.txt").exists()
    assert yard.pen.cli("finish", "amy", cwd=yard.repo).code == 2


def test_n1_finish_that_conflicts_leaves_the_agent_at_work(yard: Yard) -> None:
    yard.agent("amy", file0_txt="amy\n")
    commit(yard.repo, "file0.txt", "main\n")
    ran = yard.pen.cli("finish", "amy", "--land", cwd=yard.repo)
    assert (ran.code, "conflict in file0.txt" in ran.out) == (1, True)
    assert yard.pen.agents()["amy"]["running"]
