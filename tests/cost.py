"""What each test costs: `pytest -p tests.cost --cost FILE` writes a line of JSON for each test,
with the seconds of CPU that it and everything it started took, whatever else the machine does.

Every process that runs tests gets an accounting group of its own (version 1 of cgroups, as
root); where there is none, it says so and stops.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cost", type=Path, metavar="FILE", help="write what each test costs there")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--cost")
    if file is not None and (hasattr(config, "workerinput") or not config.getoption("-n")):
        config.pluginmanager.register(Meter(file))


class Meter:
    """Of one process that runs tests."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.group = GROUPS / f"tests-{os.getpid()}"
        if not os.access(GROUPS, os.W_OK):
            raise pytest.UsageError(f"--cost needs to write to {GROUPS}: it is for root")
        self.group.mkdir()
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def cpu_seconds(self) -> float:
        return int((self.group / "cpuacct.usage").read_text()) / 1e9

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin, before = time.monotonic(), self.cpu_seconds()
        result = yield
        cost = {"cpu": self.cpu_seconds() - before, "wall": time.monotonic() - begin}
        with self.file.open("a") as file:
            file.write(json.dumps({"id": item.nodeid, **cost}) + "\n")
        return result

    def pytest_sessionfinish(self) -> None:
        (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
