"""The doctor finds what is wrong, says how to put it right, and leaves nothing behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bullpen.cli.doctor import engines, sandbox
from bullpen.cli.doctor import home as home_checks
from bullpen.component import ports
from bullpen.engines.versions import PROGRAMS, is_enough, parse_version
from bullpen.home import credentials
from bullpen.home.create import create_home
from bullpen.home.credentials import LOGINS
from bullpen.home.paths import Home, short_sockets
from bullpen.sandboxes import limits
from bullpen.text import width
from tests.at_terminal import AtTerminal
from tests.commands import Ran
from tests.engines.cli import PINS, program
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]


@pytest.fixture
def home() -> Iterator[Home]:
    """One whose sockets need no short cut, whatever the length of pytest's own paths."""
    root = Path(tempfile.mkdtemp(dir="/tmp"))
    yield create_home(root)
    shutil.rmtree(root)


def found(ran: Ran) -> dict[str, Any]:
    return {check["name"]: check for check in ran.json["checks"]}


def write_script(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def fake_git(tmp_path: Path, says: str) -> str:
    tools = tmp_path / "tools"
    tools.mkdir()
    write_script(tools / "bwrap", "echo bubblewrap 0.8.0")
    (tools / "git").write_text(f"#!/bin/sh\necho '{says}'\n")
    (tools / "git").chmod(0o755)
    return f"{tools}:/usr/bin:/bin"


VERSIONS = {"claude": "2.1.325 (Claude Code)", "gemini": "0.61.0", "codex": "codex-cli 0.166.0"}
KEYS = {"ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k", "CODEX_API_KEY": "k"}


def fake_engines(directory: Path, **scripts: str) -> str:
    """Programs of those names, and a PATH with no other engines on it. Whether there can be a
    sandbox is not in the hands of most tests."""
    directory.mkdir()
    for name, script in {"bwrap": "echo bubblewrap 0.8.0", **scripts}.items():
        write_script(directory / name, script)
    (directory / "git").symlink_to(shutil.which("git") or "/usr/bin/git")
    (directory / "sleep").symlink_to(shutil.which("sleep") or "/bin/sleep")
    return str(directory)


def says(version: str) -> str:
    return f'[ "$*" = --version ] && echo "{version}"'


@pytest.fixture
def path(tmp_path: Path) -> str:
    scripts = {name: says(version) for name, version in VERSIONS.items()}
    return fake_engines(tmp_path / "engines", **scripts)


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for ways in LOGINS.values():
        for variable in (*ways.reads, *ways.instead, *ways.gives, ways.variable):
            monkeypatch.delenv(variable, raising=False)


def test_all_is_well(home: Home, bullpen: Bullpen, path: str) -> None:
    before = sorted(home.root.rglob("*"))
    ran = bullpen("doctor", cwd=home.root, PATH=path, **KEYS)
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    lacks = [line.split()[0] for line in ran.out.splitlines() if line.startswith(" ")]
    assert set(lacks) == {"lacks:"}
    column = lines[0].index("git") + max(len(line.split()[1]) for line in lines) + 2
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines)
    # Whether systemd runs, and what limits there are, is not in the test's hands.
    by_name = {line.split()[1]: line for line in lines}
    assert list(by_name) == [
        *("git", "python", "sandbox", "limits"),
        *(["lingering"] if "lingering" in by_name else []),
        *("claude", "gemini", "codex", "home", "modes", "sockets", "ports", "identity"),
    ]
    wrong = {name for name, line in by_name.items() if not line.startswith("ok ")}
    assert wrong <= {"lingering", "limits"}
    assert re.search(r"  bubblewrap 0\.8\.0, started and left in \d+ ms$", by_name["sandbox"])
    assert by_name["claude"].endswith("  2.1.325   login: ANTHROPIC_API_KEY of your shell")
    assert re.search(r" v0\.1\.0, 0700, \d+ [GM]B free$", by_name["home"])
    assert re.search(r"  \d+ of 200 free from 9000 to 9199$", by_name["ports"])
    assert by_name["identity"].endswith("  agents commit as Tess <tess@example.com>, your own")
    assert sorted(home.root.rglob("*")) == before


