"""What was said and done, read from the transcripts that the programs write."""

import json
import os
from pathlib import Path
from typing import Literal

import pytest

from bullpen.cli.commands.transcript import _text
from bullpen.engines import get_engine
from bullpen.hub.agents import transcript
from bullpen.hub.agents.last_answers import last_line
from bullpen.hub.agents.transcript import read_last_answer, read_page
from bullpen.model.agent import Agent
from bullpen.model.transcript import Entry
from tests.engines.team import made_team
from tests.hub.tasks.desk import Desk
from tests.waiting import wait_until

SAMPLES = Path(__file__).parent / "samples"
ID = "0e3b1c9a-1111-4222-8333-944455566677"
# Where each engine keeps the transcript of a conversation, below `state_files`.
FILES = {
    "claude": f"../projects/work/{ID}.jsonl",
    "codex": f"2026/11/17/rollout-2026-11-17T08-33-11-{ID}.jsonl",
    "gemini": f"work/chats/session-2026-11-17T08-33-{ID[:8]}.jsonl",
}
ELSEWHERE = Path("/nowhere")  # the agent's session, in which its transcripts are not
TOOLS = {"claude": "Bash", "codex": "exec_command", "gemini": "run_shell_command"}


def agent_of(engine: str, tmp_path: Path, text: str) -> Agent:
    """One whose transcript is that."""
    state_files = tmp_path / "state"
    state_files.mkdir(parents=True, exist_ok=True)
    path = state_files / FILES[engine]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Agent(
        name="amy", run="r", cwd="/", created="", engine=engine, state_files=str(state_files)
    )


def entries_of(engine: str, agent: Agent, offset: int = 0) -> tuple[Entry, ...]:
    page = read_page(get_engine(engine), agent, ELSEWHERE, ID, offset)
    assert page is not None
    return page.entries


@pytest.mark.parametrize("engine", FILES)
def test_e2_a_recorded_conversation_is_read_in_order(engine: str, tmp_path: Path) -> None:
    text = (SAMPLES / engine / "transcript.jsonl").read_text()
    entries = entries_of(engine, agent_of(engine, tmp_path, text))
    assert [(each.kind, each.tool) for each in entries] == [
        ("prompt", ""),
        ("answer", ""),
        ("tool", TOOLS[engine]),
        ("result", ""),
        ("answer", ""),
    ]
    prompt, first, tool, result, last = entries
    assert prompt.text.startswith("Please do it.")
    assert (first.text, tool.text, last.text) == ("first", "echo x", "over")
    assert "x" in result.text
    assert tool.call == result.call != ""
    given = {"cmd" if engine == "codex" else "command": "echo x"}
    assert (tool.input, result.input) == (given, None)
    assert all(1.79e9 < each.at < 1.8e9 for each in entries)


@pytest.mark.parametrize("engine", FILES)
def test_p7_what_was_said_last_is_read_from_the_end(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (SAMPLES / engine / "transcript.jsonl").read_text()
    agent = agent_of(engine, tmp_path, text + "{}\n{").model_copy(update={"conversation": ID})
    assert read_last_answer(get_engine(engine), agent, ELSEWHERE) == "over"
    monkeypatch.setattr(transcript, "TAIL_BYTES", 4)
    assert read_last_answer(get_engine(engine), agent, ELSEWHERE) == ""
    nothing = agent.model_copy(update={"conversation": ""})
    assert read_last_answer(get_engine(engine), nothing, ELSEWHERE) == ""


@pytest.mark.parametrize(
    ("text", "line"), [("", ""), ("a\n\n b \n\n", "b"), ("x" * 999, "x" * 200)]
)
def test_p7_the_last_line_of_an_answer(text: str, line: str) -> None:
    assert last_line(text) == line


@pytest.mark.parametrize("engine", FILES)
@pytest.mark.parametrize(
    "line",
    ["{", "[]", "null", '{"type": "user", "message": 7}', '{"type":"response_item"}', "\x00"],
)
def test_e2_lines_that_are_none_are_passed_over(engine: str, line: str, tmp_path: Path) -> None:
    text = (SAMPLES / engine / "transcript.jsonl").read_text()
    assert len(entries_of(engine, agent_of(engine, tmp_path, f"{line}\n{text}{line}\n"))) == 5


def user(text: str) -> str:
    return json.dumps({"type": "user", "message": {"content": text}}) + "\n"


def test_e2_the_next_page_begins_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "PAGE_ENTRIES", 2)
    agent = agent_of("claude", tmp_path, user("a") + user("b") + user("c") + user("half")[:-5])
    engine = get_engine("claude")
    first = read_page(engine, agent, ELSEWHERE, ID, 0)
    assert first is not None
    assert ([each.text for each in first.entries], first.more) == (["a", "b"], True)
    second = read_page(engine, agent, ELSEWHERE, ID, first.offset)
    assert second is not None
    assert ([each.text for each in second.entries], second.more) == (["c"], False)
    agent_of("claude", tmp_path, user("a") + user("b") + user("c") + user("half"))
    assert [each.text for each in entries_of("claude", agent, second.offset)] == ["half"]
    agent_of("claude", tmp_path, user("anew"))
    assert [each.text for each in entries_of("claude", agent, second.offset)] == ["anew"]


def test_e2_what_is_no_file_is_no_transcript(tmp_path: Path) -> None:
    agent = agent_of("claude", tmp_path, "")
    path = Path(agent.state_files) / FILES["claude"]
    path.unlink()
    os.mkfifo(path)
    assert read_page(get_engine("claude"), agent, ELSEWHERE, ID, 0) is None
    assert read_page(get_engine("claude"), agent, ELSEWHERE, "../../../etc/passwd", 0) is None
    assert read_page(get_engine("command"), agent, ELSEWHERE, ID, 0) is None


