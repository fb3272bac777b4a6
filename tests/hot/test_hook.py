"""`bullpen hook` hands events on, keeps them while the hub is away, and never gets in the way."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import bullpen as package
from bullpen import __version__
from bullpen.cli.commands.hook import command
from bullpen.hot import hook
from bullpen.hot.hook_line import hook_line
from tests.commands import BULLPEN, Ran
from tests.standin import SeenRequest, StandIn, answer, says

ROOT = str(Path(package.__file__).parents[1])
EVENT = b'{"hook_event_name": "Stop", "text": "a\\nb"}'


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, named by BULLPEN_DIR, and the session of an agent in it."""
    path = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
    (path / "sockets").mkdir()
    (path / "session").mkdir()
    (path / ".bullpen-dir.txt").write_text(f"v{__version__}\n")
    monkeypatch.setenv("BULLPEN_DIR", str(path))
    monkeypatch.setenv("BULLPEN_ACTOR", "amy")
    monkeypatch.setenv("BULLPEN_SESSION_DIR", str(path / "session"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hub(place: Path) -> Iterator[StandIn]:
    stand_in = StandIn(place / "sockets/hub.sock")
    stand_in.script = says(answer(b'{"decision": "block"}'))
    yield stand_in
    stand_in.close()


COMMANDS = {
    "command": [str(BULLPEN), "hook"],
    "module": [sys.executable, "-m", "bullpen", "hook"],
    "line": hook_line(sys.executable, ROOT, "amy"),
}
Hook = Callable[..., Ran]


@pytest.fixture(params=["command", "line"])
def run_hook(request: pytest.FixtureRequest) -> Hook:
    """The two ways in which an engine calls it."""
    return ways(request.param)


def ways(way: str) -> Hook:
    def call(stdin: bytes = EVENT, **env: str) -> Ran:
        done = subprocess.run(
            COMMANDS[way],
            env={**os.environ, **env},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def pass_on(place: Path, event: bytes, monkeypatch: pytest.MonkeyPatch, **env: str) -> bytes:
    """In this process, for what only the library can be asked."""
    environ = {**os.environb, **{k.encode(): v.encode() for k, v in env.items()}}
    with tempfile.TemporaryFile() as file:
        file.write(event)
        file.seek(0)
        monkeypatch.setattr(hook.posix, "read", lambda _, size: file.read(size))
        return hook.pass_on(bytes(place / "sockets/hub.sock"), "amy", environ)


def spooled(place: Path) -> list[bytes]:
    path = place / "session/hooks.spool"
    return path.read_bytes().splitlines() if path.exists() else []


def test_s2_event_goes_to_the_hub_and_its_answer_to_the_engine(
    place: Path, hub: StandIn, run_hook: Hook
) -> None:
    ran = run_hook(BULLPEN_TOKEN="t0ken")
    assert ran == Ran(0, '{"decision": "block"}', "")
    [asked] = hub.asked
    assert (asked.method, asked.target) == ("POST", "/agents/amy/hooks")
    assert asked.body == EVENT
    assert asked.headers["authorization"] == "Bearer t0ken"
    assert spooled(place) == []


def test_s2_the_whole_command_line_does_the_same(place: Path, hub: StandIn) -> None:
    assert ways("module")() == Ran(0, '{"decision": "block"}', "")
    hub.close()
    assert ways("module")() == Ran(0, "", "")
    assert len(spooled(place)) == len(hub.asked) == 1


def test_s2_another_version_of_the_hub_is_not_the_engines_affair(
    hub: StandIn, run_hook: Hook
) -> None:
    hub.script = says(answer(b"", version="99.0.0"))
    assert run_hook() == Ran(0, "", "")


def test_s2_while_the_hub_is_down_the_event_is_kept(place: Path, run_hook: Hook) -> None:
    before = time.time()
    assert run_hook(b'{"a":\r\n 1}\n') == Ran(0, "", "")
    assert run_hook(b"") == Ran(0, "", "")
    first, second = spooled(place)
    at, _, body = first.partition(b"\t")
    assert before - 1 <= float(at) <= time.time() + 1
    assert json.loads(body) == {"a": 1}
    assert second.endswith(b"\t")
    assert (place / "session/hooks.spool").stat().st_mode & 0o777 == 0o600


def test_s2_without_home_or_name_it_is_silent(tmp_path: Path, run_hook: Hook) -> None:
    assert run_hook() == Ran(0, "", "")
    assert run_hook(BULLPEN_DIR=str(tmp_path), BULLPEN_ACTOR="amy") == Ran(0, "", "")


def test_s2_without_home_the_event_is_kept(tmp_path: Path) -> None:
    ran = ways("command")(
        BULLPEN_DIR="/nowhere", BULLPEN_ACTOR="amy", BULLPEN_SESSION_DIR=str(tmp_path)
    )
    assert ran == Ran(0, "", "")
    assert (tmp_path / "hooks.spool").read_bytes().endswith(b"\t" + EVENT + b"\n")


@pytest.mark.parametrize("event", [b"", b"no json", b"\x00\xff", b"x" * (8 << 20)])
def test_s2_malformed_input_is_the_hubs_to_judge(
    place: Path, hub: StandIn, monkeypatch: pytest.MonkeyPatch, event: bytes
) -> None:
    assert pass_on(place, event, monkeypatch) == b'{"decision": "block"}'
    assert hub.asked[0].body == event


def test_s2_too_large_an_event_is_read_to_its_end_and_sent_as_nothing(hub: StandIn) -> None:
    with subprocess.Popen(
        COMMANDS["line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * (9 << 20))  # no BrokenPipeError
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert out == b'{"decision": "block"}'
    assert hub.asked[0].body == b""


def test_s2_closed_input_is_empty_input(hub: StandIn) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", BULLPEN, "hook"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert hub.asked[0].body == b""


def test_s2_input_that_never_ends_is_given_up(
    place: Path, hub: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "INPUT_SECONDS", 0.05)
    reader, writer = os.pipe()
    read = os.read
    monkeypatch.setattr(hook.posix, "read", lambda _, size: read(reader, size))
    environ = dict(os.environb)
    assert hook.pass_on(bytes(hub.path), "amy", environ) == b'{"decision": "block"}'
    os.close(reader)
    os.close(writer)
    assert hub.asked[0].body == b""


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        (answer(b"no", "404 Not Found"), False),
        (answer(b"no", "401 Unauthorized"), False),
        (answer(b"", "204 No Content"), False),
        (answer(b"no", "429 Too Many Requests"), True),
        (answer(b"no", "500 Oops"), True),
        (answer(b"no", "503 Starting"), True),
        (b"", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{", True),
        (b"garbage\r\n\r\n", True),
    ],
)
def test_s2_only_an_acknowledged_event_is_not_kept(
    place: Path, hub: StandIn, monkeypatch: pytest.MonkeyPatch, sent: bytes, is_kept: bool
) -> None:
    hub.script = says(sent)
    assert pass_on(place, EVENT, monkeypatch) == b""
    assert len(spooled(place)) == is_kept


def test_s2_slow_hub_is_not_waited_for(
    place: Path, hub: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "ANSWER_SECONDS", 0.05)
    released = threading.Event()
    hub.script = lambda *_: released.wait(30) and None
    assert pass_on(place, EVENT, monkeypatch) == b""
    released.set()
    assert len(spooled(place)) == 1


@pytest.mark.slow
def test_s2_slow_hub_costs_five_seconds(place: Path, hub: StandIn, run_hook: Hook) -> None:
    released = threading.Event()
    hub.script = lambda *_: released.wait(100) and None
    began = time.monotonic()
    assert run_hook() == Ran(0, "", "")
    assert 4.9 < time.monotonic() - began < 90
    released.set()
    assert len(spooled(place)) == 1


def test_s2_a_token_that_cannot_be_sent_is_silent(
    place: Path, hub: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pass_on(place, EVENT, monkeypatch, BULLPEN_TOKEN="a\r\nx: y") == b""
    assert hub.asked == []


def test_s2_engine_that_left_is_no_error(hub: StandIn) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for words in COMMANDS.values():
        done = subprocess.run(
            words, input=EVENT, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")
    os.close(writer)


def test_s2_words_it_does_not_have_block_nothing(hub: StandIn, bullpen: Callable[..., Ran]) -> None:
    for words in (["--new-option"], ["--agent"], ["amy"], ["--agent", ""]):
        ran = bullpen("hook", *words, stdin="{}")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.startswith("error: not understood: ")
    assert hub.asked == []


def test_agent_can_be_named(hub: StandIn, bullpen: Callable[..., Ran]) -> None:
    for words in (["--agent", "bob"], ["--agent=bob"]):
        assert bullpen("hook", *words, stdin="{}").out == '{"decision": "block"}'
    assert bullpen("hook", "--agent", "a/../b c", stdin="{}").code == 0
    targets = [asked.target for asked in hub.asked]
    assert targets == ["/agents/bob/hooks"] * 2 + ["/agents/a%2F..%2Fb%20c/hooks"]


def test_help_is_there(bullpen: Callable[..., Ran]) -> None:
    got = CliRunner().invoke(command, ["--help"])
    assert got.exit_code == 0
    assert "--agent NAME" in got.output


def test_spool_has_a_limit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "SPOOL_BYTES", 100)
    for _ in range(10):
        pass_on(place, b'{"a": 1234}', monkeypatch)
    assert (place / "session/hooks.spool").stat().st_size <= 100
    assert len(spooled(place)) == 3


def test_spool_goes_on_after_a_line_that_a_full_disk_cut(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "session/hooks.spool").write_bytes(b'1.0\t{"cut')
    pass_on(place, b"{}", monkeypatch)
    assert spooled(place)[0] == b'1.0\t{"cut'
    assert spooled(place)[1].endswith(b"\t{}")


def test_spool_does_not_follow_a_link(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "session/hooks.spool").symlink_to(place / "elsewhere")
    assert pass_on(place, EVENT, monkeypatch) == b""
    assert not (place / "elsewhere").exists()


def test_x2_in_a_read_only_session_the_spool_is_beside_the_socket(place: Path) -> None:
    """As in a sandbox: all of the session is to be read only, but the socket's directory."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("bubblewrap is not installed")
    session = place / "session"
    (session / "api").mkdir()
    walls = [bwrap, "--dev-bind", "/", "/", "--tmpfs", str(place)]
    walls += ["--ro-bind", str(session), str(session)]
    walls += ["--bind", str(session / "api"), str(session / "api")]
    for line in (COMMANDS["line"], COMMANDS["command"], COMMANDS["module"]):
        done = subprocess.run(
            [*walls, *line], input=EVENT, capture_output=True, check=False, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    lines = (session / "api/hooks.spool").read_bytes().splitlines()
    assert [line.partition(b"\t")[2] for line in lines] == [EVENT] * 3
    assert spooled(place) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_spool_that_is_no_file_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (place / "session/api").mkdir()
    planted = place / "session/hooks.spool"
    if kind == "link":
        planted.symlink_to(place / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.mkdir()
    assert pass_on(place, EVENT, monkeypatch) == b""
    assert not (place / "elsewhere").exists()
    # What can be opened is believed to keep it: a pipe of the agent's own is the agent's loss.
    kept = place / "session/api/hooks.spool"
    assert kept.exists() == (kind != "pipe")


def test_a_full_pipe_in_place_of_the_spool_is_not_waited_for(place: Path) -> None:
    planted = place / "session/hooks.spool"
    os.mkfifo(planted)
    reader = os.open(planted, os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(reader, b"x" * 4096)
    assert ways("line")() == Ran(0, "", "")
    os.close(reader)


def test_many_at_once_keep_every_event_whole(place: Path) -> None:
    count = 24
    events = [json.dumps({"n": n, "pad": "x" * 3000}).encode() for n in range(count)]
    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(ways("line"), events))
    assert all(one == Ran(0, "", "") for one in ran)
    # An empty line is one that began while another was being written: the hub passes over it.
    lines = [line for line in spooled(place) if line]
    kept = [json.loads(line.partition(b"\t")[2])["n"] for line in lines]
    assert sorted(kept) == list(range(count))


def test_hub_killed_while_it_reads_keeps_the_event(
    place: Path, hub: StandIn, run_hook: Hook
) -> None:
    def die(connection: socket.socket, _: SeenRequest) -> None:
        connection.close()

    hub.script = die
    assert run_hook() == Ran(0, "", "")
    assert len(spooled(place)) == 1


def test_line_works_from_any_path_and_without_the_package(tmp_path: Path, hub: StandIn) -> None:
    odd = tmp_path / 'it\'s "odd" \\ ü'
    odd.mkdir()
    (odd / "bullpen").symlink_to(Path(ROOT, "bullpen"))
    line = hook_line(sys.executable, str(odd), "amy")
    done = subprocess.run(line, input=EVENT, capture_output=True, check=True)
    assert done.stdout == b'{"decision": "block"}'
    (odd / "bullpen").unlink()
    done = subprocess.run(line, input=EVENT, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


OLD_LINE = """\
import sys
sys.path.insert(0, {root})
try:
    from bullpen.client.hook import main
except ImportError:
    sys.exit()
main()
"""


def test_b2_line_in_the_settings_of_an_agent_of_before_still_works(hub: StandIn) -> None:
    line = [sys.executable, "-I", "-S", "-c", OLD_LINE.format(root=ascii(ROOT)), "amy"]
    done = subprocess.run(line, input=EVENT, capture_output=True, check=True)
    assert done.stdout == b'{"decision": "block"}'


def test_line_leaves_doubts_to_the_command(place: Path, hub: StandIn) -> None:
    (place / ".bullpen-dir.txt").write_text("v0.0.1\n")  # to be migrated first
    assert ways("line")() == Ran(0, '{"decision": "block"}', "")
    assert (place / ".bullpen-dir.txt").read_text() == f"v{__version__}\n"


def test_line_imports_nothing_heavy(hub: StandIn) -> None:
    line = COMMANDS["line"]
    done = subprocess.run(
        [*line[:3], "-X", "importtime", *line[3:]], input=EVENT, capture_output=True, check=True
    )
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines()}
    assert "bullpen.hot.hook" in loaded
    assert not loaded & {"os", "socket", "json", "re", "enum", "site", "select", "signal", "typing"}
