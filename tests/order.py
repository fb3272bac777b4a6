"""`--shuffle SEED`: modules in an order of their own for every seed, and the tests in each.
`--alone`: every test in a process of its own, with nothing of what the others made.
`--times N`: every test N times.

Loaded by `conftest`. An order is made from the seed and the names alone: it is the same in every
worker of a run, and a part of the tests keeps the order that it had among all of them. So what
failed in a whole run can be looked for in half of it.
"""

import hashlib
import os
import pickle
import traceback

import pytest
from _pytest.runner import runtestprotocol


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", metavar="SEED", help="modules and their tests in another order")
    parser.addoption("--alone", action="store_true", help="every test in a process of its own")
    parser.addoption("--times", type=int, metavar="N", help="every test that often")


@pytest.fixture
def _time() -> None:
    """Which of its times it is; no test asks."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    times = metafunc.config.getoption("times")
    if times is not None:
        metafunc.fixturenames.append("_time")
        metafunc.parametrize("_time", range(times), indirect=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """`pytest -q` has no header, where this would belong."""
    seed = session.config.getoption("shuffle")
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if seed is not None and terminal is not None:
        terminal.write_line(f"shuffled: --shuffle {seed}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is not None:
        items.sort(key=lambda item: (_place(seed, str(item.path)), _place(seed, item.nodeid)))


def _place(seed: str, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{name}".encode(errors="surrogateescape")).digest()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if not item.config.getoption("alone"):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # else one for each
    for report in _reports(item):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item) -> list[pytest.TestReport]:
    """Of a test that was run by a fork of this process, which knows no fixture yet."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(reader)
            reports = runtestprotocol(item, log=False, nextitem=None)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump([report._to_json() for report in reports], pipe)
        except BaseException:  # noqa: BLE001 - nothing may come back out of a fork
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    status = os.waitpid(pid, 0)[1]
    if told:
        return [pytest.TestReport._from_json(data) for data in pickle.loads(told)]
    why = f"its process ended with {os.waitstatus_to_exitcode(status)} and told nothing"
    return [pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")]