@pytest.mark.parametrize("columns", [40, 80, 160])
@pytest.mark.few(1)
def test_p7_doctor_breaks_no_word_of_a_narrow_terminal(home: Home, path: str, columns: int) -> None:
    env = {"BULLPEN_DIR": str(home.root), "PATH": path, "NO_COLOR": "1", "COLUMNS": str(columns)}
    terminal = AtTerminal("doctor", **env)
    assert terminal.end() == 0, terminal.text
    lines = terminal.text.splitlines()
    assert lines[0].startswith("ok    git")
    too_long = [line for line in lines if width(line) > columns]
    assert all(len(line.split()) == 1 for line in too_long), "a word is longer than the terminal"
    assert "identity agents commit as Tess <" in " ".join(terminal.text.split())


def test_without_a_home_the_rest_is_checked_and_init_named(bullpen: Bullpen, path: str) -> None:
    ran = bullpen("doctor", "--json", PATH=path)
    assert ran.code == 0
    assert ran.json["ok"] is True
    checks = found(ran)
    assert [name for name in checks if name not in ("lingering", *VERSIONS)] == [
        *("git", "python", "sandbox", "limits", "home")
    ]
    assert checks["home"]["status"] == "warn"
    assert checks["home"]["fix"] == "bullpen init"
    assert sys.executable in checks["python"]["text"]


@pytest.mark.parametrize(
    ("says", "status", "text"),
    [
        ("git version 2.38.0", "ok", "2.38.0"),
        ("git version 3.0.1 (Apple Git-154)", "ok", "3.0.1"),
        ("git version 2.37.9", "fail", "2.37.9, needs 2.38"),
        ("git version 1.99", "fail", "1.99, needs 2.38"),
        ("no idea", "fail", "git --version says 'no idea'"),
    ],
)
def test_git_versions(tmp_path: Path, bullpen: Bullpen, says: str, status: str, text: str) -> None:
    ran = bullpen("doctor", "--json", PATH=fake_git(tmp_path, says))
    check = found(ran)["git"]
    assert (check["status"], check["text"]) == (status, text)
    assert ran.code == (1 if status == "fail" else 0)


def test_missing_git_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    write_script(tmp_path / "bwrap", "echo bubblewrap 0.8.0")
    ran = bullpen("doctor", PATH=str(tmp_path))
    assert ran.code == 1
    [line] = [line for line in ran.out.splitlines() if line.startswith("fail")]
    assert line.split(maxsplit=2) == ["fail", "git", "not installed · install git 2.38 or newer"]


def test_open_home_is_a_warning_with_the_command(home: Home, bullpen: Bullpen, path: str) -> None:
    home.root.chmod(0o755)
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
    assert ran.code == 0
    check = found(ran)["home"]
    assert check["status"] == "warn"
    assert check["fix"] == f"chmod 700 {home.root}"


@pytest.mark.parametrize("name", ["sockets", "credentials"])
def test_h5_open_private_directory_fails_with_the_command(
    home: Home, bullpen: Bullpen, name: str
) -> None:
    (home.root / name).chmod(0o750)
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    assert ran.json["ok"] is False
    check = found(ran)["modes"]
    assert check["status"] == "fail"
    assert f"{name} 0750" in check["text"]
    assert check["fix"] == f"chmod 700 {home.root / name}"


def test_missing_sockets_directory_fails_with_the_command(home: Home, bullpen: Bullpen) -> None:
    home.sockets.rmdir()
    ran = bullpen("doctor", "--json", cwd=home.root)
    assert ran.code == 1
    checks = found(ran)
    assert checks["sockets"]["status"] == "fail"
    assert checks["modes"]["fix"] == f"mkdir -m 700 {home.sockets}"