@pytest.mark.parametrize("linked", ["file", "directory"])
def test_e2_a_link_out_of_the_session_is_no_transcript(linked: str, tmp_path: Path) -> None:
    """Else an agent in a sandbox would be shown other people's conversations by the hub."""
    theirs = agent_of("codex", tmp_path / "theirs", "")
    other = Path(theirs.state_files) / FILES["codex"]
    other.write_text((SAMPLES / "codex" / "transcript.jsonl").read_text())
    session = tmp_path / "session"
    agent = agent_of("codex", session, other.read_text())
    own, engine = Path(agent.state_files) / FILES["codex"], get_engine("codex")
    assert read_page(engine, agent, session, ID, 0) is not None
    planted, real = (own, other) if linked == "file" else (own.parent, other.parent)
    planted.rename(tmp_path / "aside")
    planted.symlink_to(real)
    assert read_page(engine, agent, session, ID, 0) is None
    assert read_last_answer(engine, agent.model_copy(update={"conversation": ID}), session) == ""


def test_e2_blocks_of_one_line_without_an_id_are_all_there(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": text} for text in ("a", "b")]
    line = json.dumps({"type": "assistant", "message": {"content": blocks}}) + "\n"
    entries = entries_of("claude", agent_of("claude", tmp_path, line))
    assert [entry.text for entry in entries] == ["a", "b"]


def test_e2_uses_of_tools_in_one_line_keep_their_own_ids_and_inputs(tmp_path: Path) -> None:
    edit = {"file_path": "a.py", "old_string": "a" * 200_000, "new_string": "\ud800"}
    inputs = {"t-1": edit, "t-2": {"edits": ["x"] * 100_000}, "t-3": {"n": 1, "of": [{"a": None}]}}
    inputs["t-4"] = {"deep": json.loads("[" * 300 + "]" * 300)}
    uses = [
        {"type": "tool_use", "id": id, "name": "Edit", "input": given}
        for id, given in inputs.items()
    ]
    results = [{"type": "tool_result", "tool_use_id": id, "content": id} for id in ("t-2", "t-1")]
    lines = [
        {"type": kind, "uuid": kind, "message": {"content": content}}
        for kind, content in (("assistant", uses), ("user", results))
    ]
    agent = agent_of("claude", tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    first, second, third, fourth, *came = entries_of("claude", agent)
    assert first.input is not None
    assert first.input["old_string"] == "a" * 100_000 + "… (200000 characters)"
    assert (first.input["file_path"], first.input["new_string"]) == ("a.py", "?")
    assert (second.call, second.input) == ("t-2", None)  # too much that is no text
    assert third.input == inputs["t-3"]
    assert (fourth.call, fourth.input) == ("t-4", None)
    assert [(each.call, each.text) for each in came] == [("t-2", "t-2"), ("t-1", "t-1")]
    assert Entry.model_validate_json(first.model_dump_json()) == first


@pytest.mark.slow
@pytest.mark.storm
def test_e2_the_transcript_of_an_agent_is_printed(tmp_path: Path) -> None:
    with made_team(tmp_path, "real") as team:
        team.role("worker", permissions={"allow": ["Bash(echo:*)"]})
        amy = team.run(
            prompt='Do it.\nSoon. [[say first ; tool Bash {"command":"echo x"} ; say over]]'
        )
        amy.wait_said("over")

        def lines() -> list[str]:
            return [line[9:] for line in team.pen.cli("transcript", "amy").out.splitlines()]

        wait_until(lambda: lines()[-1:] == ["● over"])
        assert lines()[0] == "› Do it."
        assert lines()[1].startswith("  Soon.")
        assert "· Bash  echo x" in lines()
        assert team.pen.cli("transcript", "amy", "-n", "1").out[9:] == "● over\n"
        shown = team.pen.cli("transcript", "amy", "--json").json["entries"]
        assert (shown[0]["kind"], shown[-1]["text"]) == ("prompt", "over")
        wait_until(lambda: team.pen.cli("list").out.splitlines()[1].endswith("  over"))
        team.pen.run(name="plain")
        assert "there is no transcript of plain" in team.pen.cli("transcript", "plain").err


@pytest.mark.slow
def test_e2_the_transcript_of_a_task_is_printed(real: Desk) -> None:
    real.agent()
    done = real.cli("task", "amy", "[[say first]]", "--json").json
    second = real.cli("task", "amy", "[[say second]]", "--json").json
    assert done["task_id"] != second["task_id"]
    for words, said in ((done["task_id"], "first"), ("amy", "second")):
        ran = real.cli("transcript", words)
        shown = ran.out.splitlines()
        assert (shown[0][9:10], shown[-1][9:]) == ("›", f"● {said}")


def test_p7_a_transcript_breaks_no_word_of_a_narrow_terminal() -> None:
    entry = Entry(kind="answer", at=0, text="Fixed and committed; test_auth.py passes.\n\n  - all")
    assert [line[9:] for line in _text(entry, full=True, columns=40).split("\n")] == [
        "● Fixed and committed;",
        "  test_auth.py passes.",
        "  ",
        "    - all",
    ]


@pytest.mark.parametrize("kind", ["prompt", "answer", "tool", "result"])
def test_q4_nothing_of_a_transcript_drives_the_terminal(
    kind: Literal["prompt", "answer", "tool", "result"],
) -> None:
    bad = "a\x1b]0;pwned\x07\r\n\u202eb"
    text = _text(Entry(kind=kind, at=0, text=bad, tool=bad), full=True, columns=40)
    assert "pwned" in text
    assert all(char == "\n" or char.isprintable() for char in text)
