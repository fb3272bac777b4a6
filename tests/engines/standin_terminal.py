"""The stand-in in a terminal: a prompt line, a permission dialog, keys."""

import contextlib
import os
import queue
import re
import sys
import threading
import tty
from typing import Any

from standin_session import Call, Interrupted, Prompts, Session

_KEYS = re.compile(r"\x1b\[200~(?P<paste>.*?)\x1b\[201~|\x1b\[[0-9;?]*[A-Za-z~]|.", re.DOTALL)
_DIALOG = """\
 {name} {value}
 Do you want to proceed?
 ❯ 1. Yes
   2. Yes, and always allow
   3. Yes, and switch to auto mode
   4. No
"""


class Terminal:
    """Keys come in a thread; turns run in the main one."""

    def __init__(self, session: Session, prompts: Prompts) -> None:
        self._session = session
        self._prompts = prompts
        self._box = ""
        self._busy = False
        self._dialog: queue.Queue[bool] | None = None
        self._leaving = False

    def run(self, first: str) -> str:
        """Until the person leaves; the reason."""
        tty.setraw(0)
        threading.Thread(target=self._read, daemon=True).start()
        self._print("Claude Code (stand-in)\n")
        self._draw()
        if first:
            self._prompts.put((first, False))
        while (taken := self._prompts.get()) is not None:
            prompt, announced = taken
            if prompt == "/exit":
                break
            if prompt == "/clear":
                self._session.clear()
            elif announced or self._session.submit(prompt):
                self._turn(prompt)
            self._draw()
        return "prompt_input_exit"

    def show(self, line: dict[str, Any]) -> None:
        for block in line.get("message", {}).get("content", []):
            if block["type"] == "text":
                self._print(f"● {block['text']}\n")
            elif block["type"] == "tool_use":
                self._print(f"  Running {block['name']}\n")

    def permit(self, call: Call, launch_env: threading.Event) -> bool | None:
        self._dialog = queue.Queue()
        value = call.input.get("command", "")
        self._print("\n" + _DIALOG.format(name=call.name, value=value))
        try:
            self._session.wait(lambda: launch_env.is_set() or not self._dialog.empty())
            if launch_env.is_set():
                return None
            if not self._dialog.get():
                raise Interrupted  # a refusal ends the turn
            return True
        finally:
            self._dialog = None
            self._print("\x1b[2J\x1b[H")  # no trace of the dialog

    def _turn(self, prompt: str) -> None:
        self._print(f"\n❯ {prompt}\n  esc to interrupt\n")
        self._busy = True
        result = self._session.turn(prompt)
        self._busy = False
        if result["terminal_reason"] == "api_error":
            self._print(f"● {result['result']}\n")
        if result["terminal_reason"] == "aborted_streaming" and not self._session.said:
            self._box = prompt  # nothing had come: the prompt is back in the box

    def _draw(self) -> None:
        self._print(f"\n❯ {self._box}\n  ? for shortcuts\n")

    def _print(self, text: str) -> None:
        sys.stdout.write(text.replace("\n", "\r\n"))
        sys.stdout.flush()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, 65536):
                for key in _KEYS.finditer(data.decode(errors="replace")):
                    self._key(key[0], key["paste"])
        self._prompts.put(None)

    def _key(self, key: str, paste: str | None) -> None:
        if self._dialog is not None:
            # A message that is pasted now is lost, and the Enter after it agrees.
            if key in ("1", "\r"):
                self._dialog.put(True)
            elif key in ("4", "\x1b", "\x03"):
                self._dialog.put(False)
        elif key in ("\x1b", "\x03") and self._busy:
            self._session.interrupt.set()
        elif key == "\x03":
            if self._leaving:
                self._prompts.put(None)
            self._leaving = True
            self._print("\nPress Ctrl-C again to exit\n")
        elif key == "\x15":
            self._box = ""
        elif key == "\r":
            self._submit()
        elif paste is not None or not key.startswith("\x1b"):
            self._box += key if paste is None else paste
            self._print(key if paste is None else paste)

    def _submit(self) -> None:
        prompt, self._box = self._box, ""
        if not prompt:
            return
        # A prompt that is queued while busy is announced at once, before the running turn ends.
        announced = self._busy
        if announced and not self._session.submit(prompt):
            return
        self._prompts.put((prompt, announced))