@pytest.fixture
def long_home(tmp_path: Path) -> Iterator[Home]:
    home = create_home(tmp_path / ("long" * 30))
    yield home
    shutil.rmtree(short_sockets(home).parent)


def test_h5_long_home_is_reached_through_tmp_and_a_stale_link_heals(
    long_home: Home, bullpen: Bullpen
) -> None:
    link = short_sockets(long_home)
    link.unlink()
    link.symlink_to("/gone")
    check = found(bullpen("doctor", "--json", cwd=long_home.root))["sockets"]
    assert check["status"] == "ok"
    assert check["text"] == f"bound and connected through {link}"
    assert list(long_home.sockets.iterdir()) == []


def test_h5_unsafe_directory_in_tmp_fails_with_the_reason(
    long_home: Home, bullpen: Bullpen
) -> None:
    directory = short_sockets(long_home).parent
    directory.chmod(0o777)
    ran = bullpen("doctor", "--json", cwd=long_home.root)
    directory.chmod(0o700)
    assert ran.code == 1
    assert "mode 0700; it is drwxrwxrwx" in found(ran)["sockets"]["text"]


def test_h1_wrong_bullpen_dir_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    ran = bullpen("doctor", "--json", BULLPEN_DIR=str(tmp_path))
    assert ran.code == 1
    assert "has no .bullpen-dir.txt" in found(ran)["home"]["text"]


@pytest.mark.parametrize(
    ("needed", "least", "status"),
    [(1 << 60, 0, "warn"), (1 << 60, 1 << 60, "fail"), (0, 0, "ok")],
)
def test_x6_full_disk(
    home: Home, monkeypatch: pytest.MonkeyPatch, needed: int, least: int, status: str
) -> None:
    monkeypatch.setattr(home_checks, "DISK_NEEDED", needed)
    monkeypatch.setattr(home_checks, "DISK_LEAST", least)
    check = home_checks.check_home(home)
    assert (check.status, bool(check.fix)) == (status, status != "ok")


def test_x6_home_of_a_newer_version_is_a_warning(home: Home) -> None:
    (home.root / ".bullpen-dir.txt").write_text("v0.999.0\n")
    check = home_checks.check_home(home)
    assert (check.status, check.fix) == ("warn", "install bullpen 0.999.0 or newer")


def test_x6_files_that_tell_something_in_an_open_home_fail(home: Home) -> None:
    (home.root / ".env").write_text("A=b\n")
    (home.root / ".env").chmod(0o644)
    assert home_checks.check_modes(home).status == "ok"
    home.root.chmod(0o755)
    check = home_checks.check_modes(home)
    assert (check.status, check.fix) == ("fail", f"chmod 600 {home.root / '.env'}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_x6_file_of_another_user_fails(home: Home) -> None:
    credentials.store(home, "github-token", b"x")
    os.chown(home.credentials / "github-token", 12345, -1)
    check = home_checks.check_modes(home)
    assert (check.status, check.text) == ("fail", "another user's: github-token")
    assert check.fix == f"chown 0 {home.credentials / 'github-token'}"


# ── walls ──


def test_x6_sandbox_is_checked_by_building_one() -> None:
    check = sandbox.check_sandbox()
    assert check.status == "ok", check
    assert re.fullmatch(r"bubblewrap \d+\.\d+\.\d+, started and left in \d+ ms", check.text)


def test_x6_missing_sandbox_fails(tmp_path: Path, bullpen: Bullpen) -> None:
    path = fake_engines(tmp_path / "engines")
    (tmp_path / "engines" / "bwrap").unlink()
    ran = bullpen("doctor", "--json", PATH=path)
    check = found(ran)["sandbox"]
    assert (ran.code, check["status"]) == (1, "fail")
    assert check["text"] == "bubblewrap is not installed"
    assert check["fix"].startswith("apt install bubblewrap")
    assert "sandbox.enabled: false" in check["fix"]


def test_x6_sandbox_that_is_there_and_does_not_start_fails(
    tmp_path: Path, bullpen: Bullpen
) -> None:
    script = '[ "$*" = --version ] && echo bubblewrap 0.8.0 && exit\necho no uid map >&2; exit 1'
    ran = bullpen("doctor", "--json", PATH=fake_engines(tmp_path / "engines", bwrap=script))
    check = found(ran)["sandbox"]
    assert (ran.code, check["status"]) == (1, "fail")
    assert "no uid map" in check["text"]
    for told in ("AppArmor", "container", "sandbox.enabled: false"):
        assert told in check["fix"]


GROUP = limits.Cgroup("pids", 1, Path("/sys"))


@pytest.mark.parametrize(
    ("pids", "is_counted", "status", "text"),
    [
        (GROUP, False, "ok", "processes by cgroup v1, memory not limited"),
        (None, True, "ok", "processes by RLIMIT_NPROC, memory not limited"),
        (None, False, "warn", "processes not limited, memory not limited: an agent"),
    ],
)
def test_x6_no_limit_of_processes_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    pids: limits.Cgroup | None,
    is_counted: bool,
    status: str,
    text: str,
) -> None:
    monkeypatch.setattr(limits, "find", lambda: limits.Limits(pids, None, is_counted))
    check = sandbox.check_limits()
    assert check is not None
    assert (check.status, check.text.startswith(text)) == (status, True)
    assert bool(check.fix) == (status != "ok")


