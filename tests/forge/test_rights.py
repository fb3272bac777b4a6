"""What `auth set` says of a forge's token: whether it counts, what it may, what is missing (D2)."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bullpen.errors import BullpenError
from bullpen.home import credentials
from bullpen.home.create import create_home
from bullpen.home.forge_token import check_form
from bullpen.home.paths import Home
from tests.at_terminal import AtTerminal
from tests.commands import Ran
from tests.forge.server import served_github, served_gitlab
from tests.forge.world import World

Bullpen = Callable[..., Ran]
GITHUB = "ghp_" + "Secret" * 6
FINE = "github_pat_" + "Secret" * 8
GITLAB = "glpat-" + "Secret" * 3
REPOSITORY = {"private": False, "permissions": {"push": True}}


@pytest.fixture
def pen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = create_home(tmp_path / "pen")
    monkeypatch.setenv("BULLPEN_DIR", str(home.root))
    return home


class Canned(BaseHTTPRequestHandler):
    """Answers by path: status, JSON, headers; 404 to others. Writes down what came."""

    answers: ClassVar[dict[str, tuple[int, Any, dict[str, str]]]] = {}
    seen: ClassVar[list[tuple[str, str, str]]] = []

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        token = self.headers.get("authorization") or self.headers.get("private-token") or ""
        self.seen.append((self.command, path, token))
        status, value, headers = self.answers.get(path, (404, {"message": "Not Found"}, {}))
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Canned, "answers", {})
    monkeypatch.setattr(Canned, "seen", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Canned) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("GITHUB_API_URL", url)
        monkeypatch.setenv("GITLAB_URL", url)
        yield url
        server.shutdown()


def answer(path: str, value: Any = "", status: int = 200, **headers: str) -> None:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    Canned.answers[path] = (status, value, named)


def github(scopes: str | None = None, **repository: Any) -> None:
    answer("/user", {"login": "bot"}, **({} if scopes is None else {"x_oauth_scopes": scopes}))
    answer("/repos/acme/shop", REPOSITORY | repository)
    answer("/repos/acme/shop/issues", [])
    answer("/repos/acme/shop/pulls", [])


def add_director(home: Home, type: str, server: str, repo: str = "acme/shop") -> None:
    fields = {"type": type, "repo": repo, "server": server, "role": "coder"}
    (home.directors / "robo.yaml").write_text(json.dumps(fields))


def hides(ran: Ran) -> bool:
    return "Secret" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("github-token", "ghp_with a space", "a space in it"),
        ("github-token", "ghp_with\ta tab", "a space in it"),
        ("github-token", "ghp_Sécret", "characters that no token has"),
        ("github-token", GITLAB, "what begins with glpat- is a gitlab-token"),
        ("gitlab-token", FINE, "what begins with github_pat_ is a github-token"),
        ("github-token", "sk-ant-oat01-Secret", "is a claude-token"),
        ("gitlab-token", "sk-ant-api03-Secret", "is a anthropic-api-key"),
    ],
)
def test_d2_what_can_be_no_token_is_refused(name: str, token: str, words: str) -> None:
    with pytest.raises(BullpenError) as raised:
        check_form(name, token)
    assert words in raised.value.message
    assert "cret" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    ("name", "token", "is_odd"),
    [
        *(("github-token", GITHUB, False), ("github-token", FINE, False)),
        *(("github-token", "0a" * 20, False), ("github-token", "mine-of-1999", True)),
        *(("gitlab-token", GITLAB, False), ("gitlab-token", "x" * 20, False)),
        ("gitlab-token", "acme-Secret", True),  # a server may have a beginning of its own
    ],
)
def test_d2_a_token_that_begins_in_an_unknown_way_is_odd_and_no_more(
    name: str, token: str, is_odd: bool
) -> None:
    assert bool(check_form(name, token)) == is_odd
    assert "cret" not in check_form(name, token)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scopes", "lacks"),
    [
        ("repo, workflow", ""),
        ("public_repo", ""),
        ("", "the scope repo (for public repositories alone: public_repo)"),
        ("read:org, gist", "the scope repo (for public repositories alone: public_repo)"),
    ],
)
def test_d2_a_classic_token_of_github_is_told_by_its_scopes(
    pen: Home, bullpen: Bullpen, address: str, scopes: str, lacks: str
) -> None:
    github(scopes)
    ran = bullpen("auth", "set", "github-token", stdin=GITHUB)
    assert (ran.code, hides(ran)) == (0, True)
    assert f"at {address} it is bot's · scopes: {scopes or 'none'}\n" in ran.out
    assert ran.err == (f"warning: at {address} it lacks {lacks}\n" if lacks else "")
    assert credentials.load(pen, "github-token") == GITHUB
    assert Canned.seen == [("GET", "/user", f"Bearer {GITHUB}")]


@pytest.mark.slow
def test_d2_a_fine_grained_token_is_told_by_what_a_director_needs(
    pen: Home, bullpen: Bullpen, address: str
) -> None:
    github()
    add_director(pen, "github", address)

    def lacks() -> str:
        ran = bullpen("auth", "set", "github-token", stdin=FINE)
        assert (ran.code, hides(ran)) == (0, True)
        assert f"at {address} (acme/shop) it is bot's\n" in ran.out
        return ran.err

    assert lacks() == ""
    denied = {"message": "Resource not accessible by personal access token"}
    answer("/repos/acme/shop/issues", denied, 403)
    answer("/repos/acme/shop", REPOSITORY | {"permissions": {"push": False}})
    assert lacks() == (
        f"warning: at {address} it lacks the right to push to acme/shop"
        " · the permission Issues (read and write) for acme/shop\n"
    )
    answer("/repos/acme/shop", {"message": "Not Found"}, 404)
    assert (
        lacks() == f"warning: at {address} it lacks acme/shop: it cannot see it, or there is none\n"
    )
    assert {method for method, _, _ in Canned.seen} == {"GET"}


@pytest.mark.slow
def test_d2_a_private_repository_needs_more_than_the_public_scope(
    pen: Home, bullpen: Bullpen, address: str
) -> None:
    github("public_repo", private=True)
    add_director(pen, "github", address)
    ran = bullpen("auth", "set", "github-token", "--json", stdin=GITHUB)
    [row] = ran.json["checked"]
    assert row["lacks"] == ["the scope repo: acme/shop is private"]
    assert (row["server"], row["repo"], row["login"]) == (address, "acme/shop", "bot")
    assert (row["scopes"], row["is_refused"], row["unchecked"]) == (["public_repo"], False, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "user", "lacks"),
    [
        ((200, {"scopes": ["api"]}), (200, {"username": "bot"}), ""),
        ((200, {"scopes": ["read_api", "read_user"]}), (200, {"username": "bot"}), "the scope api"),
        ((403, {"error": "insufficient_scope"}), (403, {}), "the scope api"),
        ((404, {}), (200, {"username": "bot"}), ""),  # it tells no scopes
    ],
)
def test_d4_a_token_of_gitlab_is_told_by_its_scopes(
    pen: Home,
    bullpen: Bullpen,
    address: str,
    token: tuple[int, Any],
    user: tuple[int, Any],
    lacks: str,
) -> None:
    answer("/api/v4/personal_access_tokens/self", token[1], token[0])
    answer("/api/v4/user", user[1], user[0])
    ran = bullpen("auth", "set", "gitlab-token", stdin=GITLAB)
    assert (ran.code, hides(ran)) == (0, True)
    assert ran.err == (f"warning: at {address} it lacks {lacks}\n" if lacks else "")
    assert credentials.load(pen, "gitlab-token") == GITLAB
    assert {seen[2] for seen in Canned.seen} == {GITLAB}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "token"), [("github-token", GITHUB), ("gitlab-token", GITLAB)])
def test_d2_a_token_that_the_forge_does_not_know_is_not_kept(
    pen: Home, bullpen: Bullpen, address: str, name: str, token: str
) -> None:
    credentials.store(pen, name, b"before")
    for path in ("/user", "/api/v4/user", "/api/v4/personal_access_tokens/self"):
        answer(path, {"message": "Bad credentials"}, 401)
    ran = bullpen("auth", "set", name, stdin=token)
    assert (ran.code, hides(ran)) == (6, True)
    assert f"{address} does not know that {name} (401), and it is not kept" in ran.err
    assert credentials.load(pen, name) == "before"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "value", "why"),
    [
        (503, "busy", "answers 503"),
        (200, "<html>", "answers no JSON"),
        (200, [], "what answers at"),
        (302, "", "answers 302"),
        (429, {"message": "slow down"}, "the rate limit of GitHub is reached"),
    ],
)
def test_d2_a_token_that_cannot_be_checked_is_kept_and_that_is_told(
    pen: Home, bullpen: Bullpen, address: str, status: int, value: Any, why: str
) -> None:
    answer("/user", value, status, location="http://127.0.0.1:9/")
    ran = bullpen("auth", "set", "github-token", stdin=GITHUB)
    assert (ran.code, hides(ran)) == (0, True)
    assert ran.err.startswith("warning: it is kept, and was not checked: ")
    assert why in ran.err
    assert ran.out == "github-token is set · no agent gets it\n"
    assert credentials.load(pen, "github-token") == GITHUB


@pytest.mark.slow
def test_d2_a_forge_that_is_away_leaves_an_odd_token_unchecked(pen: Home, bullpen: Bullpen) -> None:
    ran = bullpen(
        "auth", "set", "github-token", stdin="other_Secret", GITHUB_API_URL="http://127.0.0.1:9"
    )
    assert (ran.code, hides(ran)) == (0, True)
    odd, unchecked = ran.err.splitlines()
    assert odd.startswith("warning: it begins as no github-token does that we know (ghp_,")
    assert "cannot be reached at http://127.0.0.1:9" in unchecked
    ran = bullpen("auth", "set", "github-token", stdin="no Secret\n")
    assert (ran.code, hides(ran), "a space in it" in ran.err) == (2, True, True)
    ran = bullpen("auth", "set", "github-token", stdin="no\nSecret\n")
    assert (ran.code, hides(ran), "line break" in ran.err) == (2, True, True)
    assert credentials.load(pen, "github-token") == "other_Secret"


@pytest.mark.slow
def test_d2_a_token_typed_at_a_terminal_is_in_nothing_that_the_terminal_shows(
    pen: Home, address: str
) -> None:
    github("gist")
    terminal = AtTerminal("auth", "set", "github-token")
    terminal.expect("github-token (not shown): ")
    terminal.type(f"{GITHUB}\n")
    terminal.expect("it lacks the scope repo")
    assert terminal.end() == 0
    assert "Secret" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize("type", ["github", "gitlab"])
def test_d2_the_fakes_of_the_forges_say_who_it_is(
    pen: Home, bullpen: Bullpen, tmp_path: Path, type: str
) -> None:
    """With the exchanges checked against the forges' descriptions, where those have them."""
    served, token = {
        "github": (served_github, GITHUB),
        "gitlab": (served_gitlab, GITLAB),
    }[type]
    world = World("acme/shop", {"ann": "admin", "bot": "write"})
    with served(tmp_path, world) as forge:
        forge.tokens[token] = "bot"
        add_director(pen, type, forge.url)
        ran = bullpen("auth", "set", f"{type}-token", stdin=token)
        # GitLab's description does not have the token's own address, nor does the fake.
        assert [each for each in forge.faults if "personal_access_tokens" not in each] == []
        assert {method for method, _, _ in forge.asked} == {"GET"}
        assert (ran.code, ran.err) == (0, "")
        assert f"at {forge.url} (acme/shop) it is bot's\n" in ran.out
