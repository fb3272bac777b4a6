"""Claude Code without a terminal: what a run says, and whether it went well."""

import json
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from bullpen.engines import get_engine
from bullpen.engines.base import Prepared, Reader, Start
from bullpen.engines.lines import (
    Line,
    ModelText,
    Partial,
    Retrying,
    RunOutcome,
    TokensSpent,
    ToolDenied,
    ToolUsed,
    TurnBegun,
    cost_of_run,
    outcome_of_exit,
)
from bullpen.model.role import Role
from tests.engines.cli import SECONDS, Claude
from tests.engines.fake_anthropic import FakeAnthropic, Writer
from tests.engines.fake_model import ModelRequest, Wire
from tests.engines.fake_tools import FakeTools

pytestmark = pytest.mark.slow

CLAUDE = get_engine("claude")
# Hooks that reach nobody, and a question that nobody answers: as if the hub were away for good.
TOKEN = "bullpen_of-amy"
NOBODY = "http://127.0.0.1:9"


class Run:
    """One headless run, as the engine prepares it."""

    def __init__(self, claude: Claude, prepared: Prepared, start: Start) -> None:
        start.session.mkdir(mode=0o700, exist_ok=True)
        start.run.mkdir(mode=0o700, parents=True)
        for name, text in prepared.files.items():
            (start.session / name).write_text(text)
        for name, text in prepared.run_files.items():
            (start.run / name).write_text(text)
        CLAUDE.make_ready(start, prepared)
        self.prepared = prepared
        self.lines: list[Line] = []
        self.err = ""
        self._told = Reader(CLAUDE)
        role_env = start.role.env if start.role else {}
        self.process = subprocess.Popen(
            prepared.argv,
            cwd=claude.work,
            env={**claude.env, "BULLPEN_TOKEN": TOKEN, **prepared.env, **role_env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._join()

    def of(self, kind: type[Any]) -> list[Any]:
        return [line for line in self.lines if isinstance(line, kind)]

    def outcome(self, seconds: float = SECONDS) -> RunOutcome:
        """See the program end by itself, having told the one outcome."""
        self.end(seconds)
        [found] = self.of(RunOutcome)
        assert (self.process.returncode == 0) == (found.fault == "")
        assert isinstance(found, RunOutcome)
        return found

    def end(self, seconds: float = SECONDS) -> RunOutcome | None:
        """The same for a run that tells none: what is to be made of its end."""
        code = self.process.wait(seconds)
        self._join()
        if self.of(RunOutcome):
            return None
        return outcome_of_exit(*((code, None) if code >= 0 else (None, -code)), self.err)

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(60)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.extend(self._told.read(line))

    def _read_errors(self) -> None:
        assert self.process.stderr
        self.err = self.process.stderr.read().decode()


class Runs:
    """Runs of one agent, each with the conversation of the last if it is asked for."""

    def __init__(self, claude: Claude, tmp_path: Path) -> None:
        self.claude = claude
        self.session = tmp_path / "session"
        self.home = tmp_path / "home"

    def run(self, prompt: str, conversation: str = "", **fields: Any) -> Run:
        names = ("is_sandboxed", "servers", "words", "ask", "max_turns", "max_usd")
        given = {name: fields.pop(name) for name in names if name in fields}
        words = given.pop("words", ())
        role = Role.model_validate({"name": "worker", **fields})
        start = Start(
            role,
            words,
            prompt,
            agent="amy",
            cwd=str(self.claude.work),
            session=self.session,
            run=self.session / "tasks" / uuid.uuid4().hex / "1",
            home=self.home,
            person=self.claude.home,
            env={
                **self.claude.env,
                "BULLPEN_CLAUDE_BIN": str(self.claude.program),
                "BULLPEN_TOKEN": TOKEN,
            },
            url=NOBODY,
            hook=("/bin/true",),
            conversation=conversation,
            **{"ask": ("/bin/true",), **given},
        )
        return Run(self.claude, CLAUDE.prepare_run(start), start)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with FakeAnthropic() as model:
        yield Runs(Claude(tmp_path, model), tmp_path)


@pytest.mark.storm
def test_e4_a_run_that_goes_well(runs: Runs) -> None:
    with runs.run("[[say all good]]") as run:
        outcome = run.outcome()
    assert (outcome.fault, outcome.text) == ("", "all good")
    assert outcome.conversation == run.prepared.conversation
    assert (outcome.input_tokens, outcome.output_tokens) == (100, 10)
    assert [line.text for line in run.of(ModelText)] == ["all good"]
    assert "".join(line.text for line in run.of(Partial)) == "all good"
    assert [line.is_first for line in run.of(Partial)][:2] == [True, False]
    assert run.of(TurnBegun) == [TurnBegun(run.prepared.conversation, ())]


@pytest.mark.storm
def test_t8_usage_is_told_as_it_happens_once_for_each_answer(runs: Runs) -> None:
    script = 'say one ; tool Bash {"command":"true"} ; also Bash {"command":"true"} ; say two'
    with runs.run(f"[[{script}]]", permissions={"allow": ["Bash(true)"]}) as run:
        outcome = run.outcome()
    whole = [line for line in run.lines[:-1] if not isinstance(line, Partial)]
    used = [(type(line).__name__, getattr(line, "detail", "")) for line in whole]
    assert used == [
        *(
            ("TurnBegun", ""),
            ("TokensSpent", ""),
            ("ModelText", ""),
            ("ToolUsed", "true"),
            ("ToolUsed", "true"),
        ),
        *(("TokensSpent", ""), ("ModelText", "")),
    ]
    # How much an answer is in the end is told with the end of the run.
    assert [line.input_tokens for line in run.of(TokensSpent)] == [100, 100]
    assert all(0 < line.output_tokens <= 10 for line in run.of(TokensSpent))
    assert (outcome.input_tokens, outcome.output_tokens) == (200, 20)


@pytest.mark.storm
def test_t1_a_run_reads_a_file_to_its_end_and_waits_for_hooks_all_the_same(
    runs: Runs, tmp_path: Path
) -> None:
    """Its input is over before it begins. A permission that is asked for is waited for."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    allow = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    answer = json.dumps({"hookSpecificOutput": allow})
    ask = ("/bin/sh", "-c", 'cat "$1" >/dev/null; echo "$2"', "sh", str(gate), answer)
    with runs.run('[[tool Bash {"command":"touch made"} ; say went on]]', ask=ask) as run:
        with gate.open("w"):  # opens when the hook has begun to wait
            assert run.process.poll() is None
            assert not (runs.claude.work / "made").exists()
        outcome = run.outcome()
    assert (outcome.fault, outcome.text, outcome.denied) == ("", "went on", ())
    assert (runs.claude.work / "made").exists()


@pytest.mark.storm
def test_t1_a_run_without_its_prompt_does_not_start(runs: Runs) -> None:
    with runs.run("[[say once]]") as run:
        assert run.outcome().fault == ""
    asked = len(runs.claude.model.turns)
    for file in run.prepared.run_files:
        next(runs.session.glob(f"tasks/*/*/{file}")).unlink()
    again = subprocess.run(
        run.prepared.argv,
        check=False,
        env=runs.claude.env,
        cwd=runs.claude.work,
        capture_output=True,
        timeout=60,
    )
    ended = outcome_of_exit(again.returncode, None, again.stderr.decode())
    assert "prompt" in ended.why
    assert not ended.is_retryable
    assert len(runs.claude.model.turns) == asked


@pytest.mark.storm
def test_t1_a_long_and_odd_prompt_arrives_as_it_is(runs: Runs) -> None:
    odd = 'line\n\x00\x1b[31m "quoted" \\ \u2028 \U0001f600 ' + "word " * 60_000
    with runs.run(f"{odd}[[say read]]") as run:
        assert run.outcome().text == "read"
    asked = json.dumps(runs.claude.model.turns[-1].body)
    assert json.dumps(odd)[1:-1] in asked


@pytest.mark.storm
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


ONCE = {"CLAUDE_CODE_MAX_RETRIES": "0"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("status", "fault", "is_retryable"),
    [
        (400, "engine_error", False),
        (401, "engine_error", False),
        (403, "engine_error", False),
        (404, "engine_error", False),
        (413, "engine_error", False),
        (429, "rate_limit", False),
        (500, "engine_error", True),
        (503, "engine_error", True),
        (529, "engine_error", True),
    ],
)
def test_t9_an_error_of_the_api_is_a_failure_although_it_says_success(
    runs: Runs, status: int, fault: str, is_retryable: bool
) -> None:
    with runs.run(f"[[status {status}]]", env=ONCE) as run:
        outcome = run.outcome()
    assert (outcome.fault, outcome.is_retryable) == (fault, is_retryable)
    assert outcome.why
    assert outcome.text == ""


@pytest.mark.storm
@pytest.mark.parametrize(
    ("prompt", "env", "is_retryable"),
    [
        ("[[say x]]", {"ANTHROPIC_BASE_URL": NOBODY}, True),
        ("[[cut]]", {}, True),
        ("[[hold h ; say x]]", {"API_TIMEOUT_MS": "1000"}, True),
        ("[[say x]]", {"ANTHROPIC_API_KEY": ""}, False),
    ],
    ids=["refused", "cut", "slow", "not logged in"],
)
def test_t9_an_api_that_does_not_answer_may_do_so_later(
    runs: Runs, prompt: str, env: dict[str, str], is_retryable: bool
) -> None:
    with runs.run(prompt, env={**ONCE, **env}) as run:
        outcome = run.outcome()
    assert (outcome.fault, outcome.is_retryable) == ("engine_error", is_retryable)
    assert outcome.why
    runs.claude.release("h")


class NarrowAnthropic(FakeAnthropic):
    """Every prompt is too long for it."""

    def write(self, asked: ModelRequest, wire: Wire) -> Writer:
        class Refusing(Writer):
            def finish(self, called: bool) -> None:
                self.refuse(400, "prompt is too long: 210000 tokens > 200000 maximum", {})

        return Refusing(wire, asked.body, stream=False)


@pytest.mark.storm
def test_t9_a_prompt_that_is_too_long_is_not_tried_again(tmp_path: Path) -> None:
    with (
        NarrowAnthropic() as model,
        Runs(Claude(tmp_path, model), tmp_path).run("[[say x]]", env=ONCE) as run,
    ):
        outcome = run.outcome()
    assert (outcome.fault, outcome.is_retryable) == ("engine_error", False)
    assert "too long" in outcome.why


def test_t9_arguments_that_it_does_not_know_are_not_tried_again(runs: Runs) -> None:
    with runs.run("[[say x]]", words=("--nonsense",)) as run:
        ended = run.end()
    assert ended is not None
    assert (ended.fault, ended.is_retryable) == ("engine_error", False)
    assert "unknown option '--nonsense'" in ended.why


@pytest.mark.storm
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_t9_a_run_that_somebody_killed_may_be_tried_again(
    runs: Runs, number: signal.Signals
) -> None:
    with runs.run("[[hold h ; say never]]") as run:
        runs.claude.wait_held("h")
        os.killpg(run.process.pid, number)
        ended = run.end()
        runs.claude.release("h")
    assert ended is not None
    assert (ended.fault, ended.is_retryable) == ("engine_error", True)
    assert number.name in ended.why


TWICE = '[[tool Bash {"command":"true"} ; tool Bash {"command":"true"} ; say x]]'


@pytest.mark.storm
def test_t1_a_limit_of_turns_ends_a_run_for_good(runs: Runs) -> None:
    with runs.run(TWICE, max_turns=1) as run:
        outcome = run.outcome()
    assert (outcome.fault, outcome.is_retryable) == ("engine_error", False)
    assert "maximum number of turns" in outcome.why
    with runs.run("[[say enough]]", max_turns=1) as run:
        assert run.outcome().text == "enough"


@pytest.mark.storm
def test_t1_a_limit_of_usd_is_for_the_run_not_for_the_conversation(runs: Runs) -> None:
    with runs.run("[[say one]]") as run:
        first = run.outcome()
    price = first.conversation_usd
    with runs.run("[[say two]]", first.conversation, max_usd=price * 0.9) as run:
        over = run.outcome()
    assert (over.fault, over.is_retryable) == ("budget", False)
    assert "maximum budget" in over.why
    with runs.run("[[say three]]", first.conversation, max_usd=price * 1.5) as run:
        within = run.outcome()
    assert (within.fault, within.text) == ("", "three")
    assert within.conversation_usd > price * 1.5


@pytest.mark.storm
def test_e4_retries_are_bounded_and_told(runs: Runs) -> None:
    with runs.run("[[status 500 x1 ; say got there]]") as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert [line.attempt for line in run.of(Retrying)] == [1]
    assert run.prepared.env["CLAUDE_CODE_MAX_RETRIES"] == "3"


@pytest.mark.storm
def test_e4_what_was_denied_is_reported(runs: Runs) -> None:
    """Nobody answers, and there is no dialog: Claude Code denies it, and says it went well."""
    with runs.run('[[tool Bash {"command":"touch made"} ; say went on]]') as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert outcome.denied == ("Bash",)
    assert run.of(ToolDenied) == [ToolDenied("Bash")]
    assert run.of(ToolUsed) == [ToolUsed("Bash", "touch made")]
    assert not (runs.claude.work / "made").exists()


@pytest.mark.storm
def test_e4_in_a_sandbox_nobody_is_asked_and_deny_rules_hold(runs: Runs) -> None:
    calls = 'tool Bash {"command":"touch made"} ; tool Bash {"command":"touch not"}'
    with runs.run(
        f"[[{calls} ; say x]]", is_sandboxed=True, permissions={"deny": ["Bash(touch not:*)"]}
    ) as run:
        outcome = run.outcome()
    assert outcome.denied == ("Bash",)
    assert (runs.claude.work / "made").exists()
    assert not (runs.claude.work / "not").exists()


@pytest.mark.storm
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


@pytest.mark.storm
def test_e6_a_server_of_tools_that_is_away_is_told_and_the_run_goes_on(runs: Runs) -> None:
    with runs.run("[[say alone]]", servers={"bullpen": f"{NOBODY}/mcp"}) as run:
        outcome = run.outcome()
    assert outcome.fault == ""
    assert run.of(TurnBegun)[-1].problems == ("bullpen: failed",)


@pytest.mark.parametrize("reason", ["budget_exhausted", "aborted_tools"])
def test_e4_a_budget_of_claudes_own_is_a_fault_of_its_own(reason: str) -> None:
    line = {"type": "result", "subtype": "error_max_budget_usd", "is_error": True}
    (outcome,) = CLAUDE.read_line(json.dumps({**line, "terminal_reason": reason}).encode())
    assert isinstance(outcome, RunOutcome)
    assert outcome.fault == "budget"


FAILED = RunOutcome("engine_error", "", "")


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (b"", ()),
        (b"{", ()),
        (b"null", ()),
        (b"[]", ()),
        (b'{"type":["result"],"is_error":false}', ()),
        (b'{"type":"result"}', (FAILED,)),
        (b'{"type":"result","is_error":null,"result":"said"}', (replace(FAILED, why="said"),)),
        (
            b'{"type":"result","is_error":"false","terminal_reason":"completed"}',
            (replace(FAILED, why="completed"),),
        ),
        (
            b'{"type":"result","is_error":false,"terminal_reason":"something new"}',
            (replace(FAILED, why="something new"),),
        ),
        (
            b'{"type":"result","is_error":true,"terminal_reason":"completed","errors":["a","b"]}',
            (replace(FAILED, why="a; b"),),
        ),
        (
            b'{"type":"result","is_error":false,"terminal_reason":"completed","usage":7}',
            (RunOutcome("", "", ""),),
        ),
        (
            b'{"type":"assistant","message":{"content":[1,{"type":"text","text":3}]}}',
            (ModelText(""),),
        ),
        (
            b'{"type":"system","subtype":"api_retry","attempt":"x","retry_delay_ms":null}',
            (Retrying(0, 0.0, ""),),
        ),
    ],
)
def test_e4_odd_lines_are_no_success(line: bytes, read: tuple[Line, ...]) -> None:
    assert CLAUDE.read_line(line) == read