# ── ports ──


@contextlib.contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with ports.listen(port) as taken:
        yield taken.getsockname()[1]


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(reserved_port())


def ports_of(ran: Ran) -> tuple[str, str, str]:
    check = found(ran)["ports"]
    return check["status"], check["text"], check["fix"]


def agent(home: Home, name: str, port: int) -> None:
    (home.agents / f"{name}.yaml").write_text(f"role: coder\nport: {port}\n")


def test_x6_ports_of_the_files_are_named(
    home: Home, bullpen: Bullpen, path: str, free_port: Callable[[], int]
) -> None:
    hub, amy = free_port(), free_port()
    home.config_file.write_text(f"port: {hub}\n")
    agent(home, "amy", amy)
    status, text, _ = ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))
    assert (status, text.startswith(f"hub {hub}, amy {amy}, ")) == ("ok", True)


@pytest.mark.parametrize("who", ["hub", "amy"])
def test_x6_port_that_another_has_fails_and_names_it(
    home: Home, bullpen: Bullpen, path: str, who: str
) -> None:
    with listening() as port:
        if who == "amy":
            agent(home, "amy", port)
        else:
            home.config_file.write_text(f"port: {port}\n")
        ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
        file = "agents/amy.yaml" if who == "amy" else "config.yaml"
        status, text, fix = ports_of(ran)
    assert (ran.code, status) == (1, "fail")
    assert text.startswith(f"{port} of {who} is taken by pid {os.getpid()} (")
    assert fix == f"end it, or choose another: port in {file}"


def test_x6_port_that_the_hub_had_counts_on_this_machine_only(
    home: Home, bullpen: Bullpen, path: str
) -> None:
    with listening() as port:
        for host, status in ((socket.gethostname(), "fail"), ("elsewhere.example", "ok")):
            (home.root / "hub.json").write_text(json.dumps({"port": port, "host": host}))
            ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
            assert ports_of(ran)[0] == status


def test_x6_port_claimed_twice_fails(
    home: Home, bullpen: Bullpen, path: str, free_port: Callable[[], int]
) -> None:
    port = free_port()
    agent(home, "amy", port)
    agent(home, "bob", port)
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
    assert ran.code == 1
    assert ports_of(ran) == (
        "fail",
        f"{port} is claimed twice: amy and bob",
        "choose another: port in agents/bob.yaml",
    )


