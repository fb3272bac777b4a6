"""The peer of rows 10 to 14: CLI Agent Orchestrator, a server of its own with agents in tmux.

It is installed into an environment of its own when it is first asked for. Its agent is the
scripted one that its own tests use (`mock_cli`): it takes a line, works for 50 ms, and echoes it.
The program for that is not in its package, so it is written here.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.table import Skipped, wait_until

VERSION = "2.5.4"
PLACE = Path(__file__).parents[1] / ".peers" / f"cao-{VERSION}"
INSTALL_SECONDS = 400.0
CALL_SECONDS = 60.0
AGENT = """\
#!/bin/sh
printf '❯ '
while IFS= read -r line; do
    sleep 0.05
    printf '> MOCK: %s\\n❯ ' "$line"
    echo "HEARD $line" >>{heard}
done
"""


def installed() -> Path:
    """Its programs. Skipped: it cannot be installed here, and why."""
    server = PLACE / "bin" / "cao-server"
    if not server.exists():
        package = f"cli-agent-orchestrator=={VERSION}"
        for words in (
            [sys.executable, "-m", "venv", "--clear", str(PLACE)],
            [str(PLACE / "bin" / "pip"), "install", "-q", package],
        ):
            try:
                subprocess.run(
                    words, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
                )
            except subprocess.TimeoutExpired:
                raise Skipped(f"{package} was not installed in {INSTALL_SECONDS:.0f} s") from None
            except subprocess.CalledProcessError as error:
                said = [*error.stderr.strip().splitlines(), "no reason"][0]
                raise Skipped(f"{package} cannot be installed: {said}") from None
    return PLACE / "bin"


class Cao:
    """A server in a directory of its own; it is started anew after a kill."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.heard = place / "heard"
        programs = place / "bin"
        programs.mkdir(parents=True)
        (programs / "mock_cli").write_text(AGENT.format(heard=self.heard))
        (programs / "mock_cli").chmod(0o700)
        # Its shells are login shells, for which the system's files choose another PATH.
        (place / ".bash_profile").write_text(f"export PATH={programs}:$PATH\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.env = {
            "HOME": str(place),
            "CAO_HOME_DIR": str(place / "cao"),
            "CAO_API_PORT": str(self.port),
            "TMUX_TMPDIR": str(place),
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": f"{installed()}:{os.environ['PATH']}",
        }
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Until it answers."""
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["cao-server"], env=self.env, cwd=self.place, stdout=log, stderr=log
            )
        wait_until(self.answers, 0.05)
        return self.process

    def answers(self) -> bool:
        if self.process.poll() is not None:
            raise Skipped(f"cao-server ended with {self.process.returncode}")
        with contextlib.suppress(OSError):
            self.call("GET", "/health")
            return True
        return False

    def call(self, method: str, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
            return json.load(answer)

    def create(self, name: str) -> str:
        """The id of a new agent, which waits for a message when this returns."""
        query = {
            "agent_profile": "developer",
            "provider": "mock_cli",
            "session_name": name,
            "working_directory": str(self.place),
        }
        return str(self.call("POST", "/sessions", **query)["id"])

    def create_all(self, names: list[str]) -> list[str]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(self.create, names))

    def send(self, agent: str, text: str) -> None:
        self.call("POST", f"/terminals/{agent}/inbox/messages", sender_id=agent, message=text)

    def state(self, agent: str) -> str:
        return str(self.call("GET", f"/terminals/{agent}")["status"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        subprocess.run(["tmux", "kill-server"], env=self.env, capture_output=True, check=False)


@contextmanager
def server(place: Path) -> Iterator[Cao]:
    """It, ended afterwards with its agents."""
    peer = Cao(place)
    try:
        yield peer
    finally:
        peer.close()
