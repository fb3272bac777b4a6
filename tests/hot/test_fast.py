"""The hot verbs: what they ask, what they print, and when they leave it to the command line."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bullpen import __version__
from bullpen.hot import fast
from tests.commands import BULLPEN, Ran
from tests.standin import StandIn, answer, says
from tests.waiting import wait_until

Bullpen = Callable[..., Ran]
TEXT = "text=1&colour=0&columns=0"
LINES = "lines=1&colour=0&columns=0"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    (path / "sockets").mkdir()
    (path / ".bullpen-dir.txt").write_text(f"v{__version__}\n")
    monkeypatch.setenv("BULLPEN_DIR", str(path))
    monkeypatch.delenv("COLUMNS", raising=False)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hub(place: Path) -> Iterator[StandIn]:
    stand_in = StandIn(place / "sockets/hub.sock")
    yield stand_in
    stand_in.close()


def run(*words: str, **env: str) -> int | None:
    return fast.run(
        list(words), {**os.environb, **{k.encode(): v.encode() for k, v in env.items()}}
    )


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["list"], f"/agents?{TEXT}"),
        (["list", "--pod", "csv"], f"/agents?{TEXT}&pod=csv"),
        (["list", "--pod=a b&c=ü"], f"/agents?{TEXT}&pod=a%20b%26c%3D%C3%BC"),
        (["list", "--json"], "/agents?iso=1"),
        (["list", "--json", "--pod", "csv"], "/agents?iso=1&pod=csv"),
        (["list", "--fleet"], f"/fleet?{TEXT}&agents=1"),
        (["list", "--fleet", "--json"], "/fleet?iso=1&agents=1"),
        (["status"], f"/status?{TEXT}"),
        (["status", "--json"], "/status?iso=1"),
        (["status", "amy"], f"/agents/amy?{TEXT}"),
        (["status", "--json", "amy~x"], "/agents/amy~x?iso=1"),
        (["status", "../x"], f"/agents/..%2Fx?{TEXT}"),
        (["explain", "amy"], "/agents/amy/explain?text=1&columns=0"),
        (["explain", "amy", "--json"], "/agents/amy/explain?iso=1"),
        (["peek", "amy"], "/agents/amy/screen?text=1"),
        (["peek", "--json", "a/b"], "/agents/a%2Fb/screen?iso=1"),
        (["usage"], f"/usage?{TEXT}"),
        (["approvals"], f"/approvals?{TEXT}"),
        (["approvals", "--json"], "/approvals?iso=1"),
        (["tree"], f"/tree?{TEXT}"),
        (["tree", "--json"], "/tree?iso=1"),
        (["usage", "--by", "day"], f"/usage?{TEXT}&by=day"),
        (["usage", "--json"], "/usage?iso=1"),
        (["tasks"], f"/tasks?{TEXT}"),
        (["tasks", "amy", "--json"], "/agents/amy/tasks?iso=1"),
        (["history"], f"/history?{LINES}"),
        (["history", "amy"], f"/agents/amy/history?{LINES}"),
        (["history", "--text=a b", "--page", "2"], f"/history?{LINES}&text=a%20b&page=2"),
    ],
)
def test_b8_what_is_asked(
    hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes], words: list[str], target: str
) -> None:
    assert run(*words) == 0
    assert [(asked.method, asked.target) for asked in hub.asked] == [("GET", target)]
    assert capfdbinary.readouterr() == (b"text\n", b"")


def test_b8_worktrees_are_those_of_the_callers_directory(
    hub: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "sh op"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in fast.GIT_SETTINGS:
        monkeypatch.delenv(name.decode(), raising=False)
    for words in (["--repo", "/a b"], ["--repo=../x"], ["--json"], []):
        assert run("worktree", "list", *words) == 0
    shown = str(here).replace("/", "%2F").replace(" ", "%20")
    assert [asked.target for asked in hub.asked] == [
        f"/worktrees?{TEXT}&repo=%2Fa%20b",
        f"/worktrees?{TEXT}&repo={shown}%2F..%2Fx",
        f"/worktrees?iso=1&repo={shown}%2F",
        f"/worktrees?{TEXT}&repo={shown}%2F",
    ]


def test_worktrees_are_left_to_the_command_line_where_git_has_other_settings(
    hub: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("worktree", "list", GIT_CONFIG_GLOBAL="/dev/null") is None
    for name in fast.GIT_SETTINGS:
        monkeypatch.delenv(name.decode(), raising=False)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run("worktree", "list") is None
    assert hub.asked == []


def test_own_pod_and_token_are_told_and_a_pipe_gets_whole_rows(
    hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("list", BULLPEN_POD="csv export", BULLPEN_TOKEN="t0", COLUMNS="132") == 0
    assert run("list", "--json", "--pod=*", BULLPEN_POD="csv") == 0
    asked, as_json = hub.asked
    assert asked.target == "/agents?text=1&colour=0&columns=0&own_pod=csv%20export"
    assert as_json.target == "/agents?iso=1&pod=%2A&own_pod=csv"
    assert asked.headers["authorization"] == "Bearer t0"


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--help"],
        ["list", "-h"],
        ["list", "amy"],
        ["list", "--pod"],
        ["list", "--pod="],
        ["list", "--pod", "--json"],
        ["list", "--fleet", "--pod", "csv"],
        ["list", "--fleet", "--watch"],
        ["list", "--json=1"],
        ["list", ""],
        ["list", "--"],
        ["status", "amy", "bob"],
        ["status", "--pod", "x"],
        ["explain"],
        ["peek", "amy", "bob"],
        ["approvals", "7"],
        ["tree", "--watch"],
        ["tree", "amy"],
        ["usage", "--since", "7d"],
        ["tasks", "--all"],
        ["history", "show", "t-1"],
        ["history", "show"],
        ["history", "--json"],
        ["history", "--page"],
        ["hook", "--agent"],
        ["hook", "amy"],
        ["worktree"],
        ["worktree", "create", "amy"],
        ["worktree", "list", "amy"],
        ["worktree", "list", "--repo"],
        ["worktree", "list", "--repo", "~/shop"],
        ["worktree", "list", "--repo", "\udcff"],
    ],
)
def test_what_is_not_plain_is_left_to_the_command_line(hub: StandIn, words: list[str]) -> None:
    assert run(*words) is None
    assert hub.asked == []


@pytest.mark.parametrize(
    "sent",
    [answer(b"x", "404 Not Found"), answer(b"x", "500 Oops"), answer(b"x", "204 No"), b"", b"?"],
)
@pytest.mark.parametrize("verb", ["list", "status"])
def test_any_answer_but_200_is_left_to_the_command_line(
    hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes], sent: bytes, verb: str
) -> None:
    hub.script = says(sent)
    assert run(verb) is None
    assert capfdbinary.readouterr() == (b"", b"")


@pytest.mark.slow
def test_slow_hub_is_left_to_the_command_line(
    hub: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "ANSWER_SECONDS", 0.05)
    released = threading.Event()
    hub.script = lambda *_: released.wait(30) and None
    assert run("list") is None
    released.set()


def test_no_hub_odd_token_or_doubtful_home_are_left_to_the_command_line(
    place: Path, tmp_path: Path
) -> None:
    assert run("list") is None
    assert run("status") is None
    stand_in = StandIn(place / "sockets/hub.sock")
    assert run("list", BULLPEN_TOKEN="a\r\nb: c") is None
    assert run("list", BULLPEN_DIR=str(tmp_path)) is None
    (place / ".bullpen-dir.txt").write_text("v99.0.0\n")
    assert run("list") is None
    assert run("hook", BULLPEN_ACTOR="amy") is None
    stand_in.close()
    assert stand_in.asked == []


def test_b1_hub_of_another_version_is_named(hub: StandIn, bullpen: Bullpen) -> None:
    hub.script = says(answer(b"AGENT\n", version="9.9.9"))
    warning = f"hub is version 9.9.9, this command is {__version__} · bullpen hub restart\n"
    assert bullpen("list") == Ran(0, "AGENT\n", warning)
    hub.script = says(answer(b"AGENT\n", version="\x1b[31m9"))
    assert "\x1b" not in bullpen("list").err


def test_json_ends_with_a_line_break(
    hub: StandIn, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    hub.script = says(answer(b"[]"))
    assert run("list", "--json") == 0
    assert capfdbinary.readouterr().out == b"[]\n"


def test_large_answers_are_written_whole(hub: StandIn, bullpen: Bullpen) -> None:
    text = "agent\n" * 500_000
    hub.script = says(answer(text.encode()))
    assert bullpen("list").out == text


def test_reader_that_leaves_is_quiet(hub: StandIn) -> None:
    hub.script = says(answer(b"agent\n" * 500_000))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [BULLPEN, "list"], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_full_disk_is_named(hub: StandIn) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [BULLPEN, "list"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"error: No space left on device\n")


def test_terminal_gets_colours_and_its_width(hub: StandIn) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 77, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    env["TERM"] = "xterm"
    plain = ({**env, "NO_COLOR": "1"}, {**env, "TERM": "dumb"}, {**env, "COLUMNS": "132"})
    for given in (env, *plain):
        subprocess.run([BULLPEN, "list"], stdout=theirs, env=given, check=True, timeout=60)
    os.close(theirs)
    os.close(ours)
    assert [asked.target for asked in hub.asked] == [
        "/agents?text=1&colour=1&columns=77",
        "/agents?text=1&colour=0&columns=77",
        "/agents?text=1&colour=0&columns=77",
        "/agents?text=1&colour=1&columns=132",
    ]


def test_ctrl_c_is_130_and_quiet(hub: StandIn) -> None:
    released = threading.Event()
    hub.script = lambda *_: released.wait(30) and None
    # A test runner started in the background ignores SIGINT, and hands that down.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from bullpen.__main__ import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: bool(hub.asked))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    released.set()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_hot_verbs_import_nothing_heavy(hub: StandIn) -> None:
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run([BULLPEN, "list"], env=env, capture_output=True, check=True)
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines()}
    assert "bullpen.hot.fast" in loaded
    assert not loaded & {"click", "json", "socket", "re", "pathlib", "dataclasses", "enum"}
    assert {name for name in loaded if name.startswith("bullpen")} == {
        "bullpen",
        "bullpen.__main__",
        "bullpen.hot",
        "bullpen.hot.fast",
        "bullpen.hot.find_hub",
        "bullpen.hot.hook",
        "bullpen.hot.known_homes",
        "bullpen.hot.own_python",
        "bullpen.hot.wire",
    }


def test_other_verbs_pass_through(bullpen: Bullpen) -> None:
    assert bullpen("version").out.startswith(f"version   {__version__}\n")
    assert bullpen("lst").code == 2
    module = subprocess.run(
        [sys.executable, "-m", "bullpen", "version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == bullpen("version").out
