"""The stand-in's session: turns, tools, permissions, hooks, the state file and the transcript.

What a person or a program sees of it is the front's business: `standin.py` has one for `-p`, and
`standin_terminal.py` one for a terminal.
"""

import contextlib
import json
import os
import queue
import re
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from script import PLAIN, Cut, Hold, Say, Slow, Status, Step, Think, Tool, find_script
from standin_hooks import Hooks

VERSION = "2.1.325"
INPUT_TOKENS, OUTPUT_TOKENS, COST = 100, 10, 0.0006  # of one answer

_SAFE = re.compile(r"(echo|ls|cat|pwd|true|false|tail)\b[^>;&|]*")
_SAFE_OR_EDITS = re.compile(rf"{_SAFE.pattern}|(mkdir|touch|rm|rmdir|mv|cp|sed)\b[^;&|]*")
_NO_TOOL = "<tool_use_error>Error: No such tool available:"
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_FAILURES = {401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}


# A prompt, and whether it was announced to the hooks; None: there will be no more.
Prompts = queue.Queue[tuple[str, bool] | None]


class Interrupted(Exception):
    """The turn was stopped, by a key, a control request or a signal."""


class ApiFailed(Exception):
    """The scripted model refused; `status` is None when the connection broke."""

    def __init__(self, status: int | None, message: str) -> None:
        super().__init__(message)
        self.status = status


class Front(Protocol):
    """Who the session talks to."""

    def show(self, line: dict[str, Any]) -> None:
        """A line of the stream-json format."""

    def permit(self, call: "Call", launch_env: threading.Event) -> bool | None:
        """Ask the person, until `settled`; None: there is nobody, or it was settled."""


class Call:
    """A tool call."""

    def __init__(self, tool: Tool) -> None:
        self.name, self.input = tool.name, tool.input
        self.id = f"toolu_{uuid.uuid4().hex[:20]}"
        self.keys = {"tool_name": self.name, "tool_input": self.input, "tool_use_id": self.id}


