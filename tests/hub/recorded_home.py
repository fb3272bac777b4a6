"""A home of an earlier version, as it was recorded: its files, its database as SQL, what its hub
showed last, and the frames that the holder of its running agent sent.

`home_before_rooms` was recorded at 0.1.0 with the hub killed: `amy` runs in a terminal, `bob` has
ended and a message waits for him, `dora` takes tasks and has done one. Tokens are taken out; the
machine has not been restarted since, unless somebody says so.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bullpen.home.hub_file import boot_id
from tests.holder.client import pack
from tests.hub.pen import Pen

SAMPLE = Path(__file__).with_name("samples") / "home_before_rooms"


def shown(pen: Pen) -> Any:
    """The agents and the task, as the hub of before showed them."""
    return json.loads(_here(pen, (SAMPLE / "shown.json").read_text()))


def lay_out(pen: Pen, boot: str = "") -> None:
    """The recorded home in place of the pen's, at the pen's path and port; of that boot of the
    machine, or of the present one."""
    own_settings = (pen.root / "config.yaml").read_text()
    for source in (SAMPLE / "home").rglob("*"):
        target = pen.root / source.relative_to(SAMPLE / "home")
        if source.is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
        else:
            shutil.copyfile(source, target)
            target.chmod(0o600)
            if source.suffix in (".json", ""):
                text = source.read_text().replace("@BOOT@", boot or boot_id())
                target.write_text(_here(pen, text))
    with (pen.root / "config.yaml").open("a") as settings:
        settings.write("\n" + own_settings)
    with contextlib.closing(sqlite3.connect(pen.root / "state.db")) as database:
        database.executescript(_here(pen, (SAMPLE / "state.sql").read_text()))
        # What is old is deleted in time.
        age = time.time() - database.execute("SELECT max(time) FROM events").fetchone()[0]
        database.execute("UPDATE events SET time = time + ?", (age,))
        database.commit()


def _here(pen: Pen, text: str) -> str:
    return text.replace("@HOME@", str(pen.root)).replace("@PERSON@", pen.env["HOME"])


class RecordedHolder:
    """Says what the recorded holder said. Keeps the lock of the session until it is stopped."""

    def __init__(self, pen: Pen, name: str) -> None:
        self.requests: list[str] = []
        self._frames = json.loads((SAMPLE / "frames.json").read_text())
        self._session = pen.session(name)
        self._path = pen.home.socket(name)
        self._lock = os.open(self._session, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(self._frame("greeting"))
            reader = connection.makefile("rb")
            while head := reader.read(5):
                kind, body = chr(head[0]), reader.read(int.from_bytes(head[1:], "big"))
                self.requests.append(kind)
                if kind == "S":
                    connection.sendall(self._frame("status"))
                elif kind == "A":
                    connection.sendall(self._frame("attached"))
                    if json.loads(body).get("replay"):
                        connection.sendall(self._frame("replay"))
                elif kind == "X":
                    connection.sendall(self._frame("stopping"))
                    self._end()

    def _frame(self, name: str) -> bytes:
        frame = self._frames[name]
        return pack(frame["type"], frame["payload"].encode())

    def _end(self) -> None:
        (self._session / "exit.json").write_text(self._frames["ended"]["payload"])
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.sendall(self._frame("ended"))
        self.close()

    def close(self) -> None:
        """Gone, as after kill -9: connections end and the lock is free."""
        if self._lock < 0:
            return
        self._path.unlink(missing_ok=True)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        os.close(self._lock)
        self._lock = -1


@contextlib.contextmanager
def recorded_holder(pen: Pen, name: str) -> Iterator[RecordedHolder]:
    holder = RecordedHolder(pen, name)
    try:
        yield holder
    finally:
        holder.close()
