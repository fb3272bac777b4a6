"""The register and its table: how many of the dead it keeps, and tables of earlier versions."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen import proc
from bullpen.client import last_known
from bullpen.component.journal import Journal
from bullpen.home.hub_file import write_hub_file
from bullpen.hub import components
from bullpen.hub.components import Components
from bullpen.hub.store import database, tables
from bullpen.hub.store.store import Store
from bullpen.model.component import Component, Registration
from tests.hub.pen import made_pen

JOURNAL = Journal(logging.getLogger("test"))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Components]:
    with contextlib.closing(Store.open(path)) as store:
        yield Components(store, JOURNAL)


def names(known: list[Component]) -> list[str]:
    return [one.name for one in known]


def test_f2_the_latest_dead_are_kept_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    monkeypatch.setattr(components, "MOST_GONE", 2)

    async def die(register: Components, *these: str) -> None:
        with subprocess.Popen(["/bin/sleep", "1000"]) as process:
            for name in these:
                url = "http://127.0.0.1:9100"
                given = {"name": name, "kind": "view", "url": url, "version": "1"}
                await register.register(Registration(**given, pid=process.pid))
            process.kill()
        assert await register.living() == []

    async def story() -> None:
        with opened(path) as register:
            await die(register, "one")
            await die(register, "two", "three")
            assert names(await register.gone()) == ["three", "two"]
        with opened(path) as register:
            await register.load()
            assert names(await register.gone()) == ["three", "two"]
            monkeypatch.setattr(components, "GONE_SECONDS", 0.0)
            assert await register.gone() == []
            await die(register, "four")
        with contextlib.closing(sqlite3.connect(path)) as rows:
            assert rows.execute("SELECT name FROM components").fetchall() == [("four",)]

    asyncio.run(story())


def test_f2_the_register_of_an_earlier_version_is_understood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = database.STEPS[: database.STEPS.index(tables.COMPONENTS_GONE)]
    began = proc.start_time(os.getpid())
    row = ("web", "view", "http://127.0.0.1:9100", os.getpid(), "0.1.0", began, 1.5)
    with made_pen(with_port=False) as pen:
        path = pen.root / "state.db"
        write_hub_file(pen.home, 9199, "0.1.0")
        with monkeypatch.context() as before:
            before.setattr(database, "STEPS", steps)
            Store.open(path).close()
        with contextlib.closing(sqlite3.connect(path)) as old:
            old.execute("INSERT INTO components VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            old.commit()
        without_hub = last_known.list_components(pen.home)

        async def load() -> list[Component]:
            with opened(path) as register:
                await register.load()
                return await register.living()

        assert names(without_hub) == ["web"]
        assert asyncio.run(load()) == without_hub == last_known.list_components(pen.home)
