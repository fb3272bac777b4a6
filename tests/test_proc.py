"""The runner of short commands leaves nothing behind; a pid alone proves nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bullpen import proc
from bullpen.errors import BullpenError, Kind
from bullpen.files import read_tail
from bullpen.home.paths import Home
from bullpen.home.ssh_link import point_ssh_agent
from tests.waiting import wait_until

# Forks, writes the child's pid, and waits for it.
TWO = 'sleep 600 & echo $! > "$0".new && mv "$0".new "$0"; wait'


def is_gone(pid: int) -> bool:
    return proc.start_time(pid) is None


@pytest.mark.parametrize("why", ["too long", "not wanted"])
@pytest.mark.slow
def test_a_command_that_is_ended_takes_its_children_along(tmp_path: Path, why: str) -> None:
    told = tmp_path / "pid"
    seconds = 2.0 if why == "too long" else 600.0

    def is_wanted() -> bool:
        return not told.exists()

    with pytest.raises(BullpenError) as caught:
        proc.run(
            ["sh", "-c", TWO, told],
            timeout=seconds,
            is_wanted=is_wanted if why == "not wanted" else None,
        )
    assert caught.value.kind is Kind.COMMAND_FAILED
    if told.exists():  # on a machine that is too slow the first was ended before it began
        wait_until(lambda: is_gone(int(told.read_text())))


def test_a_zombie_is_gone_and_a_living_one_keeps_its_time() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = proc.start_time(child.pid)
    assert began is not None
    assert began == proc.start_time(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    assert proc.start_time(child.pid) is None
    child.communicate()
    assert proc.start_time(child.pid) is None


def test_output_and_code_are_the_callers() -> None:
    done = proc.run(["sh", "-c", "cat; printf '\\377' >&2; exit 3"], stdin=b"a\xff")
    assert (done.code, done.out, done.err, done.text) == (3, b"a\xff", b"\xff", "a\udcff")
    assert proc.run(["cat"]).out == b"", "it inherits no standard input"


def test_n3_what_writes_without_end_into_a_file_is_ended_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "MOST_OUTPUT_BYTES", 1000)
    script = "import time; print('x' * 2000, flush=True); time.sleep(600)"
    with (
        (tmp_path / "log").open("wb") as output,
        pytest.raises(proc.TooMuchOutputError, match="wrote more than"),
    ):
        proc.run([sys.executable, "-c", script], timeout=300, output=output)
    assert read_tail(tmp_path / "log", 5) == b"xxxx\n"
    assert len(read_tail(tmp_path / "log", 1 << 20)) == 2001


def test_the_link_to_the_ssh_agent_never_leads_to_itself(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.sockets.mkdir()
    link = home.sockets / "ssh-agent"
    point_ssh_agent(home, {"SSH_AUTH_SOCK": "/first"})
    for other in ("", "relative", str(link)):
        point_ssh_agent(home, {"SSH_AUTH_SOCK": other})
        assert str(link.readlink()) == "/first"
    point_ssh_agent(home, {"SSH_AUTH_SOCK": "/second"})
    assert str(link.readlink()) == "/second"
    assert [path.name for path in home.sockets.iterdir()] == ["ssh-agent"]


class InterruptedPopen(subprocess.Popen[bytes]):
    """The person presses Ctrl-C when the child runs and `Popen` has not returned yet."""

    pids: ClassVar[list[int]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pids.append(self.pid)
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_it_starts_takes_the_child_along(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test runner started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(subprocess, "Popen", InterruptedPopen)
    try:
        with pytest.raises(KeyboardInterrupt):
            proc.run(["sleep", "600"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert [is_gone(pid) for pid in InterruptedPopen.pids] == [True]
