"""Two machines whose agents write to each other, and what each of them has of a message."""

import contextlib
import secrets
import sqlite3
from collections.abc import Iterator
from typing import Any

from tests.fleet.machines import Machines, made_machines
from tests.hub.http.agents import token_of
from tests.hub.pen import Pen
from tests.waiting import wait_until


def once(words: str) -> str:
    """Words that no other run of the same test uses."""
    return f"{words} {secrets.token_hex(4)}"


class Mail:
    """h1 writes; h2 has amy, who has to look into her inbox."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.h1, self.h2 = machines.hosts["h1"], machines.hosts["h2"]

    def send(self, text: str, to: str = "h2/amy", **fields: Any) -> str:
        """Acknowledged by h1; the id there."""
        host, _, name = to.partition("/")
        body = {"text": text, **fields}
        status, sent = self.h1.ask("POST", f"/agents/{host}%2F{name}/messages", body)
        assert status == 201, sent
        return str(sent["id"])

    def arrived(self, prefix: str = "") -> list[str]:
        """The texts that amy has, in their order, with every doubled one."""
        return [
            text
            for (text,) in rows(
                self.h2, "SELECT text FROM messages WHERE recipient='amy' ORDER BY number"
            )
            if text.startswith(prefix)
        ]

    def message(self, id: str, to: str = "h2%2Famy") -> dict[str, Any]:
        """As h1 shows it."""
        _, shown = self.h1.ask("GET", f"/agents/{to}/messages?limit=1000")
        found: dict[str, Any] = next(each for each in shown["messages"] if each["id"] == id)
        return found

    def wait_status(self, id: str, status: str, to: str = "h2%2Famy") -> dict[str, Any]:
        wait_until(lambda: self.message(id, to)["status"] == status)
        return self.message(id, to)

    def read(self) -> None:
        """Amy looks into her inbox."""
        token = token_of(self.h2.home, "amy")
        assert self.h2.ask("GET", "/agents/amy/messages?limit=1000", token=token)[0] == 200

    def waits(self, pen: Pen) -> int:
        """How many letters of it nobody has taken."""
        return int(rows(pen, "SELECT COUNT(*) FROM fleet_outbox")[0][0])

    def start(self, pen: Pen) -> None:
        """Again, and it is one of the fleet again."""
        pen.start()
        name = next(name for name, each in self.machines.hosts.items() if each is pen)
        wait_until(lambda: self.machines.shown(name)["link"] == "connected")


def rows(pen: Pen, select: str, *values: Any) -> list[Any]:
    """Straight from the database, whether a hub runs or not."""
    path = pen.root / "state.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(select, values).fetchall()


@contextlib.contextmanager
def made_mail(**given: Any) -> Iterator[Mail]:
    with made_machines("h1", "h2", **given) as machines:
        mail = Mail(machines)
        mail.h2.run("/bin/cat", name="amy")
        yield mail
