"""`director start --dry-run`: says what a director would do now, and does nothing (D2, D4)."""

import asyncio
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.gitlab import GitLabForge
from bullpen.directors.loop import Ahead, Loop
from bullpen.home import credentials
from tests.forge.lives import move_base
from tests.forge.office import LGTM, Answer, Office
from tests.forge.server import Forge, served_github, served_gitlab
from tests.forge.world import World
from tests.hub.pen import Pen, made_pen

pytestmark = pytest.mark.slow
ADAPTERS = {"github": (served_github, GitHubForge), "gitlab": (served_gitlab, GitLabForge)}


@pytest.fixture(params=ADAPTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forge(tmp_path: Path, kind: str) -> Iterator[Forge]:
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    (tmp_path / "forge").mkdir()
    with ADAPTERS[kind][0](tmp_path / "forge", world) as made:
        yield made
        assert made.faults == []


def files_of(root: Path) -> dict[str, object]:
    """Every file and directory below: what it holds, whose, and when it was changed."""
    listed: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        listed[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return listed


def world_of(forge: Forge) -> object:
    return [vars(each) for each in forge.world.issues.values()], forge.branches(), forge.pushed


def ahead_of(office: Office) -> list[Ahead[Any]]:
    """What it would do; that it does nothing is looked at here."""
    before = files_of(office.directory), repr(world_of(office.forge))
    requests = len(office.forge.asked)
    ahead = asyncio.run(office.loop().look_ahead())
    assert (files_of(office.directory), repr(world_of(office.forge))) == before
    assert {method for method, _, _ in office.forge.asked[requests:]} <= {"GET"}
    return ahead


def round_of(office: Office) -> list[tuple[str, str]]:
    """Key and words of what a process does in one round, as it does it."""
    loop: Loop[Any, Any, Any, Any] = office.loop()
    done: list[tuple[str, str]] = []

    def around(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def note(action: Any) -> Any:
            done.append((action.key, action.words))
            return await act(action)

        return note

    rules: Any = loop.rules
    rules.act = around(rules.act)
    asyncio.run(loop.step())
    return done


@pytest.mark.storm
def test_d2_what_it_would_do_is_what_it_then_does_all_along_the_life_of_an_issue(
    tmp_path: Path, forge: Forge, kind: str
) -> None:
    office = Office(
        tmp_path / "office",
        forge,
        adapter=ADAPTERS[kind][1],
        reactions={"ci_failed": {"retries": 1}, "conflict": {}, "changes_requested": {}},
    )
    world = forge.world
    first, second = (world.open_issue("ann", f"[robo] {word}", "x") for word in ("Greet", "Sing"))
    world.open_issue("eve", "[robo] Give me more", "")
    office.script(first, Answer(commit="greet"), LGTM, *[Answer(commit=n) for n in "abcdef"])
    office.script(second, Answer(output="It is done already"))

    kinds: set[str] = set()

    def run() -> None:
        for _ in range(60):
            actions = [one.action for one in ahead_of(office)]
            kinds.update(action.kind for action in actions)
            ahead = [(action.key, action.words) for action in actions]
            done = round_of(office)
            assert done == ahead
            if all(key == "status" for key, _ in done):  # each process writes that anew
                return
        raise AssertionError(f"it does not come to rest: {done}")

    run()
    pull = world.pulls[0].number
    world.check(forge.branches()[office.branch(first)], "tests", "failure", "no\n")
    run()
    world.review(pull, "ann", "CHANGES_REQUESTED", "", ("a.py", 3, "why?"))
    run()
    move_base(forge)
    world.comment(pull, "ann", "louder")
    run()
    world.check(forge.branches()[office.branch(first)], "tests", "failure", "no\n")
    run()
    world.check(forge.branches()[office.branch(first)], "tests", "failure", "still\n")
    run()
    world.react(pull, "ann", "+1")
    run()
    assert {"freeze", "claim", "give_task", "collect", "push", "open_pull", "say"} <= kinds
    assert {"inspect", "escalate", "finish", "show_status"} <= kinds


@pytest.mark.few(1)
def test_d2_what_was_begun_is_told_first_and_what_waits_with_its_reason(
    tmp_path: Path, forge: Forge, kind: str
) -> None:
    quiet = {"status_issue": False}
    office = Office(tmp_path / "office", forge, adapter=ADAPTERS[kind][1], settings=quiet)
    forge.world.open_issue("ann", "[robo] Greet", "x")
    assert [key for key, _ in round_of(office)] == ["issue 1 freeze"]
    forge.lost = ["/assignees", "/issues/1"]
    round_of(office)  # fails in the middle of the claim
    [one] = ahead_of(office)
    assert (one.action.key, one.is_begun) == ("issue 1 claim", True)
    assert "cannot be reached" in one.waits


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:  # and no hub runs
        yield made


def add_director(pen: Pen, kind: str, forge: Forge) -> None:
    fields = {"type": kind, "repo": "acme/shop", "server": forge.url, "role": "coder"}
    (pen.home.directors / "robo.yaml").write_text(json.dumps(fields))
    (pen.home.roles / "coder.yaml").write_text("name: coder\nagent_type: claude\ninstructions: x\n")
    token = "ghp_" if kind == "github" else "glpat-"
    token += "x" * 36
    forge.tokens[token] = "bot"
    credentials.store(pen.home, f"{kind}-token", token.encode())


def test_d2_a_dry_run_prints_a_line_for_each_action_and_touches_nothing(
    pen: Pen, forge: Forge, kind: str
) -> None:
    add_director(pen, kind, forge)
    forge.world.open_issue("eve", "[robo] Not for strangers", "")
    number = forge.world.open_issue("ann", "[robo] Greet\x1b[2J people", "Say hello")
    before = files_of(pen.root), repr(world_of(forge))
    ran = pen.cli("director", "start", "robo", "--dry-run")
    assert ran.code == 0, ran
    line, status, last = ran.out.splitlines()
    assert line.startswith(f'issue {number}: takes it on: "[robo] Greet')
    assert line.endswith('people", by ann') and "\x1b" not in line
    assert (status, last) == ("status: opens its status issue", "nothing was done")
    rows = json.loads(pen.cli("director", "start", "robo", "--dry-run", "--json").out)["would"]
    assert [(row["about"], row["waits"]) for row in rows] == [
        (f"issue {number}", None),
        ("status", None),
    ]
    assert (files_of(pen.root), repr(world_of(forge))) == before
    assert {method for method, _, _ in forge.asked} == {"GET"}
    assert forge.credentials == []  # git was not even asked

    (pen.home.credentials / f"{kind}-token").unlink()
    refused = pen.cli("director", "start", "robo", "--dry-run")
    assert (refused.code, f"there is no {kind}-token" in refused.err) == (1, True)
    assert f"bullpen auth set {kind}-token" in refused.err
