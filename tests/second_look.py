"""`--second-look`: a test that failed is run once more, alone, after all others have ended.

For `make test` and `make storm`, which must tell a change that breaks something from a test that a
busy machine broke. What passes then does not fail the run: it is named in the closing line
`flaky: …`, and `.flaky.log` keeps what it said. Each is a bug that is still to be mended, which is
why `scripts/flakes` does without. Loaded by `conftest`.

`make test` starts pytest twice, once for each tier; both are one run, which `FLAKY_RUN` names.
"""

import os
import subprocess
import sys

import pytest
from _pytest.terminal import TerminalReporter

MOST = 5  # more than that in one run is no accident
SECONDS = 600.0  # for each
FLAKY = "flaky"
RUN = os.environ.get("FLAKY_RUN") or f"pid {os.getpid()}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-look", action="store_true", help="run what failed once more, alone")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    is_worker = hasattr(config, "workerinput")
    wanted = config.getoption("second_look") and not is_worker
    if not wanted or exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reporter: TerminalReporter = config.pluginmanager.get_plugin("terminalreporter")
    failed = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    tests = sorted({report.nodeid for report in failed})
    if len(tests) + _flaky_before(config) > MOST:
        reporter.write_line(f"\nmore than {MOST} tests failed in this run: none is looked at again")
        return
    if [test for test in tests if not _passes(test, reporter)]:
        return
    for category in ("failed", "error"):
        reporter.stats.pop(category, None)
    reporter.stats[FLAKY] = failed
    session.exitstatus = pytest.ExitCode.OK


def _flaky_before(config: pytest.Config) -> int:
    """How many tests of the tiers before this one, in the same run, passed only when alone."""
    log = config.rootpath / ".flaky.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    mark = _heading("")
    return len({line for line in lines if line.startswith("==== ") and line.endswith(mark)})


def _heading(test: str) -> str:
    return f"{test} (run {RUN})"


def _passes(test: str, reporter: TerminalReporter) -> bool:
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
        reporter.write_line(f"\nsecond look: {test} took more than {SECONDS:g} s")
        return False
    if ran.returncode != 0:
        reporter.write_line(f"\nsecond look: {test} failed again")
        reporter.write_line(ran.stdout[-10_000:])
    return ran.returncode == 0


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    reports: list[pytest.TestReport] = terminalreporter.stats.get(FLAKY, [])
    if not reports:
        return
    said = "".join(map(_text, reports))
    with (config.rootpath / ".flaky.log").open("a") as file:
        file.write(said)
    terminalreporter.write_line(said)  # a clone that CI made is gone with its files
    tests = sorted({report.nodeid for report in reports})
    terminalreporter.write_line(f"flaky: {', '.join(tests)}")


def _text(report: pytest.TestReport) -> str:
    parts = [f"==== {_heading(report.nodeid)}", report.longreprtext]
    parts += [f"---- {name}\n{content}" for name, content in report.sections]
    return "\n".join([*parts, ""])