def test_x6_wrong_config_fails(home: Home, bullpen: Bullpen, path: str) -> None:
    home.config_file.write_text("prot: 1\n")
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
    assert ran.code == 1
    assert ports_of(ran) == ("fail", "config.yaml has 1 error", "bullpen validate --all")


@pytest.mark.parametrize("port", [0x10000, -1, 10**30])
def test_x6_number_that_is_no_port_fails(
    home: Home, bullpen: Bullpen, path: str, port: int
) -> None:
    agent(home, "amy", port)
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
    assert (ran.code, ports_of(ran)[0]) == (1, "fail")
    assert "of amy cannot be had" in ports_of(ran)[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen everywhere")
def test_x6_port_that_only_root_may_have_fails(home: Home, bullpen: Bullpen, path: str) -> None:
    agent(home, "amy", 1)
    text = ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))[1]
    assert text == "1 of amy cannot be had: Permission denied"


def test_x6_no_free_port_to_choose_fails_unless_the_hub_has_one(
    home: Home, bullpen: Bullpen, path: str, free_port: Callable[[], int]
) -> None:
    with listening() as port:
        text = f"discovery:\n  port_range: {port}-{port}\n"
        home.config_file.write_text(text)
        status, told, _ = ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))
        assert (status, told) == ("fail", f"0 of 1 free from {port} to {port}")
        home.config_file.write_text(f"port: {free_port()}\n{text}")
        assert ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))[0] == "warn"


@contextlib.contextmanager
def component(home_id: str, user: int | None = None) -> Iterator[int]:
    """Something that serves /status, of another user if that is said."""
    said = {"type": "director", "interfaces": ["statusable"], "name": "clock", "version": "1"}
    body = json.dumps({**said, "state": "idle", "uptime_seconds": 1, "home_id": home_id}).encode()

    class Serve(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Serve, bind_and_activate=False)
    if user is not None:
        # A socket is of the user who made it. As that user nothing else is done: what Python
        # cannot import then because it may not read it, it takes for missing ever after.
        server.socket.close()
        os.seteuid(user)
        try:
            server.socket = socket.socket()
        finally:
            os.seteuid(0)
    server.server_bind()
    server.server_activate()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("is_own", "status"), [(True, "ok"), (False, "fail")])
def test_x6_port_that_a_component_of_this_home_has_is_fine(
    home: Home, bullpen: Bullpen, path: str, is_own: bool, status: str
) -> None:
    with component(home.id if is_own else "f" * 16) as port:
        (home.directors / "clock.yaml").write_text(f"port: {port}\n")
        # Who takes more than a second to answer is not known; on a busy machine anybody may.
        wait_until(
            lambda: ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))[0] == status
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_x6_another_users_program_that_says_it_is_ours_is_not_believed(
    home: Home, bullpen: Bullpen, path: str
) -> None:
    with component(home.id, user=4711) as port:
        (home.directors / "clock.yaml").write_text(f"port: {port}\n")
        ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
    assert ports_of(ran)[0] == "fail"


@pytest.mark.storm
def test_x6_port_of_our_own_hub_is_fine_even_if_it_does_not_answer(
    home: Home, bullpen: Bullpen, path: str
) -> None:
    assert bullpen("hub", "start", cwd=home.root).code == 0
    try:
        hub = json.loads((home.root / "hub.json").read_text())
        status, text, _ = ports_of(bullpen("doctor", "--json", cwd=home.root, PATH=path))
        assert (status, text.startswith(f"hub {hub['port']}, ")) == ("ok", True)
        os.kill(hub["pid"], signal.SIGSTOP)
        try:
            ran = bullpen("doctor", "--json", cwd=home.root, PATH=path)
        finally:
            os.kill(hub["pid"], signal.SIGCONT)
        assert ports_of(ran)[0] == "ok"
    finally:
        bullpen("hub", "stop", cwd=home.root)


# ── who agents commit as ──


def identity(ran: Ran) -> tuple[str, str, str]:
    check = found(ran)["identity"]
    return check["status"], check["text"], check["fix"]


