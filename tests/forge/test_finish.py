"""`bullpen finish --pr`: N1. A real hub, agent and worktree; real git over HTTP with credentials;
the fakes of GitHub and GitLab."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.directors.forge.remote import KnownServer, RemoteForge, find_forge
from bullpen.errors import BullpenError
from bullpen.files import write_atomically
from tests.commands import Ran
from tests.forge.gitlab_routes import MERGE_REQUESTS
from tests.forge.server import Forge, served_github, served_gitlab
from tests.forge.world import World
from tests.hub.landing.yard import Yard, made_yard
from tests.worktrees.repos import commit, git

SERVED = {"github": served_github, "gitlab": served_gitlab}


# ── which forge a remote is ──

OURS = (
    KnownServer("gitlab", "https://git.example.com"),
    KnownServer("github", "http://[::1]:8080"),
)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://github.com/acme/shop.git", RemoteForge("github", "acme/shop")),
        ("https://ann:secret@github.com/acme/shop", RemoteForge("github", "acme/shop")),
        ("git@github.com:acme/shop.git", RemoteForge("github", "acme/shop")),
        ("ssh://git@ssh.github.com:443/acme/shop.git", RemoteForge("github", "acme/shop")),
        ("git@gitlab.com:acme/web/shop.git", RemoteForge("gitlab", "acme/web/shop")),
        (
            "ssh://git@git.example.com:2222/acme/shop.git",
            RemoteForge("gitlab", "acme/shop", "https://git.example.com"),
        ),
        ("http://[::1]:8080/acme/shop/", RemoteForge("github", "acme/shop", "http://[::1]:8080")),
    ],
)
def test_n1_the_forge_of_a_remote_is_known_by_its_url(url: str, found: RemoteForge) -> None:
    assert find_forge(url, OURS) == found


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/srv/git/shop.git", "on no forge"),
        ("../shop", "on no forge"),
        ("file:///srv/git/shop.git", "on no forge"),
        ("https://github.com/shop", "names no repository"),
        ("https://ann:heron@other.example/acme/shop", "nothing says which forge that is"),
        ("http://[::1]:8081/acme/shop", "nothing says which forge that is"),
        ("https://github.com.evil.example/acme/shop", "nothing says which forge that is"),
    ],
)
def test_n1_a_remote_that_is_no_forge_is_refused(url: str, why: str) -> None:
    with pytest.raises(BullpenError, match=why) as caught:
        find_forge(url, OURS)
    assert "heron" not in str(caught.value)


# ── the whole way ──


@pytest.fixture(params=["github", pytest.param("gitlab", marks=pytest.mark.storm)])
def forge(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Forge]:
    world = World("acme/shop", {"ann": "admin", "bot": "write"})
    with SERVED[request.param](tmp_path, world) as made:
        made.type = request.param  # type: ignore[attr-defined]
        yield made
        assert made.faults == []


@pytest.fixture
def yard(forge: Forge) -> Iterator[Yard]:
    """Its repository is a clone of what the forge has, and the home has a token."""
    with made_yard() as made:
        made.pen.start()
        git(made.repo, "push", "-q", "--force", str(forge.bare), "main")
        git(made.repo, "remote", "add", "origin", f"{forge.url}/acme/shop.git")
        file = made.pen.home.directors / "robo.yaml"
        file.parent.mkdir(exist_ok=True)
        kind = forge.type  # type: ignore[attr-defined]
        fields = {"type": kind, "repo": "acme/shop", "server": forge.url, "role": "worker"}
        file.write_text(json.dumps(fields))
        token = made.pen.home.credentials / f"{kind}-token"
        write_atomically(token, f"{forge.token('bot')}\n", mode=0o600)
        yield made


def finish(yard: Yard, name: str, *words: str) -> Ran:
    return yard.pen.cli("finish", name, "--pr", *words, cwd=yard.repo)


@pytest.mark.slow
def test_n1_finish_by_pull_request_pushes_asks_once_and_removes_the_agent(
    yard: Yard, forge: Forge
) -> None:
    tree = yard.agent("amy", a_txt="a\n")
    ran = finish(yard, "amy", "--json")
    assert ran.code == 0, ran
    shown = json.loads(ran.out)
    [pull] = forge.world.pulls
    assert pull.pull is not None
    assert (pull.pull.branch, pull.pull.base, pull.pull.draft) == ("amy", "main", False)
    first = MERGE_REQUESTS if forge.type == "gitlab" else 0  # type: ignore[attr-defined]
    assert (shown["how"], shown["pull"]["number"]) == ("pr", first + pull.number)
    assert forge.branches()["amy"] == git(yard.repo, "rev-parse", "amy")
    assert forge.pushed == ["bot"]
    assert not tree.exists() and "amy" not in yard.pen.agents()
    # Again, it is the same one, and nothing is pushed.
    again = finish(yard, "amy")
    assert again.code == 0, again
    assert f"pull request there already: {shown['pull']['url']}" in again.out
    assert [each.number for each in forge.world.pulls] == [pull.number]
    assert forge.pushed == ["bot"]
    token = forge.token("bot")
    log = "".join(path.read_text() for path in yard.pen.home.logs.glob("*.log"))
    assert (
        token not in ran.out + ran.err + again.out + log + (yard.repo / ".git/config").read_text()
    )


@pytest.mark.slow
def test_n1_what_a_crash_left_out_is_made_up_for(yard: Yard, forge: Forge) -> None:
    yard.agent("amy", a_txt="a\n")
    # Killed after the push.
    git(yard.repo, "push", "-q", str(forge.bare), "amy")
    # Asked for, and the answer was lost.
    forge.lost.append("/pulls" if forge.type == "github" else "/merge_requests")  # type: ignore[attr-defined]
    ran = finish(yard, "amy")
    assert ran.code != 0, ran
    assert "amy" in yard.pen.agents()  # nothing of it is gone
    ran = finish(yard, "amy")
    assert ran.code == 0 and "there already" in ran.out, ran
    assert len(forge.world.pulls) == 1
    assert forge.pushed == []


@pytest.mark.slow
@pytest.mark.storm
def test_n1_what_stands_in_the_way_of_a_pull_request_is_said_and_nothing_is_lost(
    yard: Yard, forge: Forge
) -> None:
    tree = yard.agent("amy")
    kind = forge.type  # type: ignore[attr-defined]

    def refused(*words: str) -> str:
        ran = finish(yard, "amy", *words)
        assert ran.code != 0, ran
        assert forge.world.pulls == [] and forge.pushed == []
        assert tree.exists() and yard.pen.agents()["amy"]["running"]
        return ran.err

    assert "nothing to ask for: main has all of its commits" in refused()
    (tree / "left.txt").write_text("left\n")
    assert "uncommitted work, which stays as it is: left.txt" in refused()
    (tree / "left.txt").unlink()
    secret = yard.pen.home.credentials / f"{kind}-token"
    commit(tree, "leak.txt", secret.read_text())
    assert "is in its commits, in " in refused()
    git(tree, "reset", "-q", "--hard", "main")
    commit(tree, "a.txt", "a\n")
    assert "has no branch nowhere" in refused("--into", "nowhere")
    # Somebody else's commits on a branch of that name.
    git(yard.repo, "checkout", "-q", "-b", "theirs")
    commit(yard.repo, "theirs.txt", "x\n")
    git(yard.repo, "push", "-q", str(forge.bare), "theirs:amy")
    git(yard.repo, "checkout", "-q", "main")
    assert "the forge's amy has commits that this one lacks" in refused()
    secret.rename(yard.pen.root / "kept")
    assert f"bullpen auth set {kind}-token" in refused()
    git(yard.repo, "remote", "remove", "origin")
    assert "no remote called origin" in refused()
