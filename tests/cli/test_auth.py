"""Credentials come in unseen, are kept privately, and are given to engines; nothing shows them."""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from bullpen.cli.setup_token import find_token
from bullpen.component import ask
from bullpen.component.redact import REDACTED, Redactor
from bullpen.engines.claude import config
from bullpen.errors import BullpenError, Kind
from bullpen.home import credentials
from bullpen.home.create import create_home
from bullpen.home.credentials import LOGINS, NAMES, SECRETS, Login, find_login
from bullpen.home.paths import Home
from tests.at_terminal import AtTerminal
from tests.commands import BULLPEN, Ran
from tests.engines.cli import program

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]
VALUE = "sk-ant-oat01-" + "Secret_" * 10 + "-wxyz"
STARTS = {"github-token": "ghp_", "gitlab-token": "glpat-"}  # tokens of others are refused


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for ways in LOGINS.values():
        for variable in (*ways.reads, *ways.instead, *ways.gives, ways.variable):
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def pen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = create_home(tmp_path / "pen")
    monkeypatch.setenv("BULLPEN_DIR", str(home.root))
    return home


def hides(ran: Ran) -> bool:
    """Nothing of the value in what was printed, not even its end."""
    return not any(part in ran.out + ran.err for part in ("Secret", "wxyz", "oat01"))


# ── keeping ──


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.few(2)
def test_f4_value_comes_from_standard_input_and_is_kept_privately(
    pen: Home, bullpen: Bullpen, name: str
) -> None:
    nobody = "http://127.0.0.1:9"
    value = f"{STARTS.get(name, '')}{VALUE}"
    ran = bullpen("auth", "set", name, stdin=f"{value}\n", GITHUB_API_URL=nobody, GITLAB_URL=nobody)
    assert ran.code == 0
    assert hides(ran)
    given = [value in credentials.engine_variables(pen, engine).values() for engine in LOGINS]
    assert ran.out.endswith("from now on\n" if any(given) else "no agent gets it\n")
    assert credentials.load(pen, name) == value
    file = pen.credentials / name
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in pen.credentials.iterdir()) == [name]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abc\n", "abc"),
        ("abc", "abc"),
        ("abc\r\n", "abc"),
        ("a" * 65536 + "\n", "a" * 65536),
        ("a b", "a b"),
        ("schlüssel", "schlüssel"),
    ],
)
def test_one_line_break_at_the_end_goes(given: str, kept: str) -> None:
    assert credentials.parse("github-token", given.encode()) == kept


@pytest.mark.parametrize(
    "given",
    [
        *(b"", b"\n", b"   ", b"\t", b"abc\n\n", b"abc\ndef", b"a\x00b", b"a\x1b[31m", b"a\x7f"),
        *(b"\xff\xfe", "a\u200bb".encode(), "a\u2028b".encode(), b"a" * 65537, b"a\r\nb"),
    ],
)
def test_f4_what_is_no_value_is_refused_and_changes_nothing(
    pen: Home, bullpen: Bullpen, given: bytes
) -> None:
    credentials.store(pen, "github-token", b"before")
    with pytest.raises(BullpenError) as caught:
        credentials.store(pen, "github-token", given)
    assert caught.value.kind is Kind.INVALID
    assert credentials.load(pen, "github-token") == "before"


def test_f4_endless_input_is_refused(pen: Home) -> None:
    with Path("/dev/zero").open("rb") as zeros:
        words = [BULLPEN, "auth", "set", "github-token"]
        done = subprocess.run(words, stdin=zeros, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"longer than 64 KiB" in done.stderr
    assert credentials.load(pen, "github-token") is None


def test_no_input_at_all_is_refused(pen: Home, bullpen: Bullpen) -> None:
    ran = bullpen("auth", "set", "claude-token")
    assert ran.code == 2
    assert "is empty" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("claude-token", VALUE),
        ("claude-token", f"--{VALUE}"),
        ("claude-token", f"-{VALUE}"),
        ("claude-token", "--", VALUE),
        ("claude-token", VALUE, "--json"),
        (VALUE,),
        (f"claude-token={VALUE}",),
        (f"--{VALUE}",),
    ],
)
def test_f4_value_on_the_command_line_is_refused_and_not_repeated(
    pen: Home, bullpen: Bullpen, words: tuple[str, ...]
) -> None:
    ran = bullpen("auth", "set", *words, stdin="other\n")
    assert ran.code in (2, 4)
    assert hides(ran)
    assert "claude-token" in ran.err
    assert list(pen.credentials.iterdir()) == []


