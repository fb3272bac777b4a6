"""Messages to the real Gemini CLI and Codex. They are pasted: nothing in them may be a key."""

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines import get_engine
from bullpen.model.agent import Agent as Record
from tests.engines.inbox import inbox, send, wait_delivered
from tests.engines.team import Agent, Team, made_team
from tests.waiting import quiet_for, wait_until

pytestmark = pytest.mark.slow

ECHO = {
    "codex": 'tool exec_command {"cmd":"echo x"}',
    "gemini": 'tool run_shell_command {"command":"echo x"}',
}
ESCALATED = '"sandbox_permissions":"require_escalated","justification":"to see"'
TOUCH = {
    "codex": f'tool exec_command {{"cmd":"touch made",{ESCALATED}}}',
    "gemini": 'tool run_shell_command {"command":"touch made"}',
}
ASKED = {
    "codex": "blocked (permission: Bash)",
    "gemini": "blocked (permission: run_shell_command)",
}


@pytest.fixture(params=["codex", "gemini"])
def team(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Team]:
    with made_team(tmp_path, request.param) as made:
        yield made


def started(team: Team, script: str = "say ready") -> Agent:
    """With a first prompt: Codex says nothing before it."""
    return team.run(prompt=f"[[{script}]]")


def ready(team: Team) -> Agent:
    amy = started(team)
    amy.wait_said("ready")
    return amy


def press_enter(amy: Agent) -> None:
    """As a person does: Gemini CLI makes a line break of one that it reads with the text, and one
    that comes just after that is on the screen may submit what was there before."""
    quiet_for(0.5)
    taken = {"codex": "UserPromptSubmit", "gemini": "BeforeAgent"}[amy.engine]
    before = amy.hooks().count(taken)
    for _ in range(10):
        amy.type("\r")
        with contextlib.suppress(AssertionError):
            return wait_until(lambda: amy.hooks().count(taken) > before, 2)
    raise AssertionError(f"not taken\n{amy.screen()}")


def told(team: Team) -> list[str]:
    """What the model was told as prompts, from first to last."""
    body = team.claude.model.turns[-1].body
    return [entry.text for entry in team.claude.model.read(body) if entry.who == "user"]


def whole(team: Team) -> str:
    return json.dumps(team.claude.model.turns[-1].body, ensure_ascii=False)


def times_told(team: Team, message: dict[str, Any]) -> int:
    """How often the model was told that message, as a prompt or by a hook."""
    return whole(team).count(f"· {message['id']}]")


@pytest.mark.few(1)
def test_g3_an_idle_agent_gets_it_at_once(team: Team) -> None:
    amy = ready(team)
    sent = send(team, "amy", "[[say hello back]]")
    amy.wait_said("hello back")
    wait_delivered(team, "amy")
    assert f"[message from root · {sent['id']}]\n[[say hello back]]" in "\n".join(told(team))
    assert f"- {sent['id']}: the words of your user" in whole(team)


@pytest.mark.storm
def test_g3_sent_while_it_starts_it_arrives(team: Team) -> None:
    amy = team.run()
    sent = send(team, "amy", "[[say early bird]]")
    if team.engine == "codex":  # nothing tells that it waits for a prompt
        amy.wait_ready()
        wait_until(lambda: "before its first prompt" in inbox(team, "amy")[0]["why"])
        keys = get_engine("codex").typed("[[say first]]")
        amy.type(b"".join(keys).decode())
    amy.wait_said("early bird")
    wait_delivered(team, "amy")
    assert times_told(team, sent) == 1


@pytest.mark.storm
def test_g3_normal_waits_for_the_end_of_the_turn(team: Team) -> None:
    amy = started(team, "hold h ; say first")
    team.claude.model.wait_held("h")
    sent = send(team, "amy", "[[say second]]")
    wait_until(lambda: "end of its turn" in inbox(team, "amy")[0]["why"])
    assert sent["status"] == "queued"
    assert len(team.claude.model.turns) == 1
    team.claude.model.release("h")
    amy.wait_said("second")
    wait_delivered(team, "amy")
    assert times_told(team, sent) == 1


@pytest.mark.storm
def test_g3_urgent_goes_in_at_the_next_tool(team: Team) -> None:
    team.role("worker", permissions={"allow": ["Bash(echo:*)"]})
    amy = started(team, f"hold h ; {ECHO[team.engine]} ; hold i ; say done")
    team.claude.model.wait_held("h")
    sent = send(team, "amy", "mind the heron", priority="urgent")
    team.claude.model.release("h")
    team.claude.model.wait_held("i")
    assert f"[message from root · {sent['id']}]\\nmind the heron" in whole(team)
    team.claude.model.release("i")
    amy.wait_said("done")
    wait_delivered(team, "amy")
    send(team, "amy", "[[say and now]]")
    amy.wait_said("and now")
    assert times_told(team, sent) == 1