def test_x6_identity_is_the_homes_then_the_persons_then_missing(
    home: Home, bullpen: Bullpen, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> tuple[str, str, str]:
        return identity(bullpen("doctor", "--json", cwd=home.root, PATH=path))

    for who in ("AUTHOR", "COMMITTER"):
        for what in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{who}_{what}")
    status, text, fix = look()
    assert (status, text) == ("warn", "git does not know who agents commit as")
    assert fix.startswith("bullpen auth set git-config")
    config = tmp_path / "person" / ".gitconfig"
    config.write_text("[user]\n\tname = Pat\n\temail = pat@example.com\n")
    assert look() == ("ok", "agents commit as Pat <pat@example.com>, your own", "")
    credentials.store(home, "git-config", b"Bot <bot@example.com>")
    kept = "agents commit as Bot <bot@example.com>, git-config of this home"
    assert look() == ("ok", kept, "")
    (home.credentials / "git-config").chmod(0o644)
    status, _, fix = look()
    assert (status, fix) == ("fail", f"chmod 600 {home.credentials / 'git-config'}")


# ── engines ──


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("2.1.325 (Claude Code)\n", (2, 1, 325)),
        ("codex-cli 0.166.0\n", (0, 166, 0)),
        ("0.61.0-nightly.20261115.abc1234", (0, 61, 0)),
        ("v20.1", (20, 1)),
        ("1.2.3.4.5", (1, 2, 3, 4)),
        ("node20.1 3.4", (3, 4)),
        ("2", None),
        ("", None),
        ("9" * 5000 + ".1", None),
    ],
)
def test_version_is_read_from_what_programs_say(said: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(said) == version


@pytest.mark.parametrize(
    ("version", "oldest", "enough"),
    [
        ((2, 1, 0), (2, 1, 0), True),
        ((2, 0, 999), (2, 1, 0), False),
        ((0, 40), (0, 40), True),
        ((0, 40, 0), (0, 40), True),
        ((0, 9, 9), (0, 40), False),
        ((0, 100), (0, 100, 0), True),
        ((1, 0), (0, 100), True),
    ],
)
def test_versions_are_compared_by_number(
    version: tuple[int, ...], oldest: tuple[int, ...], enough: bool
) -> None:
    assert is_enough(version, oldest) is enough


@pytest.mark.parametrize("engine", PROGRAMS)
def test_x6_engine_that_is_not_installed_is_a_warning_with_the_command(
    tmp_path: Path, bullpen: Bullpen, engine: str
) -> None:
    ran = bullpen("doctor", "--json", PATH=fake_engines(tmp_path / "engines"))
    assert ran.code == 0
    check = found(ran)[engine]
    assert (check["status"], check["text"]) == ("warn", "not installed")
    assert check["fix"] == f"npm install -g {PROGRAMS[engine].package}"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (says("2.0.99 (Claude Code)"), "2.0.99, needs 2.1.0"),
        (says("no idea"), "--version ends with 0, says 'no idea'"),
        (
            "echo 2.1.5; echo 'needs Node 20' >&2; exit 3",
            "--version ends with 3, says 'needs Node 2",
        ),
        ("kill -9 $$", "--version ends with -9"),
    ],
)
def test_x6_engine_that_does_not_serve_fails(
    tmp_path: Path, bullpen: Bullpen, script: str, text: str
) -> None:
    path = fake_engines(tmp_path / "engines", claude=script)
    ran = bullpen("doctor", "--json", PATH=path, **KEYS)
    assert ran.code == 1
    check = found(ran)["claude"]
    assert check["status"] == "fail"
    assert text in check["text"]
    assert check["fix"] == "npm install -g @anthropic-ai/claude-code"


