"""Runs the real agent CLIs against the fakes: nothing of the person's, nothing but loopback.

    claude = Claude(tmp_path, model.url)
    ran = claude.run_headless("[[say hi]]", "--model", "haiku")
    assert ran.code == 0 and ran.result["result"] == "hi"

    with claude.start("--permission-mode", "manual") as terminal:
        terminal.wait_screen("? for shortcuts")
        terminal.submit("[[say hi]]")
        terminal.wait_status("idle")

`scripts/engines` installs the programs; where one is missing, the test is skipped and says why.
`Claude(..., program=standin())` runs the stand-in in place of the real one.
"""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from avt import Vt

from tests.conftest import wait_until

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".engines" / "current" / "bin"
KEY = "sk-ant-fake-" + "0" * 30  # at least 20 characters: the approval of a key holds its last 20
GEMINI_MODEL = "gemini-2.5-flash"


def program(name: str) -> Path:
    """The installed program, or the test is skipped."""
    path = PROGRAMS / name
    if not os.access(path, os.X_OK):
        pytest.skip(f"{name} is not installed: run scripts/engines")
    if name == "gemini" and (node := node_version()) < 20:
        pytest.skip(f"gemini needs Node 20 or newer; here is {node or 'none'}")
    return path


def node_version() -> int:
    """The major version of Node on PATH; 0 if there is none."""
    if not shutil.which("node"):
        return 0
    done = subprocess.run(["node", "--version"], capture_output=True, timeout=20, check=True)
    return int(done.stdout.decode().lstrip("v").partition(".")[0])


def standin() -> Path:
    """The stand-in for Claude Code."""
    return Path(__file__).with_name("standin.py")


@dataclass(frozen=True)
class Ran:
    """A finished headless run: its lines of JSON, its exit code, its standard error."""

    lines: list[Any]
    code: int
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line of type "result"."""
        return self.of("result")[-1]

    def of(self, kind: str, subtype: str | None = None) -> list[dict[str, Any]]:
        """The lines of that type."""
        return [
            line
            for line in self.lines
            if line["type"] == kind and subtype in (None, line.get("subtype"))
        ]


class Home:
    """A home directory of nobody's and a working directory in it, with an environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "agent-home"
        for directory in (self.work, self.home):
            directory.mkdir(exist_ok=True)
        # The engines' programs are not on PATH: only what a test names is run.
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
        }

    def run(self, argv: list[str | Path], stdin: str, seconds: float, env: dict[str, str]) -> Ran:
        """Run to the end; a run that is too long is killed with its children, and fails."""
        process = subprocess.Popen(
            argv,
            cwd=self.work,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(stdin.encode(), timeout=seconds)
        except BaseException:
            _end(process, signal.SIGKILL)
            raise
        lines = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
        return Ran(lines, process.returncode, err.decode())


class Claude(Home):
    """Claude Code with a config directory that starts without a dialog."""

    def __init__(self, root: Path, url: str = "http://127.0.0.1:9", program: Path | None = None):
        super().__init__(root)
        self.program = program or globals()["program"]("claude")
        self.config = root / "claude-config"
        self.config.mkdir(exist_ok=True)
        accepted = {
            "hasCompletedOnboarding": True,
            "hasSeenAutoDefaultNudge": True,
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(root): {"hasTrustDialogAccepted": True}},
        }
        (self.config / ".claude.json").write_text(json.dumps(accepted))
        self.settings(skipDangerousModePermissionPrompt=True)
        self.env |= {
            "CLAUDE_CONFIG_DIR": str(self.config),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
        }

    def settings(self, **values: Any) -> None:
        """Write the user's settings file."""
        (self.config / "settings.json").write_text(json.dumps(values))

    def run_headless(
        self, prompt: str, *flags: str, stdin: str = "", seconds: float = 30, **env: str
    ) -> Ran:
        """`claude -p` with the prompt as an argument; one JSON line per event."""
        words = ["-p", "--output-format", "stream-json", "--verbose", *flags]
        return self.run([self.program, *words, *([prompt] if prompt else [])], stdin, seconds, env)

    def start(self, *words: str, **env: str) -> "Terminal":
        """Interactive, in a terminal of its own."""
        argv = [self.program, *words]
        return Terminal(argv, self.work, {**self.env, **env}, self.config)

    def states(self) -> list[dict[str, Any]]:
        """What the state files say, of the living and the killed."""
        return [json.loads(file.read_text()) for file in self.config.glob("sessions/*.json")]