@pytest.mark.storm
def test_g3_a_dialog_is_not_answered(team: Team) -> None:
    if team.engine == "codex":
        team.role("worker", settings={"sandbox_mode": "read-only"})
    amy = started(team, f"{TOUCH[team.engine]} ; say done")
    amy.wait(ASKED[team.engine])
    if team.engine == "gemini":
        amy.wait_screen("Allow execution")
    for priority in ("normal", "urgent"):
        send(team, "amy", f"1\n\r[[say {priority}]]", priority=priority)
    wait_until(lambda: "blocked" in inbox(team, "amy")[0]["why"])
    assert amy.words == ASKED[team.engine]
    assert not (team.claude.work / "made").exists()
    if team.engine == "gemini":
        amy.type("1")
        amy.wait_said("done")
        # That its answer was no half a line shows with the next prompt only.
        wait_until(lambda: "half a line" in inbox(team, "amy")[0]["why"])
        amy.type("[[say mine]]")
        amy.wait_screen("> [[say mine]]")
        press_enter(amy)
    else:
        amy.wait_listed()
        assert team.cli("approve", "1").code == 0
    wait_delivered(team, "amy")
    amy.wait("idle")
    assert (team.claude.work / "made").exists()
    for message in inbox(team, "amy"):
        assert times_told(team, message) == 1


@pytest.mark.storm
def test_g3_half_a_line_is_not_lost(team: Team) -> None:
    amy = ready(team)
    amy.type("half a line")
    amy.wait_screen("half a line")
    sent = send(team, "amy", "[[say after you]]")
    wait_until(lambda: "half a line" in inbox(team, "amy")[0]["why"])
    assert "half a line" in amy.screen()
    assert len(team.claude.model.turns) == 1
    amy.type(" and the rest")
    amy.wait_screen("half a line and the rest")
    press_enter(amy)
    amy.wait_said("after you")
    wait_delivered(team, "amy")
    # (Gemini takes keys that come close together for a paste, and may break the line.)
    texts = told(team)
    given = next(text for text in texts if text.startswith(f"[message from root · {sent['id']}]\n"))
    typed = texts[texts.index(given) - 1]
    assert " ".join(typed.split()).startswith("half a line and the rest")
    assert sent["id"] not in typed


@pytest.mark.storm
def test_g2_hub_killed_after_the_hand_over(team: Team) -> None:
    amy = ready(team)
    sent = send(team, "amy", "[[hold h ; say through it all]]")
    team.claude.model.wait_held("h")
    team.pen.kill_hub()
    team.claude.model.release("h")
    team.pen.start()
    amy.wait_said("through it all")
    wait_delivered(team, "amy")
    assert times_told(team, sent) == 1


@pytest.mark.storm
def test_g2_ten_in_a_row_arrive_in_order_each_once(team: Team) -> None:
    amy = ready(team)
    for number in range(10):
        send(team, "amy", f"number {number} of many")
    wait_delivered(team, "amy")
    amy.wait("idle")
    found = "\n".join(told(team))
    places = [found.index(f"number {number} of many") for number in range(10)]
    assert places == sorted(places)
    assert all(found.count(f"number {number} of many") == 1 for number in range(10))


@pytest.mark.storm
def test_g2_what_an_earlier_try_left_in_its_prompt_is_taken_away(team: Team) -> None:
    """Enter may get lost; then all is typed once more."""
    amy = ready(team)
    before = len(team.claude.model.turns)
    text = "one\r\ntwo\r[[say only once]]"
    clearing, paste, *rest = get_engine(team.engine).typed(text)
    left = paste.decode().removesuffix("\r")
    amy.type(left.replace("\x1b[201~", "\n\x1b[201~"))
    amy.wait_screen("only once")
    amy.type(clearing.decode())
    amy.wait_ready()
    amy.type(paste.decode())
    wait_until(lambda: "only once" in amy.screen())
    for _ in range(10):
        if rest:
            amy.type(b"".join(rest).decode())
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(team.claude.model.turns) > before, 2)
            break
    amy.wait_said("only once")
    assert told(team)[-1] == "one\ntwo\n[[say only once]]"


# What is sent, and what arrives. The last of several loses the blanks at its end.
ODD = [
    ("two\nlines\n\n\tand a tab", "two\nlines\n\n\tand a tab"),
    ("\x1b[31mred\x1b]0;title\x07\x1b[2J", "␛[31mred␛]0;title␇␛[2J"),
    ("end\x1b[201~\r/quit\rx", "end␛[201~\n/quit\nx"),
    ("/clear", "/clear"),
    ("/quit\n/quit", "/quit\n/quit"),
    ("y\r\n", "y\n"),
    ("ünïcödé ☃ 🐦\u00a0\u2028", "ünïcödé ☃ 🐦\u00a0\u2028"),
    ("!touch made", "!touch made"),
    ("#remember", "#remember"),
    ("\x15\x03\x04\x7f\x9b", "␕␃␄␡\ufffd"),
    ("[[say a script of its own]]", "[[say a script of its own]]"),
    (("x" * 99 + "\n") * 2048, ("x" * 99 + "\n") * 2048),
    (" leading and trailing \n\n", " leading and trailing"),
]
# At the end of a prompt they would open a list, or keep Enter from sending it.
AT_THE_END = ["see @wor", "ask $fo", "back\\", "@/etc/passwd"]