def test_f4_at_a_terminal_the_value_is_typed_unseen(pen: Home) -> None:
    terminal = AtTerminal("auth", "set", "claude-token")
    terminal.expect("claude-token (not shown): ")
    terminal.type(f"{VALUE}\n")
    assert terminal.end() == 0
    assert "claude-token is set" in terminal.text
    assert "Secret" not in terminal.text
    assert credentials.load(pen, "claude-token") == VALUE


def test_at_a_terminal_end_of_input_sets_nothing(pen: Home) -> None:
    terminal = AtTerminal("auth", "set", "claude-token")
    terminal.expect("not shown")
    terminal.type("\x04")
    assert terminal.end() == 2
    assert credentials.load(pen, "claude-token") is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o610])
def test_f4_open_file_is_refused_with_the_fix(pen: Home, mode: int) -> None:
    credentials.store(pen, "gemini-api-key", VALUE.encode())
    file = pen.credentials / "gemini-api-key"
    file.chmod(mode)
    for act in (
        lambda: credentials.load(pen, "gemini-api-key"),
        lambda: credentials.engine_variables(pen, "gemini"),
    ):
        with pytest.raises(BullpenError) as caught:
            act()
        assert caught.value.kind is Kind.DENIED
        assert caught.value.hint == f"chmod 600 {file}"
        assert "Secret" not in caught.value.message
    assert credentials.engine_variables(pen, "claude") == {}
    file.chmod(0o600)
    assert credentials.load(pen, "gemini-api-key") == VALUE


def test_f4_the_hubs_own_token_is_taken_from_a_private_file_only(pen: Home) -> None:
    with pytest.raises(BullpenError, match="there is no"):
        ask.owner_token(pen)
    file = pen.credentials / "api-token"
    file.write_text("hush\n")
    file.chmod(0o640)
    with pytest.raises(BullpenError) as caught:
        ask.owner_token(pen)
    assert (caught.value.kind, caught.value.hint) == (Kind.DENIED, f"chmod 600 {file}")
    file.chmod(0o600)
    assert ask.owner_token(pen) == "hush"