def test_x6_engine_that_hangs_is_given_up_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pidfile = tmp_path / "pid"
    hang = f"echo $$ > {pidfile}; sleep 300; echo 2.1.5"
    monkeypatch.setenv("PATH", fake_engines(tmp_path / "engines", claude=hang))
    for seconds in (0.5, 5.0, 50.0):  # until it has begun, on a busy machine
        monkeypatch.setattr(engines, "ANSWER_SECONDS", seconds)
        check = engines.check_engine("claude", None)
        assert check.status == "fail"
        assert f"did not end within {seconds:g} s" in check.text
        if pidfile.exists() and pidfile.read_text():
            break
    with pytest.raises(ProcessLookupError):
        os.kill(int(pidfile.read_text()), 0)


def test_x6_file_that_is_no_program_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake_engines(tmp_path / "engines"))
    (tmp_path / "engines" / "codex").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "engines" / "codex").chmod(0o755)
    check = engines.check_engine("codex", None)
    assert (check.status, "cannot start" in check.text) == ("fail", True)


@pytest.mark.parametrize("engine", PROGRAMS)
def test_e3_variable_names_the_program(tmp_path: Path, bullpen: Bullpen, engine: str) -> None:
    path = fake_engines(tmp_path / "engines", **{engine: says("0.0.1")})
    other = tmp_path / "other"
    other.write_text(f"#!/bin/sh\n{says('9.9.9')}\n")
    other.chmod(0o755)
    variable = PROGRAMS[engine].variable
    ran = bullpen("doctor", "--json", PATH=path, **KEYS, **{variable: str(other)})
    assert found(ran)[engine]["status"] == "ok"
    assert found(ran)[engine]["text"].startswith("9.9.9 ")
    ran = bullpen("doctor", "--json", PATH=path, **{variable: "/no/such"})
    assert found(ran)[engine]["status"] == "fail"
    assert "/no/such" in found(ran)[engine]["text"]


def test_f4_doctor_says_which_login_or_how_to_get_one(
    home: Home, bullpen: Bullpen, path: str, tmp_path: Path
) -> None:
    def claude(**env: str) -> tuple[str, str, str]:
        check = found(bullpen("doctor", "--json", cwd=home.root, PATH=path, **env))["claude"]
        return check["status"], check["text"].partition("login: ")[2], check["fix"]

    status, text, fix = claude()
    assert (status, text) == ("warn", "none found")
    assert fix.startswith("bullpen auth claude")
    own = tmp_path / "person" / ".claude"
    own.mkdir()
    (own / ".credentials.json").write_text("{}")
    needs = "tasks run in a sandbox and need: bullpen auth claude"
    assert claude()[:2] == ("ok", "your own (~/.claude)")
    assert claude()[2].startswith(needs)
    (home.claude_config / ".credentials.json").write_text("{}")
    assert claude()[1] == f"of this home ({home.claude_config})"
    credentials.store(home, "claude-token", b"sk-ant-oat01-secret")
    assert claude()[1:] == ("claude-token of this home", "")
    (home.credentials / "claude-token").chmod(0o640)
    status, _, fix = claude()
    assert (status, fix) == ("fail", f"chmod 600 {home.credentials / 'claude-token'}")


def test_f4_doctor_fails_for_a_credential_that_others_can_read(
    home: Home, bullpen: Bullpen, path: str
) -> None:
    credentials.store(home, "github-token", b"ghp_secret")
    (home.credentials / "github-token").chmod(0o644)
    ran = bullpen("doctor", "--json", cwd=home.root, PATH=path, **KEYS)
    check = found(ran)["modes"]
    assert (ran.code, check["status"]) == (1, "fail")
    assert check["fix"] == f"chmod 600 {home.credentials / 'github-token'}"


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("engine", PROGRAMS)
def test_x6_real_program_is_new_enough(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PROGRAMS[engine].variable, str(program(engine)))
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    check = engines.check_engine(engine, None)
    assert check.status == "ok", check
    pins = json.loads(PINS.read_text())["dependencies"]
    assert check.text.split()[0] == pins[PROGRAMS[engine].package]