@pytest.mark.storm
def test_g1_what_is_in_it_is_text_and_no_key(team: Team) -> None:
    (team.claude.work / "word.txt").write_text("of the word file")
    amy = started(team, "hold h ; say ready")
    team.claude.model.wait_held("h")
    for text, _ in ODD:
        send(team, "amy", text)
    team.claude.model.release("h")
    wait_delivered(team, "amy")
    for text in AT_THE_END:
        send(team, "amy", text)
        wait_delivered(team, "amy")
    amy.wait("idle")
    at = {"gemini": "\\@", "codex": "@"}[team.engine]
    expected = [came for _, came in ODD] + [text.replace("@", at) for text in AT_THE_END]
    found = "\n\n".join(told(team)) + "\n\n"
    for message, came in zip(inbox(team, "amy"), expected, strict=True):
        shown = f"[message from root · {message['id']}]\n{came}\n\n"
        assert found.count(shown) == 1, message["text"][:80]
    assert "of the word file" not in found
    assert not (team.claude.work / "made").exists()


# -- without a hub ---------------------------------------------------------------------------


@pytest.mark.storm
@pytest.mark.parametrize("engine", ["codex", "gemini"])
def test_g3_no_text_is_a_key(engine: str) -> None:
    text = "".join(map(chr, (*range(0x300), 0x2028, 0xFEFF))) + "\x1b[201~\r"
    keys = b"".join(get_engine(engine).typed(text)).decode()
    before, _, rest = keys.partition("\x1b[200~")
    paste, _, after = rest.partition("\x1b[201~")
    assert set(before) == {"\x15", "\x7f"}
    assert after == "\r"
    controls = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}
    assert controls & set(paste) == {"\n", "\t"}
    assert all(chr(code) in paste for code in range(0xA0, 0x300))


ID, OTHER = "m-0123456789ab", "m-ba9876543210"
dumped = partial(json.dumps, ensure_ascii=False)  # as both write them
HEAD = f"[message from root · {ID}]\nfor {OTHER}"


def of_codex(kind: str = "message", role: str = "user") -> dict[str, Any]:
    payload = {"type": kind, "role": role, "content": [{"type": "input_text", "text": HEAD}]}
    return {"type": "response_item", "payload": payload}


def of_tool(output: str) -> dict[str, Any]:
    response = {"functionResponse": {"response": {"output": output}}}
    return {"type": "user", "content": [response]}


LINES: dict[str, tuple[str, Any, Any, list[Any]]] = {
    "codex": (
        "2026/11/16/rollout-2026-11-16T05-23-45-x.jsonl",
        of_codex(),
        of_codex(role="developer"),
        [
            of_codex(role="assistant"),
            of_codex("function_call_output"),
            {"type": "event_msg", "payload": [HEAD]},
            {"type": "response_item", "payload": {"type": "message", "role": "user", "x": HEAD}},
        ],
    ),
    "gemini": (
        "work/chats/session-2026-11-16T05-23-x.jsonl",
        {"type": "user", "content": [{"text": HEAD}]},
        of_tool(f"read\n<hook_context>{HEAD}</hook_context>"),
        [
            {"type": "gemini", "content": [{"text": HEAD}]},
            of_tool(HEAD),
            {"type": "user", "content": HEAD},
            {"$set": {"messages": [HEAD]}},
        ],
    ),
}


@pytest.mark.storm
@pytest.mark.parametrize("engine", ["codex", "gemini"])
def test_g2_only_what_the_model_was_told_proves_that_it_arrived(
    engine: str, tmp_path: Path
) -> None:
    name, prompt, added, others = LINES[engine]
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    fields = {"name": "amy", "run": "r", "cwd": "/", "command": ("x",), "created": "now"}
    amy = Record(**fields, state_files=str(tmp_path))

    def shown(*lines: object, since: float = 0.0) -> set[str]:
        file.write_text(f"not JSON {HEAD}\n" + "\n".join(map(dumped, lines)))
        return get_engine(engine).find_shown(amy, {ID, OTHER}, since)

    assert shown(prompt) == {ID}
    assert shown(*others, added) == {ID}
    assert shown(*others) == set()
    assert shown(prompt, since=file.stat().st_mtime + 60) == set()
    unknown = Record(**fields)
    assert get_engine(engine).find_shown(unknown, {ID}, 0.0) == set()
