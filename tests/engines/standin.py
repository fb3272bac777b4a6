#!/usr/bin/env python3
"""A fast stand-in for the `claude` program: what it shows to others, without a model or network.

The prompt scripts it, in the language of `script.py`; the facts it imitates were observed on
Claude Code 2.1.325. `-p` with text, json or stream-json in and out, interactive in a terminal,
--session-id and --resume, hooks (commands and HTTP) of --settings and of the config directory's
settings.json, permission rules and modes, the state file, --messaging-socket-path, control
requests (interrupt, set_permission_mode, can_use_tool), signals.

Not as the real one: `hold NAME` makes NAME.held and waits for the file NAME, both in the directory
STANDIN_HOLDS; retries come at once; the tools are Bash, Read, Write and StructuredOutput; servers
of --mcp-config are said to be connected, and only asked for the list of tools; no telemetry.
"""

import contextlib
import json
import os
import queue
import shlex
import signal
import socket
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from standin_session import VERSION, Call, Prompts, Session
from standin_terminal import Terminal

_PLAIN = {"-p", "--print", "--verbose", "--strict-mcp-config", "--include-partial-messages"}
_PLAIN |= {"--include-hook-events", "--dangerously-skip-permissions", "--fork-session", "--bare"}
_ONE = {"--output-format", "--input-format", "--session-id", "--resume", "--settings", "--model"}
_ONE |= {"--permission-mode", "--append-system-prompt", "--system-prompt", "--setting-sources"}
_ONE |= {"--json-schema", "--max-turns", "--max-budget-usd", "--messaging-socket-path", "--name"}
_ONE |= {"--permission-prompt-tool", "--effort", "--fallback-model", "--agent", "--debug-file"}
_ONE |= {"--append-system-prompt-file", "--system-prompt-file", "--tools"}
_MANY = {"--allowedTools", "--disallowedTools", "--mcp-config", "--add-dir"}
_SHORT = {"-r": "--resume", "-n": "--name"}
_ENDS = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 0}


class Refused(Exception):
    """A start that Claude Code refuses, with its words on standard error and exit code 1."""


def main() -> int:
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"{VERSION} (Claude Code)")
        return 0
    try:
        options, prompt = parse(preload(words))
        session = open_session(options)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    prompts: Prompts = queue.Queue()
    headless = Headless(session, prompts) if session.headless else None
    terminal = None if headless else Terminal(session, prompts)
    session.front = headless or terminal
    for number, code in _ENDS.items():
        # Raised in the main thread, whatever it waits for; once.
        signal.signal(number, lambda number, _, code=code: _leave(number, code))
    if headless:
        signal.signal(signal.SIGINT, lambda *_: session.interrupt.set())
    reason = "other"
    try:
        _listen(options, prompts)
        ask_for_tools(options)
        session.begin("resume" if "--resume" in options else "startup")
        if headless:
            return headless.run(prompt)
        reason = terminal.run(prompt)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except SystemExit as end:
        return int(str(end.code))
    finally:
        session.end(reason)
    return 0


def preload(words: list[str]) -> list[str]:
    """With the first prompt in its place, which the real one's runtime puts there before it runs:
    it loads the script that BUN_OPTIONS names (`engines/first_prompt`)."""
    options = shlex.split(os.environ.pop("BUN_OPTIONS", ""))
    os.environ.pop("NODE_OPTIONS", None)
    scripts = [Path(word) for word in options if word.endswith("first-prompt.cjs")]
    for script in scripts:
        words = [*words[:-1], script.with_suffix(".md").read_bytes().decode()]
    return words


def ask_for_tools(options: dict[str, Any]) -> None:
    """As the real one does when it connects to its servers: from the hub's own it gets a list."""
    for file in options.get("--mcp-config", []):
        servers = json.loads(Path(file).read_text())["mcpServers"]
        if "bullpen" not in servers:
            continue
        address = Path(servers["bullpen"]["args"][-1])
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        head = [
            f"POST /agents/{address.parent.parent.name}/mcp HTTP/1.1",
            "Host: localhost",
            "Connection: close",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
        ]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(10)
            link.connect(str(address))
            link.sendall("\r\n".join([*head, "", body]).encode())
            while link.recv(1 << 16):
                pass


def parse(words: list[str]) -> tuple[dict[str, Any], str]:
    """The options and the prompt."""
    options: dict[str, Any] = {}
    prompt = ""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            prompt = " ".join(rest) or prompt
            break
        word, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        word = _SHORT.get(word, word)
        if equals:
            rest.insert(0, value)
        if word in _PLAIN:
            options[word] = True
        elif word in _ONE:
            options[word] = rest.pop(0)
        elif word in _MANY:
            # As in the real one, these take every word up to the next option, a prompt too.
            while rest and not rest[0].startswith("-"):
                options.setdefault(word, []).append(rest.pop(0))
        elif word.startswith("-"):
            raise Refused(f"error: unknown option '{word}'")
        else:
            prompt = word
    return options, prompt