def test_f4_open_directory_is_refused_with_the_fix(pen: Home) -> None:
    credentials.store(pen, "gemini-api-key", VALUE.encode())
    pen.credentials.chmod(0o750)
    with pytest.raises(BullpenError) as caught:
        credentials.load(pen, "gemini-api-key")
    assert caught.value.hint == f"chmod 700 {pen.credentials}"
    with pytest.raises(BullpenError):
        credentials.store(pen, "github-token", b"x")
    assert [path.name for path in pen.credentials.iterdir()] == ["gemini-api-key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_f4_file_of_another_user_is_refused(pen: Home) -> None:
    credentials.store(pen, "gemini-api-key", VALUE.encode())
    os.chown(pen.credentials / "gemini-api-key", 12345, -1)
    with pytest.raises(BullpenError, match="belongs to another user"):
        credentials.load(pen, "gemini-api-key")


def test_link_or_pipe_in_place_of_a_file_is_refused(pen: Home, tmp_path: Path) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    (pen.credentials / "gitlab-token").symlink_to(pen.credentials / "github-token")
    os.mkfifo(pen.credentials / "claude-token", 0o600)
    (pen.credentials / "openai-api-key").mkdir(mode=0o700)
    for name in ("gitlab-token", "claude-token", "openai-api-key"):
        with pytest.raises(BullpenError) as caught:
            credentials.load(pen, name)
        assert caught.value.kind is Kind.DENIED
    credentials.store(pen, "gitlab-token", b"new")
    assert credentials.load(pen, "gitlab-token") == "new"
    assert credentials.load(pen, "github-token") == VALUE


def test_file_that_was_spoilt_by_hand_is_named(pen: Home) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    (pen.credentials / "github-token").write_text(f"{VALUE}\n# mine\n")
    with pytest.raises(BullpenError, match=r"github-token: .* line break") as caught:
        credentials.load(pen, "github-token")
    assert "Secret" not in caught.value.message


def test_clear(pen: Home, bullpen: Bullpen) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    (pen.credentials / "github-token").chmod(0o644)
    assert "is forgotten" in bullpen("auth", "clear", "github-token").out
    assert credentials.load(pen, "github-token") is None
    ran = bullpen("auth", "clear", "github-token", "--json")
    assert (ran.code, ran.json["was_set"]) == (0, False)


def test_f4_the_hubs_own_token_is_shown_and_neither_set_nor_cleared(
    pen: Home, bullpen: Bullpen
) -> None:
    assert bullpen("auth", "status", "api-token", "--json").json["credentials"][0]["set"] is False
    path = pen.credentials / "api-token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o640)
    for words in (("set", "api-token"), ("clear", "api-token")):
        ran = bullpen("auth", *words, stdin="other\n")
        assert ran.code == 6
        assert "is the hub's own" in ran.err
    assert path.read_text() == f"{VALUE}\n"
    ran = bullpen("auth", "status")
    assert hides(ran)
    assert ran.out.splitlines()[1].split()[:2] == ["api-token", "refused"]
    assert f"chmod 600 {path}" in ran.out
    path.chmod(0o600)
    assert bullpen("auth", "status").out.splitlines()[1].split()[:2] == ["api-token", "set"]


def test_f4_status_of_one_credential(pen: Home, bullpen: Bullpen) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    ran = bullpen("auth", "status", "github-token", "--json")
    assert [entry["name"] for entry in ran.json["credentials"]] == ["github-token"]
    assert ran.json["credentials"][0]["set"] is True
    lines = bullpen("auth", "status", "github-token").out.splitlines()
    assert (len(lines), lines[1].split()[:2]) == (2, ["github-token", "set"])
    ran = bullpen("auth", "status", VALUE)
    assert (ran.code, hides(ran)) == (4, True)


# ── giving ──


@pytest.mark.parametrize(
    ("engine", "variables"),
    [
        (
            "claude",
            {"CLAUDE_CODE_OAUTH_TOKEN": "claude-token", "ANTHROPIC_API_KEY": "anthropic-api-key"},
        ),
        ("gemini", {"GEMINI_API_KEY": "gemini-api-key"}),
        ("codex", {"CODEX_API_KEY": "openai-api-key", "OPENAI_API_KEY": "openai-api-key"}),
        ("command", {}),
        ("unheard-of", {}),
    ],
)
def test_f4_each_engine_gets_its_own_and_nothing_else(
    pen: Home, engine: str, variables: dict[str, str]
) -> None:
    assert credentials.engine_variables(pen, engine) == {}
    for name in SECRETS:
        credentials.store(pen, name, f"value-of-{name}".encode())
    assert credentials.engine_variables(pen, engine) == {
        variable: f"value-of-{name}" for variable, name in variables.items()
    }


def test_without_a_credentials_directory_nothing_is_set(home: Path) -> None:
    assert credentials.engine_variables(Home(home), "claude") == {}
    credentials.store(Home(home), "claude-token", b"abc")
    assert Home(home).credentials.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "given",
    [
        "Ann Bee <ann@example.com>\n",
        "Ann Bee\nann@example.com\n",
        "Ann Bee\r\nann@example.com",
        "name = Ann Bee\nemail = ann@example.com\n",
        "[user]\n\temail=ann@example.com\n\tname=Ann Bee\n",
    ],
)
def test_f4_git_identity_reaches_a_real_commit(
    pen: Home, bullpen: Bullpen, tmp_path: Path, given: str
) -> None:
    assert bullpen("auth", "set", "git-config", stdin=given).code == 0
    variables = credentials.engine_variables(pen, "command")
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", repo], check=True)
    env = {**os.environ, **variables}
    commit = ["git", "-C", repo, "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, env=env, check=True)
    log = ["git", "-C", repo, "log", "-1", "--format=%an|%ae|%cn|%ce"]
    said = subprocess.run(log, capture_output=True, text=True, check=True).stdout
    assert said == "Ann Bee|ann@example.com|Ann Bee|ann@example.com\n"


@pytest.mark.parametrize(
    "given",
    [
        *(
            "",
            "Ann",
            "ann@example.com\nAnn",
            "<ann@example.com>",
            "Ann\n\n",
            "Ann\nann@",
            "Ann\n@x",
        ),
        *(
            "Ann <a@b> <c@d>",
            "Ann\na@b\nmore",
            "A\x1bnn <a@b>",
            "Ann <a b@c>",
            "name = Ann",
            "name = Ann\nmail = a@b",
            "name =\nemail = a@b",
        ),
    ],
)
def test_f4_what_is_no_identity_is_refused(pen: Home, given: str) -> None:
    with pytest.raises(BullpenError):
        credentials.store(pen, "git-config", given.encode())
    assert credentials.git_identity(pen) == {}


def test_git_identity_is_asked_for_at_a_terminal(pen: Home) -> None:
    terminal = AtTerminal("auth", "set", "git-config")
    terminal.expect("Name: ")
    terminal.type("Ann Bee\n")
    terminal.expect("Mail address: ")
    terminal.type("ann@example.com\n")
    assert terminal.end() == 0
    assert credentials.git_identity(pen)["GIT_COMMITTER_EMAIL"] == "ann@example.com"


# ── who agents commit as, asked of a forge ──


class Forge(BaseHTTPRequestHandler):
    """Answers what `reply` says, and writes down what it was asked."""

    reply: ClassVar[tuple[int, bytes, dict[str, str]]] = (200, b"{}", {})
    seen: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        code, body, headers = self.reply
        self.seen.append((self.path, self.headers.get("authorization", "")))
        self.send_response(code)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Forge.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forge)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GITHUB_API_URL", address)
    monkeypatch.setenv("GITLAB_URL", f"{address}/")
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody is there
    yield address
    server.shutdown()
    server.server_close()