class Codex(Home):
    """Codex with a CODEX_HOME that knows only the fake."""

    def __init__(self, root: Path, url: str):
        super().__init__(root)
        self.program = program("codex")
        self.config = root / "codex-home"
        self.config.mkdir(exist_ok=True)
        (self.config / "config.toml").write_text(
            f"""
model = "gpt-5"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
        )
        self.env |= {"CODEX_HOME": str(self.config), "FAKE_KEY": KEY}

    def run_headless(
        self, prompt: str, *flags: str, resume: str = "", seconds: float = 30, **env: str
    ) -> Ran:
        """`codex exec --json`, of a new thread or of `resume`."""
        words = ["exec", "--json", "--skip-git-repo-check", *flags]
        words += ["resume", resume, prompt] if resume else [prompt]
        return self.run([self.program, *words], "", seconds, env)


class Gemini(Home):
    """Gemini CLI with a settings file that signs in with a key."""

    def __init__(self, root: Path, url: str):
        super().__init__(root)
        self.program = program("gemini")
        self.config = self.home / ".gemini"
        self.config.mkdir(exist_ok=True)
        self.settings()
        self.env |= {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}

    def settings(self, **values: Any) -> None:
        """Write the user's settings file."""
        fixed = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
        (self.config / "settings.json").write_text(json.dumps({**fixed, **values}))

    def run_headless(self, prompt: str, *flags: str, seconds: float = 30, **env: str) -> Ran:
        """`gemini -p` with lines of JSON."""
        words = ["-m", GEMINI_MODEL, "--skip-trust", "-o", "stream-json", *flags, "-p", prompt]
        return self.run([self.program, *words], "", seconds, env)


class Terminal:
    """A program in a terminal of its own: keys in, the screen and the state file out."""

    def __init__(
        self,
        argv: list[str | Path],
        cwd: Path,
        env: dict[str, str],
        config: Path,
        rows: int = 40,
        cols: int = 120,
    ) -> None:
        self._keys, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        # setsid rather than a function in the child: the fakes' threads run in this process.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            cwd=cwd,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.config = config
        self._screen = Vt(cols, rows, 0)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.process, signal.SIGTERM)
        self._reader.join(5)
        os.close(self._keys)

    @property
    def pid(self) -> int:
        return self.process.pid

    def type(self, text: str) -> None:
        """Keys, as they are."""
        os.write(self._keys, text.encode())

    def submit(self, text: str) -> None:
        """A prompt as a paste, and Enter."""
        self.type(f"\x1b[200~{text}\x1b[201~\r")

    def answer(self, key: str, seconds: float = 20.0) -> None:
        """Answer the permission dialog.

        2.1.325 says "waiting" up to 0.5 s before it draws the dialog, and for some 0.3 s after
        that it ignores the keys that agree: so the key is pressed again until it is taken.
        """
        self.wait_screen("Do you want to proceed", seconds)
        for _ in range(int(seconds)):
            self.type(key)
            with contextlib.suppress(AssertionError):
                return wait_until(lambda: self.state().get("status") != "waiting", 1)
        raise AssertionError(f"{key!r} was not taken\n{self.screen()}")

    def screen(self) -> str:
        """What a person would see."""
        with self._lock:
            return "\n".join(line.text.rstrip() for line in self._screen.view())

    def state(self) -> dict[str, Any]:
        """The program's own state file; empty when there is none."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.config / "sessions" / f"{self.pid}.json").read_text())
        return {}

    def wait_screen(self, text: str, seconds: float = 20.0) -> None:
        """Wait until the text is on the screen."""
        self._wait(lambda: text in self.screen(), seconds)

    def wait_status(self, status: str, seconds: float = 20.0) -> None:
        """Wait until the state file says idle, busy or waiting."""
        self._wait(lambda: self.state().get("status") == status, seconds)

    def wait_exit(self, seconds: float = 20.0) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(seconds)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        try:
            wait_until(condition, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state()}\n{self.screen()}") from error

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        # The end of the program is an error of the read.
        with contextlib.suppress(OSError):
            while data := os.read(self._keys, 65536):
                with self._lock:
                    self._screen.feed_str(decode(data))


def _end(process: "subprocess.Popen[bytes]", first: signal.Signals) -> None:
    """End a program that leads a session, and what is left of its group."""
    process.send_signal(first)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(5)
