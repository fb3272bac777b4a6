"""What all engines share when they read and start programs: lines, figures, names. Pure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bullpen.engines import engine_of, get_engine, parse
from bullpen.engines.base import Reader, host_of
from bullpen.engines.hooks import observe_hook
from bullpen.engines.lines import Line, ModelText, RunOutcome, TokensSpent, cost_of_run
from bullpen.engines.programs import find_program
from bullpen.engines.versions import RequiredProgram, is_enough, parse_version
from bullpen.errors import BullpenError, Kind
from tests.engines.starts import start_of

COMMAND = get_engine("command")


class TellingTwice:
    """An engine whose lines are told as they are: a number is an answer without an id."""

    def read_line(self, line: bytes) -> tuple[Line, ...]:
        answer, _, tokens = line.decode().partition(":")
        return (TokensSpent(int(tokens), 0, answer),)


def test_t8_an_answer_without_an_id_counts_each_time() -> None:
    reader = Reader(TellingTwice())  # type: ignore[arg-type]
    told = [reader.read(line) for line in (b":1", b":2", b"a:3", b"a:3", b"b:4")]
    assert told == [
        (TokensSpent(1, 0),),
        (TokensSpent(2, 0),),
        (TokensSpent(3, 0, "a"),),
        (),
        (TokensSpent(4, 0, "b"),),
    ]


@pytest.mark.parametrize(
    ("value", "count", "number"),
    [
        (7, 7, 7.0),
        (-1, 0, 0.0),
        (1.5, 0, 1.5),
        (-0.5, 0, 0.0),
        (True, 0, 0.0),
        ("7", 0, 0.0),
        (None, 0, 0.0),
        (10**400, 10**400, 1e300),
    ],
)
def test_a_figure_is_a_number_that_is_not_below_nothing(
    value: object, count: int, number: float
) -> None:
    assert parse.count(value) == count
    assert parse.number(value) == number


@pytest.mark.parametrize("name", ["claude", "gemini", "codex"])
def test_o1_no_run_gives_tokens_or_money_back(name: str) -> None:
    usage = {"input_tokens": -5, "output_tokens": -7}
    line = {"status": "success", "usage": usage, "stats": usage, "total_cost_usd": -1}
    kind = "turn.completed" if name == "codex" else "result"
    (ended,) = get_engine(name).read_line(json.dumps({"type": kind, **line}).encode())
    assert isinstance(ended, RunOutcome)
    assert (ended.input_tokens, ended.output_tokens, ended.conversation_usd) == (0, 0, 0.0)


def test_e4_a_conversation_that_cost_more_before_costs_nothing_now() -> None:
    assert cost_of_run(2.0, RunOutcome("", "", "", conversation_usd=1.0)) == 0.0
    assert cost_of_run(1.0, RunOutcome("", "", "", conversation_usd=3.0)) == 2.0


def test_s1_a_name_of_a_tool_is_cut() -> None:
    told = observe_hook({"hook_event_name": "PreToolUse", "tool_name": "x" * 1000}, 1.0)
    assert told
    assert told.says == "x" * 80


@pytest.mark.parametrize(
    ("code", "signal", "fault"),
    [(0, None, ""), (1, None, "engine_error"), (None, 9, "engine_error")],
)
def test_t9_a_plain_program_that_was_killed_has_not_succeeded(
    code: int | None, signal: int | None, fault: str
) -> None:
    assert COMMAND.outcome_of_exit(code, signal, "").fault == fault


def test_a_plain_program_takes_a_prompt_only_as_a_line(tmp_path: Path) -> None:
    start = start_of(tmp_path, "command", command="cat -n")
    asked = replace(start, prompt="two\n lines ")
    with pytest.raises(BullpenError, match="takes no prompt") as raised:
        COMMAND.prepare(asked)
    assert raised.value.kind is Kind.UNSUPPORTED
    assert COMMAND.prepare(start).argv == ("cat", "-n")
    taking = start_of(tmp_path, "command", command="cat -n", deliver="lines")
    asked = replace(taking, prompt="two\n lines ")
    assert COMMAND.prepare(asked).first_input == b"two lines\n"
    assert COMMAND.prepare(taking).first_input == b""


def test_a_plain_programs_lines_are_what_it_says() -> None:
    assert COMMAND.read_line(b"a\xff\r") == (ModelText("a\ufffd", is_line=True),)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("/opt/claude", "-p"), "claude"),
        (("codex",), "codex"),
        (("/opt/other",), "command"),
        ((), "command"),
    ],
)
def test_r5_a_program_is_known_wherever_it_lies(words: tuple[str, ...], name: str) -> None:
    assert engine_of(words).name == name


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.example.com", "api.example.com:443"),
        ("http://api.example.com/v1", "api.example.com:80"),
        ("https://user:secret@api.example.com:8443/v1", "api.example.com:8443"),
        ("api.example.com:81", "api.example.com:81"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://host:port", ""),
        ("", ""),
    ],
)
def test_x2_the_host_of_an_address(url: str, host: str) -> None:
    assert host_of(url) == host


def test_e3_the_agents_own_variable_goes_before_the_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "of-the-hub", "claude"):
        (tmp_path / name).touch(0o755)
    env = {"PATH": str(tmp_path)}
    needed = RequiredProgram("claude", "THE_BIN", "@x/claude", (1,))

    def found(**more: str) -> str:
        return Path(find_program({**env, **more}, needed)).name

    assert found() == "claude"
    monkeypatch.setenv("THE_BIN", "of-the-hub")
    assert found() == "of-the-hub"
    assert found(THE_BIN="own") == "own"
    with pytest.raises(BullpenError, match="no program gone"):
        found(THE_BIN="gone")


@pytest.mark.parametrize(
    ("version", "oldest", "enough"),
    [
        ((2, 1, 0), (2, 1, 0), True),
        ((0, 40), (0, 40, 0), True),
        ((0, 40, 0), (0, 40), True),
        ((0, 39, 9), (0, 40), False),
        ((2, 10), (2, 9), True),
        ((2, 0, 999), (2, 1, 0), False),
    ],
)
def test_x6_the_oldest_version_that_serves_serves(
    version: tuple[int, ...], oldest: tuple[int, ...], enough: bool
) -> None:
    assert is_enough(version, oldest) == enough
    assert parse_version(f"v{'.'.join(map(str, version))} (it)") == version