def answers(monkeypatch: pytest.MonkeyPatch, code: int, body: object, **headers: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    monkeypatch.setattr(Forge, "reply", (code, raw, headers))


@pytest.mark.parametrize(
    ("name", "user", "path", "identity"),
    [
        (
            "github",
            {"login": "ann", "id": 7, "name": "Ann Bee", "email": "ann@example.com"},
            *("/user", "Ann Bee|ann@example.com"),
        ),
        (
            "github",
            {"login": "ann", "id": 7, "name": None, "email": None},
            *("/user", "ann|7+ann@users.noreply.127.0.0.1"),
        ),
        (
            "github",
            {"login": "ann", "id": 7, "name": "Ann\nBee", "email": "<>"},
            *("/user", "ann|7+ann@users.noreply.127.0.0.1"),
        ),
        (
            "gitlab",
            {"username": "ann", "id": 7, "name": "Ann", "email": "a@b.c", "commit_email": "c@d.e"},
            *("/api/v4/user", "Ann|c@d.e"),
        ),
        (
            "gitlab",
            {"username": "ann", "id": 7, "name": "", "email": ""},
            *("/api/v4/user", "ann|7-ann@users.noreply.127.0.0.1"),
        ),
    ],
)
def test_f4_git_identity_is_derived_from_the_forges_token(
    pen: Home,
    bullpen: Bullpen,
    forge: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    user: dict[str, object],
    path: str,
    identity: str,
) -> None:
    credentials.store(pen, f"{name}-token", VALUE.encode())
    answers(monkeypatch, 200, user)
    ran = bullpen("auth", "set", "git-config", "--from", name)
    assert (ran.code, ran.err, hides(ran)) == (0, "", True)
    wanted, email = identity.split("|")
    assert ran.out == f"agents started from now on commit as {wanted} <{email}>\n"
    given = credentials.git_identity(pen)
    assert (given["GIT_AUTHOR_NAME"], given["GIT_COMMITTER_EMAIL"]) == (wanted, email)
    assert Forge.seen == [(path, f"Bearer {VALUE}")]


@pytest.mark.parametrize(
    ("code", "body", "exit_code", "told"),
    [
        (401, b"{}", 6, "refuses the github-token of this home (401)"),
        (403, b"{}", 6, "(403)"),
        (404, b"{}", 3, "answers 404"),
        (500, b"{}", 3, "answers 500"),
        (200, b"<html>", 3, "is not github"),
        (200, b"\xff\xfe", 3, "is not github"),
        (200, b"[" * 100_000, 3, "is not github"),
        (200, b" " * (1 << 20) + b"{}", 3, "is not github"),
        (200, b"[]", 1, "does not say who"),
        (200, b'{"login": 1, "id": "x"}', 1, "does not say who"),
        (200, b'{"login": "a<b", "id": 1}', 1, "does not say who"),
    ],
)
def test_f4_forge_that_does_not_say_changes_nothing(
    pen: Home,
    bullpen: Bullpen,
    forge: str,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    body: bytes,
    exit_code: int,
    told: str,
) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    credentials.store(pen, "git-config", b"Old <old@example.com>")
    answers(monkeypatch, code, body)
    ran = bullpen("auth", "set", "git-config", "--from", "github", stdin="New <new@x.y>")
    assert (ran.code, told in ran.err, hides(ran)) == (exit_code, True, True)
    assert len(Forge.seen) == 1
    assert credentials.git_identity(pen)["GIT_AUTHOR_NAME"] == "Old"


def test_f4_token_does_not_follow_a_redirection(
    pen: Home, bullpen: Bullpen, forge: str, refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    for code in (301, 302, 303, 307, 308):
        answers(monkeypatch, code, b"", location=f"{refusing}/user")
        ran = bullpen("auth", "set", "git-config", "--from", "github")
        assert (ran.code, f"answers {code}" in ran.err) == (3, True)
    assert len(Forge.seen) == 5
    assert Refusing.seen == []


@pytest.mark.parametrize(
    "address",
    [
        *("http://192.0.2.1", "http://example.com", "ftp://127.0.0.1", "127.0.0.1:1", "https://"),
        *("https://ann:wxyz@127.0.0.1", "http://127.0.0.1:x", "file:///etc/passwd", "http://[::1"),
        *("http://127.0.0.1@192.0.2.1", "http://127.0.0.1.example.com", "http://127.0.0.1 x/"),
    ],
)
def test_f4_token_is_not_sent_to_an_unsafe_address(
    pen: Home, bullpen: Bullpen, address: str
) -> None:
    credentials.store(pen, "github-token", VALUE.encode())
    ran = bullpen("auth", "set", "git-config", "--from", "github", GITHUB_API_URL=address)
    assert (ran.code, hides(ran)) == (2, True)
    assert "GITHUB_API_URL is no address that a token may be sent to" in ran.err


def test_f4_forge_that_is_away_or_a_token_that_is_not_there(pen: Home, bullpen: Bullpen) -> None:
    words = ("auth", "set", "git-config", "--from", "gitlab")
    ran = bullpen(*words, GITLAB_URL="http://127.0.0.1:9")
    assert (ran.code, "gitlab-token is not set" in ran.err) == (4, True)
    credentials.store(pen, "gitlab-token", VALUE.encode())
    ran = bullpen(*words, GITLAB_URL="http://127.0.0.1:9")
    assert (ran.code, "cannot be reached" in ran.err, hides(ran)) == (3, True, True)
    credentials.store(pen, "gitlab-token", f"{VALUE}é☃".encode())
    ran = bullpen(*words, GITLAB_URL="http://127.0.0.1:9")
    assert (ran.code, "not ASCII" in ran.err, hides(ran)) == (2, True, True)


@pytest.mark.parametrize(
    "words", [("claude-token", "--from", "github"), ("git-config", "--from", VALUE)]
)
def test_f4_from_is_for_the_identity_and_names_a_forge(
    pen: Home, bullpen: Bullpen, words: tuple[str, ...]
) -> None:
    ran = bullpen("auth", "set", *words, stdin="other\n")
    assert (ran.code, hides(ran)) == (2, True)
    assert "--from is for git-config only" in ran.err
    assert list(pen.credentials.iterdir()) == []


# ── which login ──


def test_f4_login_is_what_the_program_would_take_first(pen: Home, tmp_path: Path) -> None:
    person = tmp_path / "person"
    env: dict[str, str] = {}

    def kind(engine: str = "claude") -> tuple[str, str]:
        login = find_login(pen, engine, env, person)
        return login.kind, login.text.split()[0]

    assert kind() == ("none", "none")
    (person / ".claude").mkdir()
    (person / ".claude" / ".credentials.json").touch()
    assert find_login(pen, "claude", env, person) == Login("own", "your own (~/.claude)")
    env["CLAUDE_CONFIG_DIR"] = str(tmp_path / "nowhere")
    assert kind() == ("none", "none")
    (pen.claude_config / ".credentials.json").touch()
    assert kind()[0] == "home"
    env["CLAUDE_CODE_OAUTH_TOKEN"] = "t"
    assert kind() == ("shell", "CLAUDE_CODE_OAUTH_TOKEN")
    credentials.store(pen, "claude-token", b"t")
    assert kind() == ("stored", "claude-token")
    env["ANTHROPIC_API_KEY"] = "k"
    assert kind() == ("shell", "ANTHROPIC_API_KEY")
    credentials.store(pen, "anthropic-api-key", b"k")
    assert kind() == ("stored", "anthropic-api-key")
    env["ANTHROPIC_AUTH_TOKEN"] = "a"
    assert kind() == ("shell", "ANTHROPIC_AUTH_TOKEN")


@pytest.mark.parametrize("variable", config.LOGINS)
def test_f4_doctor_and_start_take_the_same_for_a_login(
    pen: Home, tmp_path: Path, variable: str
) -> None:
    nobodys = config.Config(None, tmp_path / ".claude.json")
    for env, kind in (({}, "none"), ({variable: "x"}, "shell")):
        assert find_login(pen, "claude", env, tmp_path).kind == kind
        with contextlib.nullcontext() if env else pytest.raises(BullpenError, match="logged in"):
            config.check_login(nobodys, env, tmp_path, [])


@pytest.mark.parametrize(
    ("engine", "file"), [("gemini", ".gemini/oauth_creds.json"), ("codex", ".codex/auth.json")]
)
def test_f4_own_login_of_the_others(pen: Home, tmp_path: Path, engine: str, file: str) -> None:
    person = tmp_path / "person"
    assert find_login(pen, engine, {"OPENAI_API_KEY": "k"}, person).kind == "none"
    (person / file).parent.mkdir()
    (person / file).touch()
    assert find_login(None, engine, {}, person).kind == "own"


def test_f4_status_says_what_is_set_and_nothing_of_the_value(pen: Home, bullpen: Bullpen) -> None:
    credentials.store(pen, "claude-token", VALUE.encode())
    credentials.store(pen, "github-token", VALUE.encode())
    (pen.credentials / "github-token").chmod(0o644)
    for words in (("auth", "status"), ("auth", "status", "--json")):
        ran = bullpen(*words, ANTHROPIC_API_KEY="shell-Secret-key")
        assert ran.code == 0
        assert hides(ran)
    kept = {entry["name"]: entry for entry in ran.json["credentials"]}
    assert tuple(kept) == ("api-token", *NAMES)
    assert kept["claude-token"]["set"] is True
    assert kept["claude-token"]["since"].startswith("20")
    assert kept["claude-token"]["problem"] is None
    assert kept["gitlab-token"] == {
        "name": "gitlab-token",
        "set": False,
        "since": None,
        "problem": None,
    }
    assert f"chmod 600 {pen.credentials / 'github-token'}" in kept["github-token"]["problem"]
    logins = {entry["engine"]: entry["login"] for entry in ran.json["engines"]}
    assert logins["claude"] == "ANTHROPIC_API_KEY of your shell"
    assert logins["gemini"] == "none found"
    lines = bullpen("auth", "status").out.splitlines()
    assert [line.split()[1] for line in lines[1:9]] == [
        *("–", "set", "–", "–", "–", "refused", "–", "–")
    ]
    assert "claude  claude-token of this home" in lines


def test_status_with_a_refused_credential_says_so_per_engine(pen: Home, bullpen: Bullpen) -> None:
    credentials.store(pen, "gemini-api-key", VALUE.encode())
    (pen.credentials / "gemini-api-key").chmod(0o644)
    ran = bullpen("auth", "status")
    assert "gemini  refused" in ran.out
    assert ran.out.count("chmod 600") == 1


def test_f4_log_hides_every_form() -> None:
    redactor = Redactor()
    for value in (VALUE, "sk-ant-api03-" + "x" * 60, "sk-proj-" + "x" * 40, "AIza" + "x" * 35):
        assert redactor.text(f"said {value} to it") == f"said {REDACTED} to it"
    for ways in LOGINS.values():
        for variable in ways.gives:
            assert redactor.field(variable, "plain") == REDACTED
            assert "plain" not in redactor.text(f"{variable}=plain")


# ── bullpen auth claude ──


def fake_claude(tmp_path: Path, script: str) -> str:
    path = tmp_path / "claude"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


MADE = "sk-ant-oat01-" + "Ab_9-" * 19


def test_e2_auth_claude_keeps_the_token_that_setup_token_makes(pen: Home, tmp_path: Path) -> None:
    fake = fake_claude(
        tmp_path,
        '[ -t 0 ] && [ -t 1 ] && [ -z "$ANTHROPIC_API_KEY$CLAUDE_CODE_OAUTH_TOKEN" ] || exit 9\n'
        'stty raw; echo "in $(pwd) with $*"; head -c 1 >/dev/null\n'
        f'stty sane; printf "\\033[1m%s\\033[0m\\nStore it\\n" "{MADE}"',
    )
    env = {"BULLPEN_CLAUDE_BIN": fake, "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_OAUTH_TOKEN": "t"}
    terminal = AtTerminal("auth", "claude", **env)
    terminal.expect(f"in {pen.root} with setup-token")
    terminal.type("x")
    assert terminal.end() == 0, terminal.text
    assert "claude-token is set" in terminal.text
    assert "but this comes before it: ANTHROPIC_API_KEY of your shell" in terminal.text
    assert credentials.load(pen, "claude-token") == MADE


def test_e2_auth_claude_takes_a_token_that_it_did_not_see(pen: Home, tmp_path: Path) -> None:
    terminal = AtTerminal("auth", "claude", BULLPEN_CLAUDE_BIN=fake_claude(tmp_path, "exit 0"))
    terminal.expect("claude-token (not shown): ")
    terminal.type(f"{MADE}\n")
    assert terminal.end() == 0, terminal.text
    assert MADE not in terminal.text
    assert credentials.load(pen, "claude-token") == MADE


def test_e2_auth_claude_says_when_setup_token_failed(pen: Home, tmp_path: Path) -> None:
    terminal = AtTerminal("auth", "claude", BULLPEN_CLAUDE_BIN=fake_claude(tmp_path, "exit 7"))
    assert terminal.end() == 1
    assert "claude setup-token ended with 7" in terminal.text
    assert credentials.load(pen, "claude-token") is None


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f"Your token:\r\n{MADE}\r\nStore it", 200),
        (f"\x1b[32m{MADE}\x1b[0m\r\nStore it", 108),
        (f"  {MADE[:78]}\r\n  {MADE[78:]}\r\n\r\nStore it", 80),
        (f"{MADE[:40]}\r\n{MADE[40:80]}\r\n{MADE[80:]}\r\nStore it", 40),
        (f"old sk-ant-oat01-other\r\n{MADE}\r\n", 200),
    ],
)
def test_e2_a_token_is_found_in_what_the_terminal_was_given(text: str, columns: int) -> None:
    assert find_token(text.encode(), columns) == MADE
    assert find_token(b"no token here\r\n", columns) == ""


