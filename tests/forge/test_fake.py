"""The fake of GitHub itself: D6."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.forge import official
from tests.forge.quota import Limit
from tests.forge.server import Forge, git, served_github
from tests.forge.world import World

pytestmark = pytest.mark.slow  # each may be the first that loads what checks
REPO = "/repos/acme/shop"
needs_description = pytest.mark.skipif(
    not official.is_there(), reason="scripts/forge-api could not fetch GitHub's description"
)


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    world = World("acme/shop", {"ann": "admin", "bot": "write", "eve": "read"})
    with served_github(tmp_path, world) as made:
        yield made


def ask(forge: Forge, method: str, target: str, body: Any = None, **headers: str) -> httpx.Response:
    token = forge.token("bot")
    headers = {"Authorization": f"Bearer {token}", **headers}
    content = None if body is None else json.dumps(body)
    return httpx.request(method, forge.url + target, content=content, headers=headers)


@needs_description
@pytest.mark.storm
def test_d6_every_exchange_of_a_life_is_as_the_description_says(forge: Forge) -> None:
    """Each route once; the checker is not blind: the next test."""
    number = forge.world.open_issue("ann", "[robo] Greet", "Please", labels=("help",))
    issue = f"{REPO}/issues/{number}"
    git(forge.bare, "branch", "claude/issue-1", "main")
    seed = forge.bare.parent / "seed"
    git(seed, "commit", "-q", "--allow-empty", "-m", "More")
    git(seed, "push", "-q", str(forge.bare), "HEAD:claude/issue-1")
    pull = {"title": "Greet", "head": "claude/issue-1", "base": "main", "draft": True, "body": "x"}
    exchanges: list[tuple[str, str, Any, int]] = [
        ("GET", "/user", None, 200),
        ("GET", REPO, None, 200),
        ("GET", f"{REPO}/collaborators/ann/permission", None, 200),
        ("GET", f"{REPO}/issues?state=open&per_page=100&labels=help", None, 200),
        ("POST", f"{REPO}/issues", {"title": "Status", "body": "b"}, 201),
        ("GET", issue, None, 200),
        ("PATCH", issue, {"body": "new", "state": "open"}, 200),
        ("POST", f"{issue}/assignees", {"assignees": ["bot"]}, 201),
        ("POST", f"{issue}/comments", {"body": "mine"}, 201),
        ("GET", f"{issue}/comments?per_page=100", None, 200),
        ("POST", f"{issue}/labels", {"labels": ["approved"]}, 200),
        ("POST", f"{issue}/reactions", {"content": "eyes"}, 201),
        ("POST", f"{issue}/reactions", {"content": "eyes"}, 200),
        ("GET", f"{issue}/reactions?per_page=100", None, 200),
        ("POST", f"{REPO}/pulls", pull, 201),
        ("GET", f"{REPO}/pulls?head=acme:claude/issue-1&state=all", None, 200),
        ("GET", f"{REPO}/pulls/3", None, 200),
        ("POST", f"{REPO}/pulls", pull, 422),
        ("GET", f"{REPO}/issues/99", None, 404),
    ]
    for method, target, body, status in exchanges:
        assert ask(forge, method, target, body).status_code == status, target
    assert forge.faults == []


@needs_description
@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/issues/1/reactions", {"content": "thumbsup"}),
        ("POST", "/issues/1/labels", {"labels": 7}),
        ("PATCH", "/issues/1", {"state": "explode"}),
        ("GET", "/issues?state=oops", None),
        ("GET", "/oops", None),
    ],
)
def test_d6_a_request_that_the_description_refuses_is_a_fault(
    forge: Forge, method: str, target: str, body: Any
) -> None:
    faults = official.find_faults(
        forge.url,
        method,
        REPO + target,
        b"" if body is None else json.dumps(body).encode(),
        403,
        b"{}",
    )
    assert faults


def test_d6_that_nothing_could_be_checked_is_the_reason_of_a_skip(tmp_path: Path) -> None:
    missing = tmp_path / "description.json"
    assert official.find_faults("http://x", "GET", REPO, b"", 200, b"[]", missing) == ()
    assert official.unchecked == {missing}
    assert official.why_unchecked().endswith(f"were not checked: there is no {missing}")
    official.unchecked.clear()  # or this test were skipped, too


@needs_description
def test_d6_a_short_answer_is_a_fault(forge: Forge) -> None:
    assert official.find_faults(forge.url, "GET", f"{REPO}/issues/1", b"", 200, b'{"number": 1}')


def test_d6_what_has_not_changed_is_a_304_that_costs_nothing(forge: Forge) -> None:
    first = ask(forge, "GET", f"{REPO}/issues")
    again = ask(forge, "GET", f"{REPO}/issues", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, forge.counted) == (304, b"", 1)
    forge.world.open_issue("eve", "new")
    after = ask(forge, "GET", f"{REPO}/issues", **{"If-None-Match": first.headers["etag"]})
    assert after.status_code == 200


def test_d6_long_lists_come_in_pages(forge: Forge) -> None:
    for number in range(70):
        forge.world.open_issue("eve", f"issue {number}")
    page = ask(forge, "GET", f"{REPO}/issues?per_page=40")
    rest = httpx.get(
        page.links["next"]["url"], headers={"Authorization": f"Bearer {forge.token('bot')}"}
    )
    assert (len(page.json()), len(rest.json()), "next" in rest.links) == (40, 30, False)


def test_d6_limits_and_tokens_refuse_as_github_does(forge: Forge) -> None:
    forge.limits += [Limit("secondary", 7), Limit("primary", 60, 429)]
    secondary, primary = (ask(forge, "GET", REPO) for _ in range(2))
    assert (secondary.status_code, secondary.headers["retry-after"]) == (403, "7")
    assert (primary.status_code, primary.headers["x-ratelimit-remaining"]) == (429, "0")
    assert httpx.get(forge.url + REPO).status_code == 401


def test_d6_git_lets_in_who_has_a_token_and_pushes_who_may_write(
    forge: Forge, tmp_path: Path
) -> None:
    host = forge.url.removeprefix("http://")

    def url(login: str) -> str:
        return f"http://x:{forge.token(login)}@{host}/acme/shop.git"

    git(tmp_path, "clone", "-q", url("eve"), "clone")
    clone = tmp_path / "clone"
    git(clone, "commit", "-q", "--allow-empty", "-m", "More")
    with pytest.raises(AssertionError, match="403"):
        git(clone, "push", "-q", url("eve"), "HEAD:refs/heads/eves")
    git(clone, "push", "-q", url("bot"), "HEAD:refs/heads/bots")
    assert set(forge.branches()) == {"main", "bots"}
