"""Runs the real agent CLIs against the fakes: nothing of the person's, nothing but loopback.

    claude = Claude(tmp_path, model)
    ran = claude.run_headless("[[say hi]]", "--model", "haiku")
    assert ran.code == 0 and ran.result["result"] == "hi"

    with claude.start("--permission-mode", "manual") as terminal:
        terminal.wait_ready()
        terminal.submit("[[say hi]]")
        terminal.wait_status("idle")

`scripts/engines` installs the programs; where one is missing, the test is skipped and says why.
`StandIn(tmp_path)` is used as `Claude` is, and runs the stand-in. `env` and `program` of each are
what somebody else needs who starts it.
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
import sys
import termios
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from avt import Vt

from tests.engines.fake_model import FakeModel
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".engines" / "current" / "bin"
PINS = Path(__file__).with_name("package.json")
KEY = "sk-ant-fake-" + "0" * 30  # at least 20 characters: the approval of a key holds its last 20
GEMINI_MODEL = "gemini-2.5-flash"
SECONDS = 240.0  # the real programs need seconds of a processor to start, and share it with others


def program(name: str) -> Path:
    """The installed program, or the test is skipped."""
    path = PROGRAMS / name
    if not os.access(path, os.X_OK):
        pytest.skip(f"{name} is not installed: run scripts/engines")
    if PINS.read_text() != (PROGRAMS.parent / PINS.name).read_text():
        pytest.skip(f"{name} is installed in another version: run scripts/engines")
    if name == "gemini" and (node := node_version()) < 20:
        pytest.skip(f"gemini needs Node 20 or newer; here is {node or 'none'}")
    return path


def node_version() -> int:
    """The major version of Node on PATH; 0 if there is none."""
    if not shutil.which("node"):
        return 0
    done = subprocess.run(["node", "--version"], capture_output=True, timeout=60, check=True)
    return int(done.stdout.decode().lstrip("v").partition(".")[0])


def standin(directory: Path) -> Path:
    """A program in that directory that is the stand-in for Claude Code, run by our Python."""
    path = directory / "claude"
    script = Path(__file__).with_name("standin.py")
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{script}" "$@"\n')
    path.chmod(0o755)
    return path


def record_hooks(directory: Path, *events: str, **commands: str) -> dict[str, Any]:
    """Settings whose hooks write what they are told; `commands` are run in place of that.

    A file per hook, because StopFailure and SessionEnd run at the same time.
    """
    directory.mkdir(exist_ok=True)
    record = f'cd {directory} && cat >.$$ && mv .$$ "$(date +%s%N).json"'
    wanted = {**dict.fromkeys(events, record), **commands}
    return {
        "hooks": {
            event: [{"hooks": [{"type": "command", "command": command}]}]
            for event, command in wanted.items()
        }
    }


def recorded(directory: Path) -> list[dict[str, Any]]:
    """What the hooks were told, in order."""
    return [json.loads(file.read_text()) for file in sorted(directory.glob("*.json"))]


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


def user_line(text: str) -> str:
    """A prompt for `--input-format stream-json`."""
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


def control_line(subtype: str, **keys: str) -> str:
    """A control request, such as an interrupt."""
    request = {"subtype": subtype, **keys}
    line = {"type": "control_request", "request_id": subtype, "request": request}
    return json.dumps(line) + "\n"


class Home:
    """A home directory of nobody's and a working directory in it, with an environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "agent-home"
        self.temporary = root / "tmp"
        for directory in (self.work, self.home, self.temporary):
            directory.mkdir(mode=0o700, exist_ok=True)
        self.under: list[str] = []  # a command that runs the program, such as strace
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
            # Claude's sockets and its tools' output, Gemini's reports of errors.
            "TMPDIR": str(self.temporary),
        }

    def run(self, argv: list[str | Path], stdin: str, seconds: float, env: dict[str, str]) -> Ran:
        """Run to the end; a run that is too long is killed with its children, and fails."""
        process = subprocess.Popen(
            [*self.under, *argv],
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

    def __init__(self, root: Path, model: FakeModel | None = None) -> None:
        super().__init__(root)
        self.program = self._program()
        self.model = model
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
            "ANTHROPIC_BASE_URL": model.url if model else "http://127.0.0.1:9",
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

    def run_headless(self, prompt: str, *flags: str, seconds: float = SECONDS, **env: str) -> Ran:
        """`claude -p` with lines of JSON; the prompt on standard input.

        Not as an argument: flags that take many words (--allowedTools) would swallow it. With
        "--input-format", "stream-json" the prompt is lines from `user_line`.
        """
        words = ["-p", "--output-format", "stream-json", "--verbose", *flags]
        return self.run([self.program, *words], prompt, seconds, env)

    def start(self, *words: str, **env: str) -> "Terminal":
        """Interactive, in a terminal of its own."""
        argv = [*self.under, self.program, *words]
        return Terminal(argv, self.work, {**self.env, **env}, self.config)

    def spawn(self, *words: str, **env: str) -> "Pipes":
        """Headless, spoken to while it runs: lines of JSON in and out."""
        form = ["--input-format", "stream-json", "--output-format", "stream-json"]
        argv = [self.program, "-p", "--verbose", *form, *words]
        return Pipes(argv, self.work, {**self.env, **env})

    def wait_held(self, name: str = "hold") -> None:
        """Wait until the model has come to `hold NAME`."""
        self.model.wait_held(name)

    def release(self, name: str = "hold") -> None:
        """Let the model go on."""
        self.model.release(name)

    def _program(self) -> Path:
        return program("claude")

    def states(self) -> list[dict[str, Any]]:
        """What the state files say, of the living and the killed; none is looked at while it is
        being written, or is gone."""
        found: list[dict[str, Any]] = []

        def are_read() -> bool:
            files = self.config.glob("sessions/*.json")
            with contextlib.suppress(FileNotFoundError, ValueError):
                found[:] = [json.loads(file.read_text()) for file in files]
                return True
            return False

        wait_until(are_read)
        return found


class StandIn(Claude):
    """The stand-in, with the same config directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.holds = root / "holds"
        self.holds.mkdir(exist_ok=True)
        self.env["STANDIN_HOLDS"] = str(self.holds)

    def wait_held(self, name: str = "hold") -> None:
        wait_until((self.holds / f"{name}.held").exists)

    def release(self, name: str = "hold") -> None:
        (self.holds / name).touch()

    def _program(self) -> Path:
        return standin(self.root)


class Codex(Home):
    """Codex with a CODEX_HOME that knows only the fake."""

    def __init__(self, root: Path, model: FakeModel) -> None:
        super().__init__(root)
        self.program = program("codex")
        self.model = model
        self.config = root / "codex-home"
        self.config.mkdir(exist_ok=True)
        # Without plugins: 0.166.0 asks github.com and chatgpt.com for them at every start. Without
        # /tmp: it puts an empty .git there while a command runs, which all other tests would see.
        (self.config / "config.toml").write_text(
            f"""
model = "gpt-5"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[model_providers.fake]
name = "fake"
base_url = "{model.url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[sandbox_workspace_write]
exclude_slash_tmp = true
"""
        )
        self.env |= {"CODEX_HOME": str(self.config), "FAKE_KEY": KEY}

    def run_headless(
        self, prompt: str, *flags: str, resume: str = "", seconds: float = SECONDS, **env: str
    ) -> Ran:
        """`codex exec --json`, of a new thread or of `resume`."""
        words = ["exec", "--json", "--skip-git-repo-check", *flags]
        words += ["resume", resume, prompt] if resume else [prompt]
        return self.run([self.program, *words], "", seconds, env)


class Gemini(Home):
    """Gemini CLI with a settings file that signs in with a key."""

    def __init__(self, root: Path, model: FakeModel) -> None:
        super().__init__(root)
        self.program = program("gemini")
        self.model = model
        self.config = self.home / ".gemini"
        self.config.mkdir(exist_ok=True)
        self.settings()
        self.env |= {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": model.url}

    def settings(self, **values: Any) -> None:
        """Write the user's settings file."""
        fixed = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
        (self.config / "settings.json").write_text(json.dumps({**fixed, **values}))

    def run_headless(self, prompt: str, *flags: str, seconds: float = SECONDS, **env: str) -> Ran:
        """`gemini -p` with lines of JSON."""
        words = ["-m", GEMINI_MODEL, "--skip-trust", "-o", "stream-json", *flags, "-p", prompt]
        return self.run([self.program, *words], "", seconds, env)


class Pipes:
    """A headless run that a test talks with."""

    def __init__(self, argv: list[str | Path], cwd: Path, env: dict[str, str]) -> None:
        self.lines: list[Any] = []
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.process, signal.SIGTERM)
        self._reader.join(60)

    def send(self, *lines: str) -> None:
        """Lines as they are: of `user_line` or `control_line`."""
        self.process.stdin.write("".join(lines).encode())
        self.process.stdin.flush()

    def wait_line(self, kind: str, times: int = 1, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait for so many lines of that type; the last of them."""
        wait_until(lambda: len(self._of(kind)) >= times, seconds)
        return self._of(kind)[times - 1]

    def finish(self, seconds: float = SECONDS) -> int:
        """Close its input; the exit code."""
        self.process.stdin.close()
        return self.process.wait(seconds)

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(json.loads(line))


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
        self._reader.join(60)
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

    def answer(self, key: str, seconds: float = SECONDS) -> None:
        """Answer the permission dialog.

        2.1.325 says "waiting" up to 0.5 s before it draws the dialog, and for some 0.3 s after
        that it ignores the keys that agree: so the key is pressed again until it is taken.
        """
        self.wait_status("waiting", seconds)
        self.wait_screen("Do you want to proceed", seconds)
        for _ in range(int(seconds)):
            self.type(key)
            with contextlib.suppress(AssertionError):
                return wait_until(lambda: self.state().get("status") != "waiting", 1)
        raise AssertionError(f"{key!r} was not taken\n{self.screen()}")

    def screen(self) -> str:
        """What a person would see."""
        with self._lock:
            text = "\n".join(line.text.rstrip() for line in self._screen.view())
        return text.replace("\xa0", " ")

    def state(self) -> dict[str, Any]:
        """The program's own state file; empty when there is none."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.config / "sessions" / f"{self.pid}.json").read_text())
        return {}

    def wait_ready(self, seconds: float = SECONDS) -> None:
        """Wait for the prompt line; a dialog has its own lines, further in."""
        self.wait_screen("\n❯", seconds)

    def wait_screen(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until the text is on the screen."""
        self._wait(lambda: text in self.screen(), seconds)

    def wait_status(self, status: str, seconds: float = SECONDS) -> None:
        """Wait until the state file says idle, busy or waiting."""
        self._wait(lambda: self.state().get("status") == status, seconds)

    def wait_exit(self, seconds: float = SECONDS) -> int:
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
        process.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
