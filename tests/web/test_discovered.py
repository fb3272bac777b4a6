"""Which other components the page shows, and whom it believes to be one of them (V3)."""

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from bullpen.client import AsyncHub
from bullpen.home.paths import Home
from bullpen.web.config import WebDiscovery
from bullpen.web.discovered import Discovered
from tests.component.impostor import impostor
from tests.component.sample_process import Sample, running
from tests.hub.pen import Pen, made_pen
from tests.ports import reserved_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.fixture
def night(pen: Pen) -> Iterator[Sample]:
    """A director that has told the hub of itself."""
    with reserved_port() as port, running(pen.home, "night", port) as sample:
        wait_until(lambda: [one["state"] for one in pen.ask("GET", "/components")[1]] == ["idle"])
        yield sample


class Page:
    """What an open page gets of that home, with a look at those ports each time."""

    def __init__(self, home: Home, *ports: int) -> None:
        class Settings(WebDiscovery):
            @property
            def ports(self) -> tuple[int, ...]:
                return ports

        self._runner = asyncio.Runner()
        self._hub = AsyncHub(home, start=False)
        settings = Settings(refresh_interval=timedelta(milliseconds=1))
        self._discovered = Discovered(self._hub, settings, home.id)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._hub.close())
        self._runner.close()

    def look(self) -> dict[tuple[str, int], tuple[Any, ...]]:
        """By name and port: the state, its health, whether it has buttons."""
        return {
            (one["name"], int(one["url"].rpartition(":")[2])): (
                one["state"],
                one["health"],
                one["registered"],
            )
            for one in self._runner.run(self._discovered.look())
        }


def test_v3_who_answers_elsewhere_with_the_name_of_a_registered_one_neither_hides_nor_replaces_it(
    night: Sample,
) -> None:
    with reserved_port() as port, Page(night.home, night.port, port) as page:
        real = {("night", night.port): ("idle", "healthy", True)}
        wait_until(lambda: page.look() == real)
        with impostor(night.home, port, "director", "night"):
            for _ in range(3):
                assert page.look() == real
        os.kill(night.process.pid, signal.SIGSTOP)
        with impostor(night.home, port, "director", "night"):
            wait_until(
                lambda: page.look() == {("night", night.port): ("idle", "unreachable", True)}
            )
        os.kill(night.process.pid, signal.SIGCONT)
        wait_until(lambda: page.look() == real)


def test_v3_who_has_the_port_of_a_registered_one_and_another_name_is_not_that_one(
    pen: Pen,
) -> None:
    port = pen.free_port()
    about = {"name": "night", "kind": "director", "url": f"http://127.0.0.1:{port}"}
    body = {**about, "pid": os.getpid(), "version": "0.1.0", "state": "idle"}
    assert pen.ask("POST", "/components", body)[0] == 201
    with Page(pen.home, port) as page, impostor(pen.home, port, "director", "day"):
        wait_until(
            lambda: (
                page.look()
                == {
                    ("night", port): ("idle", "unreachable", True),
                    ("day", port): ("working", "healthy", False),
                }
            )
        )
        pen.kill_hub()
        assert page.look()["night", port] == ("idle", "unreachable", False)