class Session:
    """One conversation, in one process."""

    def __init__(self, options: dict[str, Any], settings: list[dict[str, Any]], headless: bool):
        self.id = options.get("--resume") or options.get("--session-id") or str(uuid.uuid4())
        self.options = options
        self.headless = headless
        self.mode = options.get("--permission-mode") or ("default" if headless else "auto")
        self.model = options.get("--model", "claude-opus-5-5")
        self.config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
        self.interrupt = threading.Event()
        self.front: Front
        self.hooks = Hooks(settings, self._common)
        rules = [value.get("permissions", {}) for value in settings]
        self._allow = [rule for one in rules for rule in one.get("allow", [])]
        self._deny = [rule for one in rules for rule in one.get("deny", [])]
        self._allow += options.get("--allowedTools", [])
        self._deny += options.get("--disallowedTools", [])
        self._prompt_id = ""
        self._started = time.time()
        self._state_file = self.config / "sessions" / f"{os.getpid()}.json"
        self.write_state(None)

    # -- what is on disk ---------------------------------------------------------------------

    @property
    def transcript(self) -> Path:
        """Where the conversation is; it exists from the first prompt on."""
        known = sorted(self.config.glob(f"projects/*/{self.id}.jsonl"))
        folder = re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
        return known[0] if known else self.config / "projects" / folder / f"{self.id}.jsonl"

    def write_state(self, status: str | None, waiting_for: str | None = None) -> None:
        """The state file; without a status before the first turn."""
        now = int(time.time() * 1000)
        value: dict[str, Any] = {
            "pid": os.getpid(),
            "sessionId": self.id,
            "cwd": str(Path.cwd()),
            "startedAt": int(self._started * 1000),
            "version": VERSION,
            "kind": "interactive",
            "entrypoint": "sdk-cli" if self.headless else "cli",
            "messagingSocketPath": self.options.get("--messaging-socket-path"),
        }
        if status:
            value |= {"status": status, "updatedAt": now, "statusUpdatedAt": now}
        if waiting_for:
            value["waitingFor"] = waiting_for
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(value))
        new.rename(self._state_file)

    def remove_state(self) -> None:
        self._state_file.unlink(missing_ok=True)

    def _record(self, kind: str, content: Any) -> None:
        line = {"type": kind, "sessionId": self.id, "message": {"role": kind, "content": content}}
        line["uuid"] = str(uuid.uuid4())
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def resumable(self) -> bool:
        """Whether the transcript holds a prompt; one that was killed early holds none."""
        with contextlib.suppress(FileNotFoundError):
            return any(json.loads(line)["type"] == "user" for line in self.transcript.open())
        return False

    def _answers_so_far(self) -> int:
        """In the whole conversation, also before a resume."""
        with contextlib.suppress(FileNotFoundError):
            return sum(json.loads(line)["type"] == "assistant" for line in self.transcript.open())
        return 0

    def _common(self) -> dict[str, Any]:
        return {
            "session_id": self.id,
            "transcript_path": str(self.transcript),
            "cwd": str(Path.cwd()),
            "prompt_id": self._prompt_id,
            "permission_mode": "default" if self.mode == "manual" else self.mode,
        }

    # -- a session's begin and end -----------------------------------------------------------

    def begin(self, source: str) -> None:
        """The lines about this event's hooks come before any other, even the init."""
        line = {"type": "system", "hook_event": "SessionStart"}
        for subtype in ("hook_started", "hook_response") if self.hooks.has("SessionStart") else ():
            self.front.show(self._line({**line, "subtype": subtype}))
        self.hooks.fire("SessionStart", source=source, model=self.model)

    def end(self, reason: str) -> None:
        self.hooks.kill()
        self.hooks.fire("SessionEnd", reason=reason)
        self.remove_state()

    def clear(self) -> None:
        """A new conversation under a new id."""
        self.hooks.fire("SessionEnd", reason="clear")
        self.id = str(uuid.uuid4())
        self.write_state("idle")
        self.begin("clear")

    # -- a turn ------------------------------------------------------------------------------

    def submit(self, prompt: str) -> bool:
        """Announce a prompt; False when a hook blocks it."""
        self._prompt_id = str(uuid.uuid4())
        outputs = self.hooks.fire("UserPromptSubmit", prompt=prompt)
        return all(output.get("decision") != "block" for output in outputs)

    def turn(self, prompt: str) -> dict[str, Any]:
        """Play the prompt's script; the line of type "result"."""
        self.interrupt.clear()
        self.write_state("busy")
        self._record("user", prompt)
        self.front.show(self._init())
        self.said = ""  # of the last answer
        self.structured: Any = None
        self.denials: list[dict[str, Any]] = []
        self._answered = 0
        self._in_tool = False
        self._spent: Counter[Step] = Counter()
        began = time.monotonic()
        result: dict[str, Any]
        try:
            if "ANTHROPIC_BASE_URL" in os.environ and not any(map(os.environ.get, _KEYS)):
                raise ApiFailed(401, "Not logged in · Please run /login")
            self._play(find_script(prompt) or ((Say(PLAIN),),))
            result = {"terminal_reason": "completed", "is_error": False, "result": self.said}
            if self.structured is not None:
                result["structured_output"] = self.structured
                result["result"] = json.dumps(self.structured)
        except ApiFailed as error:
            kind = _FAILURES.get(error.status or 0, "server_error")
            self.hooks.fire("StopFailure", error=kind, last_assistant_message=str(error))
            result = {"terminal_reason": "api_error", "is_error": True, "result": str(error)}
            result["api_error_status"] = error.status
        except Interrupted:
            what = " for tool use" if self._in_tool else ""
            self._show("user", [{"type": "text", "text": f"[Request interrupted by user{what}]"}])
            reason = "aborted_tools" if self._in_tool else "aborted_streaming"
            result = {"terminal_reason": reason, "is_error": True, "errors": ["interrupted"]}
            result["subtype"] = "error_during_execution"
        result = {**self._result(time.monotonic() - began), **result}
        self.front.show(result)
        self.write_state("idle")
        return result

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait in the middle of a turn, for ever; an interrupt ends it."""
        while not condition():
            if self.interrupt.wait(0.005):
                raise Interrupted

    def _play(self, answers: tuple[tuple[Step, ...], ...]) -> None:
        index = 0
        while True:
            answer = answers[index] if index < len(answers) else (Say(PLAIN),)
            index += 1
            calls = self._answer(answer)
            for call in calls:
                self._call(call)
            if self.structured is not None or (not calls and not self._blocked()):
                return

    def _blocked(self) -> bool:
        """Whether a Stop hook wants the turn to go on."""
        outputs = self.hooks.fire(
            "Stop", stop_hook_active=False, last_assistant_message=self.said, background_tasks=[]
        )
        return any(output.get("decision") == "block" for output in outputs)

    def _answer(self, answer: tuple[Step, ...]) -> list[Call]:
        calls: list[Call] = []
        self.said = ""
        blocks: list[dict[str, Any]] = []
        for step in answer:
            match step:
                case Say(text):
                    self.said += text
                    blocks.append({"type": "text", "text": text})
                    self._show("assistant", blocks[-1:])
                case Think(text):
                    self._show("assistant", [{"type": "thinking", "thinking": text}])
                case Tool():
                    calls.append(Call(step))
                    block = {"type": "tool_use", "id": calls[-1].id, "name": step.name}
                    blocks.append({**block, "input": step.input})
                    self._show("assistant", blocks[-1:])
                case Hold(name):
                    self._hold(name)
                case Slow(seconds):
                    until = time.monotonic() + seconds
                    self.wait(lambda until=until: time.monotonic() >= until)
                case Status(code, retry_after, times):
                    delay = (retry_after or 0) * 1000
                    self._retried(step, times, code, delay, f"API Error: {code} scripted {code}")
                case Cut(times):
                    self._retried(step, times, None, 0, "API Error: Connection dropped")
        self._answered += 1
        self._record("assistant", blocks)
        return calls

    def _hold(self, name: str) -> None:
        """Say so by the file NAME.held, and wait for the file NAME."""
        folder = Path(os.environ.get("STANDIN_HOLDS", "."))
        (folder / f"{name}.held").touch()
        self.wait((folder / name).exists)

    def _retried(
        self, step: Step, times: int | None, status: int | None, delay: int, message: str
    ) -> None:
        """Fail as often as the script says; retry as often as the environment says, at once."""
        retries = int(os.environ.get("CLAUDE_CODE_MAX_RETRIES", "10"))
        for attempt in range(1, retries + 2):
            self._spent[step] += 1
            if times is not None and self._spent[step] > times:
                return
            if attempt <= retries:
                line = {"type": "system", "subtype": "api_retry", "attempt": attempt}
                line |= {"max_retries": retries, "retry_delay_ms": delay, "error_status": status}
                self.front.show(self._line(line))
        raise ApiFailed(status, message)

    # -- tools and permissions ---------------------------------------------------------------

    def _call(self, call: Call) -> None:
        if call.name == "StructuredOutput" and "--json-schema" in self.options:
            self.structured = call.input
            return
        self._in_tool = True
        refused = self._refused(call) if call.name not in self._deny else None
        if refused is not None:
            # Of a refusal by a PreToolUse hook there is no line of its own.
            if not refused.startswith("PreToolUse:"):
                line = {"type": "system", "subtype": "permission_denied", "message": refused}
                self.front.show(self._line({**line, **call.keys}))
            self.denials.append(call.keys)
            text, failed = refused, True
        else:
            began = time.monotonic()
            text, failed = self._run(call)
            took = {"duration_ms": int((time.monotonic() - began) * 1000)}
            if text.startswith(_NO_TOOL):
                pass  # no hook hears of it
            elif failed:
                keys = {"error": text, "is_interrupt": False}
                self.hooks.fire("PostToolUseFailure", **call.keys, **keys, **took)
            else:
                keys = {"tool_response": {"stdout": text, "stderr": "", "interrupted": False}}
                self.hooks.fire("PostToolUse", **call.keys, **keys, **took)
        result = {"type": "tool_result", "content": text, "is_error": failed}
        self._record("user", [{**result, "tool_use_id": call.id}])
        self._show("user", [{**result, "tool_use_id": call.id}])
        self._in_tool = False

    def _refused(self, call: Call) -> str | None:
        """Why the call may not run; None: it may."""
        asked = False
        for output in self.hooks.fire("PreToolUse", **call.keys):
            own = output.get("hookSpecificOutput", {})
            decision = own.get("permissionDecision") or output.get("decision")
            if decision in ("deny", "block"):
                reason = own.get("permissionDecisionReason") or output.get("reason")
                return f"PreToolUse:{call.name} hook error: {reason}"
            if decision in ("allow", "approve"):
                return None
            asked = asked or decision == "ask"
        if any(_covers(rule, call) for rule in self._deny):
            value = call.input.get("command", "")
            return f"Permission to use {call.name} with command {value} has been denied."
        if not asked and self._free(call):
            return None
        return self._asked(call)

    def _free(self, call: Call) -> bool:
        if self.mode == "bypassPermissions" or any(_covers(rule, call) for rule in self._allow):
            return True
        if self.mode == "auto" or (self.mode == "acceptEdits" and call.name != "Bash"):
            return True
        safe = _SAFE_OR_EDITS if self.mode == "acceptEdits" else _SAFE
        return call.name == "Read" or bool(safe.fullmatch(str(call.input.get("command", ""))))

    def _asked(self, call: Call) -> str | None:
        """Ask the hooks and the person at the same time; the first answer counts.

        When that is the person's, the hook's command runs on, as in the real one.
        """
        if not self.headless:
            self.write_state("waiting", "permission prompt")
        launch_env = threading.Event()
        said: list[dict[str, Any]] = []

        def ask_hooks() -> None:
            keys = {"tool_name": call.name, "tool_input": call.input, "permission_suggestions": []}
            for output in self.hooks.fire("PermissionRequest", **keys):
                decision = output.get("hookSpecificOutput", {}).get("decision")
                if decision:
                    said.append(decision)
            if said or self.headless:
                launch_env.set()

        threading.Thread(target=ask_hooks, daemon=True).start()
        answer = self.front.permit(call, launch_env)
        if answer is None:
            self.wait(launch_env.is_set)
        self.write_state("busy")
        if answer is not None:
            return None if answer else "The user doesn't want to proceed with this tool use."
        if not said:
            return f"{call.name} needs approval."
        if said[0]["behavior"] == "allow":
            return None
        if said[0].get("interrupt"):
            raise Interrupted
        return str(said[0].get("message", "denied"))

    def _run(self, call: Call) -> tuple[str, bool]:
        if call.name == "Bash" and call.name not in self._deny:
            return self._bash(call.input["command"])
        if call.name == "Write":
            Path(call.input["file_path"]).write_text(call.input["content"])
            return "written", False
        if call.name == "Read":
            return Path(call.input["file_path"]).read_text(), False
        return f"{_NO_TOOL} {call.name}</tool_use_error>", True

    def _bash(self, command: str) -> tuple[str, bool]:
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            self.wait(lambda: process.poll() is not None)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            raise
        out = process.communicate()[0].strip()
        code = process.returncode
        return (f"Exit code {code}\n{out}".strip(), True) if code else (out, False)

    # -- lines -------------------------------------------------------------------------------

    def _line(self, value: dict[str, Any]) -> dict[str, Any]:
        return {**value, "session_id": self.id, "uuid": str(uuid.uuid4())}

    def _show(self, kind: str, content: list[dict[str, Any]]) -> None:
        message: dict[str, Any] = {"role": kind, "content": content}
        if kind == "assistant":
            message["model"] = self.model
        self.front.show(self._line({"type": kind, "message": message, "parent_tool_use_id": None}))

    def _init(self) -> dict[str, Any]:
        servers = [name for one in self.options.get("--mcp-config", []) for name in _servers(one)]
        return self._line(
            {
                "type": "system",
                "subtype": "init",
                "cwd": str(Path.cwd()),
                "tools": ["Bash", "Read", "Write"],
                "mcp_servers": [{"name": name, "status": "connected"} for name in servers],
                "model": self.model,
                "permissionMode": "default" if self.mode == "manual" else self.mode,
                "claude_code_version": VERSION,
                "messaging_socket_path": self.options.get("--messaging-socket-path"),
            }
        )

    def _result(self, seconds: float) -> dict[str, Any]:
        """Usage is of this turn, cost of the whole conversation."""
        total = self._answers_so_far()
        usage = {
            "input_tokens": INPUT_TOKENS * self._answered,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": OUTPUT_TOKENS * self._answered,
        }
        by_model = {
            "inputTokens": INPUT_TOKENS * total,
            "outputTokens": OUTPUT_TOKENS * total,
            "costUSD": COST * total,
        }
        return self._line(
            {
                "type": "result",
                "subtype": "success",
                "num_turns": self._answered,
                "duration_ms": int(seconds * 1000),
                "total_cost_usd": COST * total,
                "usage": usage,
                "modelUsage": {self.model: by_model},
                "permission_denials": self.denials,
                "api_error_status": None,
            }
        )


def _covers(rule: str, call: Call) -> bool:
    """Whether a rule such as `Bash`, `Bash(touch *)` or `Bash(git:*)` is about this call."""
    name, _, pattern = rule.partition("(")
    if name != call.name:
        return False
    wanted = pattern.removesuffix(")").replace(":*", "*")
    value = call.input.get("command") or call.input.get("file_path") or ""
    return not pattern or fnmatchcase(value, wanted)


def _servers(config: str) -> list[str]:
    text = config if config.startswith("{") else Path(config).read_text()
    return list(json.loads(text)["mcpServers"])
