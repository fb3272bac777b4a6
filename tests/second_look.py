"""`--second-look N`: when few tests failed, each is run N times more, alone, in new processes.

For `.ci/run`, which must tell a change that breaks something from a test that fails once in
thousands of runs. Tests that do not fail again do not fail the run; its end says which they were
and how they failed: each is a bug that is still to be mended. Without the option nothing is looked
at twice. Loaded by `conftest`.
"""

import subprocess
import sys
import time

import pytest
from _pytest.terminal import TerminalReporter

MOST = 3  # more than that is no accident
SECONDS = 900.0  # for all of them
FEW = 3  # of each at least, however long it takes
ONCE = "failed once"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-look", type=int, metavar="N", help="run a failed test N times more, alone"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    times = config.getoption("second_look")
    is_worker = hasattr(config, "workerinput")
    if times is None or is_worker or exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reporter: TerminalReporter = config.pluginmanager.get_plugin("terminalreporter")
    failed = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    tests = sorted({report.nodeid for report in failed})
    if len(tests) <= MOST and _pass(tests, times, reporter):
        for category in ("failed", "error"):
            reporter.stats.pop(category, None)
        reporter.stats[ONCE] = failed
        session.exitstatus = pytest.ExitCode.OK


def _pass(tests: list[str], times: int, reporter: TerminalReporter) -> bool:
    """Whether each passes every time. When the time is over, a few times are enough."""
    deadline = time.monotonic() + SECONDS
    reporter.write_line("")
    for test in tests:
        passed = 0
        while passed < times and (passed < FEW or time.monotonic() < deadline):
            why = _why_not(test)
            if why:
                reporter.write_line(f"second look: {test} failed again, time {passed + 1}")
                reporter.write_line(why)
                return False
            passed += 1
        reporter.write_line(f"second look: {test} passed {passed} of {passed} times")
    return True


def _why_not(test: str) -> str:
    """Run it alone; how it failed, if it did."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    try:
        ran = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS:g} s"
    return "" if ran.returncode == 0 else ran.stdout[-10_000:]


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    reports: list[pytest.TestReport] = terminalreporter.stats.get(ONCE, [])
    for report in reports:
        terminalreporter.write_sep("=", f"FAILED ONCE: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
        for name, content in report.sections:
            terminalreporter.write_sep("-", name)
            terminalreporter.write_line(content)