def test_auth_claude_needs_a_terminal_and_a_program(pen: Home, bullpen: Bullpen) -> None:
    ran = bullpen("auth", "claude")
    assert ran.code == 2
    assert "claude setup-token" in ran.err
    terminal = AtTerminal("auth", "claude", BULLPEN_CLAUDE_BIN="/no/such")
    assert terminal.end() == 3
    assert "/no/such" in terminal.text


# ── the real programs ──


class Refusing(BaseHTTPRequestHandler):
    """Writes down what came to log in with, and refuses."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        for name in ("authorization", "x-api-key"):
            self.seen.append(self.headers.get(name, "").removeprefix("Bearer "))
        self.send_response(400)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    Refusing.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run_real(name: str, words: list[str], directory: Path, env: dict[str, str]) -> set[str]:
    """What the program logged in with."""
    subprocess.run(
        [program(name), *words],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    return {value for value in Refusing.seen if value}


@pytest.mark.storm
def test_e2_real_claude_shows_its_login_and_nothing_before(pen: Home, tmp_path: Path) -> None:
    terminal = AtTerminal(
        *("auth", "claude"),
        BULLPEN_CLAUDE_BIN=str(program("claude")),
        ANTHROPIC_BASE_URL="http://127.0.0.1:9",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL="1",
        DISABLE_AUTOUPDATER="1",
        DISABLE_TELEMETRY="1",
        TERM="xterm-256color",
        TMPDIR=str(tmp_path),
    )
    # Single words: between them it moves the cursor in place of writing spaces.
    terminal.expect("long-lived")
    terminal.expect("prompted")
    assert "trust" not in terminal.text
    for _ in range(2):
        terminal.type("\x03")
    assert terminal.end() == 1
    assert "setup-token ended" in terminal.text, terminal.text[-800:]


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("shell", [(), ("ANTHROPIC_AUTH_TOKEN",)])
@pytest.mark.parametrize(
    "stored", [("claude-token",), ("anthropic-api-key",), ("claude-token", "anthropic-api-key"), ()]
)
def test_f4_real_claude_takes_the_login_that_we_name(
    pen: Home, tmp_path: Path, refusing: str, stored: tuple[str, ...], shell: tuple[str, ...]
) -> None:
    for name in stored:
        credentials.store(pen, name, f"value-{name}-{'x' * 40}".encode())
    config = pen.claude_config
    oauth = {"accessToken": "value-file", "refreshToken": "r", "scopes": ["user:inference"]}
    oauth |= {"expiresAt": int(time.time() + 86400) * 1000}
    (config / ".credentials.json").write_text(json.dumps({"claudeAiOauth": oauth}))
    mine = dict.fromkeys(shell, "value-shell")
    env = {
        **mine,
        **credentials.engine_variables(pen, "claude"),
        "CLAUDE_CONFIG_DIR": str(config),
        "ANTHROPIC_BASE_URL": refusing,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    seen = run_real("claude", ["-p", "hi"], tmp_path / "person", env)
    login = find_login(pen, "claude", mine, tmp_path / "person")
    if login.kind == "stored":
        assert seen == {f"value-{login.text.split()[0]}-{'x' * 40}"}
    elif login.kind == "shell":
        assert "value-shell" in seen  # a key, if there is one, goes along
    else:
        assert (login.kind, seen) == ("home", {"value-file"})


@pytest.mark.storm
def test_f4_real_codex_takes_the_key_from_what_we_give_it(
    pen: Home, tmp_path: Path, refusing: str
) -> None:
    place = tmp_path / "codex"
    place.mkdir()
    (place / "config.toml").write_text(
        f'openai_base_url = "{refusing}/v1"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n[features]\nplugins = false\n"
    )
    words = ["exec", "--json", "--skip-git-repo-check", "hi"]
    mine = {"CODEX_HOME": str(place), "OPENAI_API_KEY": "ignored"}
    assert find_login(pen, "codex", mine, tmp_path).kind == "none"
    assert run_real("codex", words, place, mine) == set()
    assert Refusing.seen  # it did ask
    credentials.store(pen, "openai-api-key", b"value-stored")
    given = {**mine, **credentials.engine_variables(pen, "codex")}
    assert run_real("codex", words, place, given) == {"value-stored"}


@pytest.mark.parametrize("name", ["claude-token", "gitlab-webhook-secret"])
def test_d3_a_value_that_is_too_short_to_be_a_secret_is_refused(
    pen: Home, bullpen: Bullpen, name: str
) -> None:
    ran = bullpen("auth", "set", name, stdin="1234567\n")
    assert (ran.code, credentials.load(pen, name)) == (2, None), ran
    assert "shorter than 8 characters" in ran.err and "1234567" not in ran.err
    assert bullpen("auth", "set", name, stdin="12345678\n").code == 0