def open_session(options: dict[str, Any]) -> Session:
    """A session of these options, or what Claude Code says against them."""
    headless = "-p" in options or "--print" in options
    if options.get("--output-format") == "stream-json" and "--verbose" not in options:
        raise Refused("Error: When using --print, --output-format=stream-json requires --verbose")
    if options.pop("--dangerously-skip-permissions", False):
        options["--permission-mode"] = "bypassPermissions"
    bypass = options.get("--permission-mode") == "bypassPermissions"
    if bypass and os.geteuid() == 0 and os.environ.get("IS_SANDBOX") != "1":
        raise Refused("--dangerously-skip-permissions cannot be used with root/sudo privileges")
    new, old = options.get("--session-id"), options.get("--resume")
    if new and old:
        raise Refused("Error: --session-id can only be used with --continue or --resume if …")
    try:
        uuid.UUID(new or old or str(uuid.uuid4()))
    except ValueError:
        raise Refused("Error: Invalid session ID. Must be a valid UUID.") from None
    session = Session(options, settings(options), headless)
    if new and session.transcript.exists():
        session.remove_state()
        raise Refused(f"Error: Session ID {new} is already in use.")
    if old and not session.resumable():
        session.remove_state()
        if options.get("--output-format") == "stream-json":
            line = {"type": "result", "subtype": "error_during_execution", "is_error": True}
            print(json.dumps({**line, "session_id": old}))
        raise Refused(f"No conversation found with session ID: {old}")
    return session


def settings(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings in effect; a broken file of the user's is passed over, as in the real one."""
    found = []
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    with contextlib.suppress(FileNotFoundError, ValueError):
        found.append(json.loads((config / "settings.json").read_text()))
    given = options.get("--settings")
    if given:
        try:
            text = given if given.startswith("{") else Path(given).read_text()
            found.append(json.loads(text))
        except (OSError, ValueError) as error:
            raise Refused(f"Error processing --settings: {error}") from None
    return found


class Headless:
    """`-p`: prompts from the command line, standard input or a socket; lines out."""

    def __init__(self, session: Session, prompts: Prompts) -> None:
        self._session = session
        self._options = session.options
        self._prompts = prompts
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._writing = threading.Lock()

    def run(self, prompt: str) -> int:
        if self._options.get("--input-format") == "stream-json":
            threading.Thread(target=self._read, daemon=True).start()
        else:
            given = "" if sys.stdin.isatty() else sys.stdin.read().strip()
            prompt = "\n".join(text for text in (prompt, given) if text)
            if not prompt:
                raise Refused(
                    "Error: Input must be provided either through stdin or as a prompt argument"
                    " when using --print"
                )
            self._prompts.put((prompt, False))
            self._prompts.put(None)
        failed = False
        while (taken := self._prompts.get()) is not None:
            if self._session.submit(taken[0]):
                result = self._session.turn(taken[0])
                # An interrupt is no failure, to the exit code.
                failed = result["is_error"] and not result["terminal_reason"].startswith("aborted")
        return int(failed)

    def show(self, line: dict[str, Any]) -> None:
        form = self._options.get("--output-format", "text")
        if form == "text" and line["type"] == "result":
            self._write(line.get("result", ""))
        elif form == "stream-json" or (form == "json" and line["type"] == "result"):
            self._write(json.dumps(line))

    def permit(self, call: Call, launch_env: threading.Event) -> bool | None:
        """With --permission-prompt-tool stdio the one who reads our output decides."""
        if self._options.get("--permission-prompt-tool") != "stdio":
            return None
        request = {"subtype": "can_use_tool", "tool_name": call.name, "input": call.input}
        request |= {"tool_use_id": call.id, "permission_suggestions": []}
        name = str(uuid.uuid4())
        self._write(json.dumps({"type": "control_request", "request_id": name, "request": request}))
        self._session.wait(lambda: not self._answers.empty())
        return bool(self._answers.get()["response"]["behavior"] == "allow")

    def _write(self, text: str) -> None:
        with self._writing:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def _read(self) -> None:
        rest = b""
        while data := os.read(0, 65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    self._take(json.loads(line))
        self._prompts.put(None)

    def _take(self, line: dict[str, Any]) -> None:
        if line["type"] == "user":
            self._prompts.put((_text(line), False))
        elif line["type"] == "control_response":
            self._answers.put(line["response"])
        elif line["type"] == "control_request":
            request = line["request"]
            if request["subtype"] == "interrupt":
                self._session.interrupt.set()
            elif request["subtype"] == "set_permission_mode":
                self._session.mode = request["mode"]
            answer = {"subtype": "success", "request_id": line["request_id"]}
            self._write(json.dumps({"type": "control_response", "response": answer}))


def _text(line: dict[str, Any]) -> str:
    content = line["message"]["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def _listen(options: dict[str, Any], prompts: Prompts) -> None:
    """Take prompts from the socket of --messaging-socket-path."""
    path = options.get("--messaging-socket-path")
    if not path:
        return
    if Path(path).parent.stat().st_mode & 0o077:
        raise Refused(f"Error: the directory of {path} must be private (mode 0700)")
    Path(path).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile() as lines:
                for line in lines:
                    prompts.put((_text(json.loads(line)), False))

    threading.Thread(target=serve, daemon=True).start()


def _leave(number: int, code: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(code)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Threads may still wait for input; they have nothing to put in order.
    os._exit(code)
