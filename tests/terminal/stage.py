"""A home with real holders, and people at terminals."""

import json
import os
import subprocess
from typing import Any

from tests.commands import BULLPEN
from tests.holder.factory import Factory, Holder
from tests.terminal.person import COLS, ROWS, SECONDS, Person


class Stage:
    """A home, and the agents in it."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.root = factory.root / "home"
        for name in ("sessions", "sockets"):
            (self.root / name).mkdir(parents=True, mode=0o700)
        (self.root / ".bullpen-dir.txt").write_text("v0.1.0\n")
        self.people: list[Person] = []
        self.bullpen = BULLPEN

    def fields(self, name: str) -> dict[str, Any]:
        """What a holder must be told so that it is this agent's."""
        session = self.root / "sessions" / name
        session.mkdir()
        record = {"name": name, "role": "coder", "pod": "csv"}
        (session / "session.json").write_text(json.dumps(record))
        socket = self.root / "sockets" / f"agent.{name}.sock"
        return {"name": name, "socket": str(socket), "session": str(session)}

    def agent(self, name: str, argv: list[str], **fields: Any) -> Holder:
        return self.factory.hold(argv, **self.fields(name), **fields)

    def env(self, **more: str) -> dict[str, str]:
        return {**os.environ, "BULLPEN_DIR": str(self.root), "TERM": "xterm-256color", **more}

    def person(
        self,
        *words: str,
        argv: list[str] | None = None,
        size: tuple[int, int] = (ROWS, COLS),
        at: "Person | None" = None,
        **env: str,
    ) -> "Person":
        """Somebody who runs `bullpen` with these words (or `argv`) at a terminal."""
        command = argv or [str(self.bullpen), *words]
        self.people.append(Person(command, self.env(**env), size, at))
        return self.people[-1]

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
        """`bullpen` with these words, and no terminal."""
        return subprocess.run(
            [BULLPEN, *words],
            env=self.env(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def close(self) -> None:
        for person in self.people:
            person.close()
