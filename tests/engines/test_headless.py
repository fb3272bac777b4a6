"""Claude Code without a terminal: what a run says, and whether it went well."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from bullpen.engines import get_engine
from bullpen.engines.base import (
    Begun,
    Denied,
    Line,
    Outcome,
    Prepared,
    Retrying,
    Said,
    Start,
    Used,
    cost_of_run,
)
from bullpen.model.role import Role
from tests.conftest import wait_until
from tests.engines.cli import Claude
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.fake_tools import FakeTools

CLAUDE = get_engine("claude")
# Hooks that reach nobody, and a question that nobody answers: as if the hub were away for good.
TOKEN = "bullpen_of-amy"
NOBODY = "http://127.0.0.1:9"


class Run:
    """One headless run, as the engine prepares it."""

    def __init__(self, claude: Claude, prepared: Prepared, start: Start) -> None:
        start.session.mkdir(mode=0o700, exist_ok=True)
        for name, text in prepared.files.items():
            (start.session / name).write_text(text)
        CLAUDE.make_ready(start, prepared)
        self.prepared = prepared
        self.lines: list[Line] = []
        role_env = start.role.env if start.role else {}
        self.process = subprocess.Popen(
            prepared.argv,
            cwd=claude.work,
            env={**claude.env, "BULLPEN_TOKEN": TOKEN, **prepared.env, **role_env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.write(prepared.first_input)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(10)

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def of(self, kind: type[Any]) -> list[Any]:
        return [line for line in self.lines if isinstance(line, kind)]

    def outcome(self, seconds: float = 60) -> Outcome:
        """Wait for it, close the input, and see the program end."""
        wait_until(lambda: bool(self.of(Outcome)), seconds)
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(20)
        found: Outcome = self.of(Outcome)[-1]
        return found

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.extend(CLAUDE.read_line(line))


class Runs:
    """Runs of one agent, each with the conversation of the last if it is asked for."""

    def __init__(self, claude: Claude, tmp_path: Path) -> None:
        self.claude = claude
        self.session = tmp_path / "session"
        self.home = tmp_path / "home"

    def run(self, prompt: str, conversation: str = "", **fields: Any) -> Run:
        is_sandboxed, servers = fields.pop("is_sandboxed", False), fields.pop("servers", {})
        role = Role.model_validate({"name": "worker", **fields})
        start = Start(
            role,
            (),
            prompt,
            agent="amy",
            cwd=str(self.claude.work),
            session=self.session,
            home=self.home,
            person=self.claude.home,
            env={
                **self.claude.env,
                "BULLPEN_CLAUDE_BIN": str(self.claude.program),
                "BULLPEN_TOKEN": TOKEN,
            },
            url=NOBODY,
            hook=("/bin/true",),
            ask=("/bin/true",),
            conversation=conversation,
            is_sandboxed=is_sandboxed,
            servers=servers,
        )
        return Run(self.claude, CLAUDE.prepare_run(start), start)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with FakeAnthropic() as model:
        yield Runs(Claude(tmp_path, model), tmp_path)


def test_e4_a_run_that_goes_well(runs: Runs) -> None:
    with runs.run("[[say all good]]") as run:
        outcome = run.outcome()
    assert (outcome.fault, outcome.text) == ("", "all good")
    assert outcome.conversation == run.prepared.conversation
    assert (outcome.input_tokens, outcome.output_tokens) == (100, 10)
    assert [line.text for line in run.of(Said)] == ["all good"]
    assert run.of(Begun)[0] == Begun(run.prepared.conversation, ())


def test_e4_the_cost_of_a_run_is_the_difference(runs: Runs) -> None:
    with runs.run("The word is heron. [[say one]]") as first:
        before = first.outcome()
    with runs.run("[[say two]]", conversation=before.conversation) as second:
        after = second.outcome()
    assert after.conversation == before.conversation
    assert "heron" in json.dumps(runs.claude.model.turns[-1].body)
    assert after.conversation_usd > before.conversation_usd > 0
    assert cost_of_run(0.0, before) == before.conversation_usd
    assert cost_of_run(before.conversation_usd, after) == pytest.approx(before.conversation_usd)
    assert after.input_tokens == before.input_tokens


@pytest.mark.parametrize(
    ("status", "fault"), [(401, "claude_error"), (429, "rate_limit"), (500, "claude_error")]
)
def test_e4_an_error_of_the_api_is_a_failure_although_it_says_success(
    runs: Runs, status: int, fault: str
) -> None:
    with runs.run(f"[[status {status}]]", env={"CLAUDE_CODE_MAX_RETRIES": "1"}) as run:
        outcome = run.outcome()
    assert outcome.fault == fault
    assert str(status) in outcome.why
    assert outcome.text == ""


def test_e4_retries_are_bounded_and_told(runs: Runs) -> None:
    with runs.run("[[status 500 x1 ; say got there]]") as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert [line.attempt for line in run.of(Retrying)] == [1]
    assert run.prepared.env["CLAUDE_CODE_MAX_RETRIES"] == "3"


def test_e4_what_was_denied_is_reported(runs: Runs) -> None:
    """Nobody answers, and there is no dialog: Claude Code denies it, and says it went well."""
    with runs.run('[[tool Bash {"command":"touch made"} ; say went on]]') as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert outcome.denied == ("Bash",)
    assert run.of(Denied) == [Denied("Bash")]
    assert run.of(Used) == [Used("Bash")]
    assert not (runs.claude.work / "made").exists()


def test_e4_in_a_sandbox_nobody_is_asked_and_deny_rules_hold(runs: Runs) -> None:
    calls = 'tool Bash {"command":"touch made"} ; tool Bash {"command":"touch not"}'
    with runs.run(
        f"[[{calls} ; say x]]", is_sandboxed=True, permissions={"deny": ["Bash(touch not:*)"]}
    ) as run:
        outcome = run.outcome()
    assert outcome.denied == ("Bash",)
    assert (runs.claude.work / "made").exists()
    assert not (runs.claude.work / "not").exists()


def test_e4_an_interrupt_ends_the_turn_and_the_run_is_cancelled(runs: Runs) -> None:
    with runs.run("[[hold h ; say never]]") as run:
        runs.claude.wait_held("h")
        run.write(CLAUDE.interrupt_line)
        outcome = run.outcome()
        runs.claude.release("h")
    assert outcome.fault == "cancelled"


def test_e6_a_server_of_tools_is_reached_with_the_agents_token(runs: Runs) -> None:
    allowed = {"allow": ["mcp__bullpen"]}
    with (
        FakeTools() as tools,
        runs.run(
            "[[tool mcp__bullpen__whoami {} ; say told]]",
            servers={"bullpen": tools.url},
            permissions=allowed,
        ) as run,
    ):
        outcome = run.outcome()
        assert tools.calls == [("whoami", TOKEN)]
    assert (outcome.fault, outcome.denied) == ("", ())
    assert "you are the heron" in json.dumps(runs.claude.model.turns[-1].body)
    assert TOKEN not in " ".join(run.prepared.argv)
    assert TOKEN not in "".join(run.prepared.files.values())


def test_e6_a_server_of_tools_that_is_away_is_told_and_the_run_goes_on(runs: Runs) -> None:
    with runs.run("[[say alone]]", servers={"bullpen": f"{NOBODY}/mcp"}) as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert run.of(Begun)[-1].problems == ("bullpen: failed",)


def test_e4_a_budget_of_claudes_own_is_a_fault_of_its_own() -> None:
    line = {"type": "result", "subtype": "error_max_budget_usd", "is_error": True}
    (found,) = CLAUDE.read_line(
        json.dumps({**line, "terminal_reason": "budget_exhausted"}).encode()
    )
    assert isinstance(found, Outcome)
    assert found.fault == "budget"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"type":"result"}',
        b'{"type":"result","is_error":"false","terminal_reason":"completed"}',
        b'{"type":"result","is_error":false,"terminal_reason":"something new"}',
        b'{"type":"result","is_error":false,"terminal_reason":"completed","usage":7}',
        b'{"type":"assistant","message":{"content":[1,{"type":"text","text":3}]}}',
        b'{"type":"system","subtype":"api_retry","attempt":"x","retry_delay_ms":null}',
    ],
)
def test_e4_odd_lines_are_no_success(line: bytes) -> None:
    for found in CLAUDE.read_line(line):
        if isinstance(found, Outcome) and b'"usage":7' not in line:
            assert found.fault
