"""Credentials come in unseen, are kept privately, and are given to engines; nothing shows them."""

import contextlib
import json
import os
import pty
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from bullpen import credentials
from bullpen.component.redact import REDACTED, Redactor
from bullpen.credentials import NAMES, SECRETS, WAYS, Login, find_login
from bullpen.errors import BullpenError, Kind
from bullpen.homes import create_home
from bullpen.paths import Home
from tests.conftest import BULLPEN, Ran
from tests.engines.cli import program

Bullpen = Callable[..., Ran]
VALUE = "sk-ant-oat01-" + "Secret_" * 10 + "-wxyz"


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for ways in WAYS.values():
        for variable in (*ways.reads, *ways.gives, ways.variable):
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def pen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = create_home(tmp_path / "pen")
    monkeypatch.setenv("BULLPEN_DIR", str(home.root))
    return home


def hides(ran: Ran) -> bool:
    """Nothing of the value in what was printed, not even its end."""
    return not any(part in ran.out + ran.err for part in ("Secret", "wxyz", "oat01"))


class AtTerminal:
    """A command with a terminal of its own, as a person has it."""

    def __init__(self, *words: str, **env: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                os.execve(BULLPEN, [str(BULLPEN), *words], {**os.environ, **env})
            os._exit(127)
        self.text = ""

    def expect(self, text: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert self._read(deadline - time.monotonic()), f"no {text!r} in {self.text!r}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + 30
        while self._read(deadline - time.monotonic()):
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], max(0, seconds))[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


# ── keeping ──


@pytest.mark.parametrize("name", SECRETS)
def test_f4_value_comes_from_standard_input_and_is_kept_privately(
    pen: Home, bullpen: Bullpen, name: str
) -> None:
    ran = bullpen("auth", "set", name, stdin=f"{VALUE}\n")
    assert ran.code == 0
    assert hides(ran)
    assert credentials.load(pen, name) == VALUE
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
    for name in ("gitlab-token", "claude-token"):
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
    assert bullpen("auth", "clear", "api-token").code == 4  # the hub's own is not ours to clear


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
    ["Ann Bee <ann@example.com>\n", "Ann Bee\nann@example.com\n", "Ann Bee\r\nann@example.com"],
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
        *("Ann <a@b> <c@d>", "Ann\na@b\nmore", "A\x1bnn <a@b>", "Ann <a b@c>"),
    ],
)
def test_f4_what_is_no_identity_is_refused(pen: Home, given: str) -> None:
    with pytest.raises(BullpenError):
        credentials.store(pen, "git-config", given.encode())
    assert credentials.git_variables(pen) == {}


def test_git_identity_is_asked_for_at_a_terminal(pen: Home) -> None:
    terminal = AtTerminal("auth", "set", "git-config")
    terminal.expect("Name: ")
    terminal.type("Ann Bee\n")
    terminal.expect("Mail address: ")
    terminal.type("ann@example.com\n")
    assert terminal.end() == 0
    assert credentials.git_variables(pen)["GIT_COMMITTER_EMAIL"] == "ann@example.com"


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
    assert tuple(kept) == NAMES
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
    assert [line.split()[1] for line in lines[1:8]] == [
        *("set", "–", "–", "–", "refused", "–", "–")
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
    for ways in WAYS.values():
        for variable in ways.gives:
            assert redactor.field(variable, "plain") == REDACTED
            assert "plain" not in redactor.text(f"{variable}=plain")


# ── bullpen auth claude ──


def fake_claude(tmp_path: Path, script: str) -> str:
    path = tmp_path / "claude"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_e2_auth_claude_runs_it_in_this_terminal_with_the_homes_directory(
    pen: Home, tmp_path: Path
) -> None:
    fake = fake_claude(
        tmp_path,
        '[ -t 0 ] && [ -t 1 ] && [ -z "$ANTHROPIC_API_KEY$CLAUDE_CODE_OAUTH_TOKEN" ] || exit 9\n'
        'stty raw; echo "in $(pwd) with $*"; head -c 1 >/dev/null\n'
        'echo "{}" >"$CLAUDE_CONFIG_DIR/.credentials.json"',
    )
    env = {"BULLPEN_CLAUDE_BIN": fake, "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_OAUTH_TOKEN": "t"}
    terminal = AtTerminal("auth", "claude", **env)
    terminal.expect(
        f"in {pen.claude_config} with --setting-sources user --permission-mode manual /login"
    )
    terminal.type("x")
    assert terminal.end() == 0
    assert "logged in" in terminal.text
    assert "but this comes before it: ANTHROPIC_API_KEY of your shell" in terminal.text
    assert (pen.claude_config / ".credentials.json").exists()
    assert pen.claude_config.stat().st_mode & 0o777 == 0o700


def test_e2_auth_claude_says_when_nobody_logged_in(pen: Home, tmp_path: Path) -> None:
    terminal = AtTerminal("auth", "claude", BULLPEN_CLAUDE_BIN=fake_claude(tmp_path, "exit 0"))
    assert terminal.end() == 1
    assert "nobody is logged in there" in terminal.text


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
        timeout=60,
        check=False,
    )
    return {value for value in Refusing.seen if value}


@pytest.mark.slow
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
    terminal.expect("Foundry")  # in the last of the ways to log in
    assert "trust" not in terminal.text
    terminal.type("\x1b")
    terminal.expect("interrupted")
    terminal.type("/exit")
    terminal.expect("/exit")
    terminal.type("\r")
    assert terminal.end() == 1
    assert "nobody is logged in there" in terminal.text


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


@pytest.mark.slow
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
