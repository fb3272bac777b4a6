"""The stand-in's hooks: commands and HTTP requests of its settings, as Claude Code runs them."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

Output = dict[str, Any]


class Hooks:
    """All hooks of some settings; those of an event run one after the other."""

    def __init__(
        self, settings: list[dict[str, Any]], common: Callable[[], dict[str, Any]]
    ) -> None:
        self._settings = settings
        self._common = common
        self._running: set[subprocess.Popen[str]] = set()

    def has(self, event: str) -> bool:
        return any(value.get("hooks", {}).get(event) for value in self._settings)

    def fire(self, event: str, **keys: Any) -> list[Output]:
        """What the hooks of this event answer."""
        told = json.dumps({**self._common(), "hook_event_name": event, **keys})
        outputs = []
        for hook in self._of(event, keys.get("tool_name", "")):
            if hook["type"] == "command":
                outputs.append(self._command(hook, told))
            elif hook["type"] == "http" and event != "SessionStart":
                outputs.append(_post(hook, told))
        return outputs

    def kill(self) -> None:
        """End the commands that still run."""
        for process in list(self._running):
            _kill(process)

    def _of(self, event: str, tool: str) -> list[dict[str, Any]]:
        found = []
        for value in self._settings:
            for group in value.get("hooks", {}).get(event, []):
                matcher = group.get("matcher") or ".*"
                if not tool or matcher == "*" or re.fullmatch(matcher, tool):
                    found += group["hooks"]
        return found

    def _command(self, hook: dict[str, Any], told: str) -> Output:
        process = subprocess.Popen(
            hook["command"],
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CLAUDE_PROJECT_DIR": str(self._common()["cwd"])},
            start_new_session=True,
        )
        self._running.add(process)
        try:
            out, err = process.communicate(told, timeout=hook.get("timeout", 60))
        except subprocess.TimeoutExpired:
            _kill(process)
            out, err = process.communicate()
        self._running.discard(process)
        if process.returncode == 2:
            return {"decision": "block", "reason": err.strip()}
        return _parsed(out) if process.returncode == 0 else {}


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _post(hook: dict[str, Any], told: str) -> Output:
    """A refused connection, a time-out, an error status: as if there were no hook."""
    from http.client import HTTPConnection, HTTPException

    allowed = hook.get("allowedEnvVars", [])

    def expand(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return os.environ.get(name, "") if name in allowed else ""

    headers = {
        name: re.sub(r"\$(?:\{(\w+)\}|(\w+))", expand, value)
        for name, value in hook.get("headers", {}).items()
    }
    url = urlsplit(hook["url"])
    with contextlib.suppress(OSError, HTTPException):
        connection = HTTPConnection(url.hostname or "", url.port, timeout=hook.get("timeout", 30))
        path = f"{url.path}?{url.query}" if url.query else url.path
        connection.request(
            "POST", path, told.encode(), {"content-type": "application/json", **headers}
        )
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status < 300:
            return _parsed(body)
    return {}


def _parsed(text: str) -> Output:
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}
