"""The fakes and the stand-in, proved against the real CLIs.

What the stand-in claims of Claude Code is a test that both run: with the real one it is slow.
"""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.engines.cli import (
    Claude,
    Codex,
    Gemini,
    StandIn,
    control_line,
    record_hooks,
    recorded,
    user_line,
)
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.fake_gemini import FakeGemini
from tests.engines.fake_model import INPUT_TOKENS, OUTPUT_TOKENS, Entry, place
from tests.engines.fake_openai import FakeOpenAI
from tests.engines.script import PLAIN, BadScript, Cut, Hold, Say, Status, Think, Tool, find_script
from tests.engines.tracing import contacted, strace
from tests.processes import alive
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BYPASS = ("--permission-mode", "bypassPermissions")
MANUAL = ("--permission-mode", "manual")
TOUCH = '[[tool Bash {"command":"touch made"} ; say done]]'
ALLOW = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}


@pytest.fixture
def anthropic() -> Iterator[FakeAnthropic]:
    with FakeAnthropic() as model:
        yield model


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.storm), "standin"])
def claude(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Claude]:
    """The real Claude Code and the stand-in."""
    if request.param == "standin":
        yield StandIn(tmp_path)
        return
    with FakeAnthropic() as model:
        yield Claude(tmp_path, model)


@pytest.fixture
def real(tmp_path: Path, anthropic: FakeAnthropic) -> Claude:
    return Claude(tmp_path, anthropic)


def transcript(claude: Claude, session: str) -> str:
    return "".join(file.read_text() for file in claude.config.glob(f"projects/*/{session}.jsonl"))


# -- the language ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("no script, [[ -f x ]] && echo", None),
        ("before [[say hi there]] after", ((Say("hi there"),),)),
        ("[[say old]]\n[[say new]]", ((Say("new"),),)),
        ("[[\n  say a\n  think\n]]", ((Say("a"), Think("hm")),)),
        (
            '[[say a ; tool Bash {"command":"[[ x ]] ; y"} ; say b]]',
            ((Say("a"), Tool("Bash", {"command": "[[ x ]] ; y"})), (Say("b"),)),
        ),
        (
            "[[tool A {} ; also B {} ; tool C {}]]",
            ((Tool("A", {}), Tool("B", {}, also=True)), (Tool("C", {}),)),
        ),
        ("[[say a ; next ; say b]]", ((Say("a"),), (Say("b"),))),
        ("[[status 429 retry-after 7 x2 ; say a]]", ((Status(429, 7, 2), Say("a")),)),
        ("[[hold ; cut]]", ((Hold("hold"), Cut(None)),)),
    ],
)
def test_a_script_is_found_in_a_text(text: str, answers: Any) -> None:
    assert find_script(text) == answers


@pytest.mark.parametrize("text", ["[[say a", "[[say a ; dance]]", "[[tool Bash echo]]"])
def test_a_bad_script_is_an_error(text: str) -> None:
    with pytest.raises(BadScript):
        find_script(text)


@pytest.mark.parametrize(
    ("conversation", "says"),
    [
        ([Entry("user", "hello")], PLAIN),
        ([Entry("user", "[[tool A {} ; say b]]"), Entry("model"), Entry("result")], "b"),
        ([Entry("user", "[[say a]]"), Entry("model"), Entry("user", "[[say c]]")], "c"),
        ([Entry("user", "[[say a]]"), Entry("model")], PLAIN),
        ([Entry("user", "[[say a]]"), Entry("user", "[Request interrupted by user]")], PLAIN),
        (
            [
                Entry("user", "[[say a]]"),
                Entry("model"),
                Entry("user", "Your response above was cut off mid-stream."),
            ],
            "a",
        ),
    ],
)
def test_a_conversation_has_a_place_in_its_script(conversation: list[Entry], says: str) -> None:
    assert place(conversation) == (Say(says),)


def test_an_answer_comes_whole_when_no_stream_is_asked_for(anthropic: FakeAnthropic) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "[[think ; say hi]]"}]}
    request = urllib.request.Request(
        f"{anthropic.url}/v1/messages", json.dumps(body).encode(), {"x-api-key": "secret"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        message = json.load(answer)
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["stop_reason"] == "end_turn"
    anthropic.wait(lambda: anthropic.requests[0].outcome == "answered")
    assert anthropic.usage == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert "secret" not in str(anthropic.requests)


# -- Claude Code and its stand-in, headless --------------------------------------------------


def test_headless_success(claude: Claude) -> None:
    session = str(uuid.uuid4())
    ran = claude.run_headless("[[think ; say hello]]", "--session-id", session)
    assert (ran.code, ran.err) == (0, "")
    assert ran.of("system", "init")[0]["session_id"] == session
    result = ran.result
    assert (result["result"], result["is_error"]) == ("hello", False)
    assert result["terminal_reason"] == "completed"
    assert result["usage"]["input_tokens"] == INPUT_TOKENS
    assert result["usage"]["output_tokens"] == OUTPUT_TOKENS
    assert len(list(claude.config.glob(f"projects/*/{session}.jsonl"))) == 1
    assert claude.states() == []


def test_tools_run_one_after_the_other(claude: Claude) -> None:
    script = '[[tool Bash {"command":"echo one >made"} ; tool Bash {"command":"cat made"} ; say x]]'
    ran = claude.run_headless(script, *BYPASS)
    results = [line["message"]["content"][0]["content"] for line in ran.of("user")]
    assert (ran.code, results[1], ran.result["result"]) == (0, "one", "x")
    assert ran.result["num_turns"] == 3


def test_bypass_as_root_needs_a_sandbox(claude: Claude) -> None:
    if os.geteuid() != 0:
        pytest.skip("for root only")
    ran = claude.run_headless("[[say x]]", *BYPASS, IS_SANDBOX="")
    assert ran.code == 1
    assert "root" in ran.err


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, "authentication_failed"), (429, "rate_limit"), (500, "server_error")],
)
def test_an_api_error_is_in_the_result_and_fires_StopFailure(
    claude: Claude, tmp_path: Path, status: int, error: str
) -> None:
    hooks = record_hooks(tmp_path / "hooks", "Stop", "StopFailure")
    # Not a run that ends by itself: 2.1.325 does not wait for this hook when it exits.
    with claude.spawn("--settings", json.dumps(hooks)) as pipes:
        pipes.send(user_line(f"[[status {status}]]"))
        result = pipes.wait_line("result")
        wait_until(lambda: recorded(tmp_path / "hooks") != [])
        assert pipes.finish() == 1
    assert (result["subtype"], result["is_error"]) == ("success", True)
    assert result["api_error_status"] == status
    assert result["terminal_reason"] == "api_error"
    told = recorded(tmp_path / "hooks")
    assert [(hook["hook_event_name"], hook["error"]) for hook in told] == [("StopFailure", error)]


def test_a_refusal_is_retried_after_the_time_it_names(claude: Claude) -> None:
    script = "[[status 429 retry-after 1 x1 ; say at last]]"
    ran = claude.run_headless(script, CLAUDE_CODE_MAX_RETRIES="1")
    retry = ran.of("system", "api_retry")[0]
    assert (retry["error_status"], retry["retry_delay_ms"]) == (429, 1000)
    assert (ran.code, ran.result["result"]) == (0, "at last")
    # The same words in a later prompt count anew.
    again = claude.run_headless(script, "--resume", ran.result["session_id"])
    assert (again.code, again.result["api_error_status"]) == (1, 429)


def test_a_connection_that_always_breaks_is_an_api_error(claude: Claude) -> None:
    ran = claude.run_headless("[[cut]]")
    assert (ran.code, ran.result["is_error"]) == (1, True)
    assert (ran.result["terminal_reason"], ran.result["api_error_status"]) == ("api_error", None)


@pytest.mark.few(1)
def test_resume_keeps_the_id_and_adds_up_the_cost(claude: Claude) -> None:
    session = str(uuid.uuid4())
    first = claude.run_headless("[[say one]]", "--session-id", session)
    second = claude.run_headless("[[say two]]", "--resume", session)
    assert (second.code, second.result["result"]) == (0, "two")
    assert second.result["session_id"] == session
    assert second.result["usage"]["input_tokens"] == INPUT_TOKENS
    assert second.result["total_cost_usd"] == pytest.approx(2 * first.result["total_cost_usd"])
    again = claude.run_headless("[[say three]]", "--session-id", session)
    assert (again.code, "already in use" in again.err) == (1, True)
    unknown = claude.run_headless("[[say four]]", "--resume", str(uuid.uuid4()))
    assert (unknown.code, "No conversation found" in unknown.err) == (1, True)


def test_hooks_fire_in_order(claude: Claude, tmp_path: Path) -> None:
    events = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"]
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(record_hooks(tmp_path / "hooks", *events)))
    ran = claude.run_headless(
        '[[tool Bash {"command":"echo hi"} ; say x]]', "--settings", str(file)
    )
    told = recorded(tmp_path / "hooks")
    assert [hook["hook_event_name"] for hook in told] == events
    assert {hook["session_id"] for hook in told} == {ran.result["session_id"]}
    start, prompt, before, after, stop, end = told
    assert (start["source"], end["reason"]) == ("startup", "other")
    assert prompt["prompt"].startswith("[[tool Bash")
    assert before["tool_input"] == after["tool_input"] == {"command": "echo hi"}
    assert (after["tool_response"]["stdout"], stop["last_assistant_message"]) == ("hi", "x")
    # A driver that takes the first line for the init is wrong.
    assert ran.lines[0]["subtype"] == "hook_started"


def test_hooks_over_http_get_only_the_variables_that_are_allowed(claude: Claude) -> None:
    told: list[tuple[dict[str, Any], str | None, str | None]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.append((body, self.headers["x-token"], self.headers["x-other"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    hook = {
        "type": "http",
        "url": f"http://127.0.0.1:{server.server_port}/hook?a=b",
        "headers": {"X-Token": "Bearer ${TOKEN}", "X-Other": "$OTHER"},
        "allowedEnvVars": ["TOKEN"],
    }
    hooks = {event: [{"hooks": [hook]}] for event in ("SessionStart", "UserPromptSubmit", "Stop")}
    settings = json.dumps({"hooks": hooks})
    ran = claude.run_headless("[[say x]]", "--settings", settings, TOKEN="t", OTHER="o")
    server.shutdown()
    server.server_close()
    assert ran.code == 0
    assert [body["hook_event_name"] for body, *_ in told] == ["UserPromptSubmit", "Stop"]
    assert {(token, other or "") for _, token, other in told} == {("Bearer t", "")}


def test_a_tool_that_needs_approval_is_denied_and_reported(claude: Claude) -> None:
    ran = claude.run_headless(TOUCH)
    assert (ran.code, ran.result["is_error"], ran.result["result"]) == (0, False, "done")
    assert [denial["tool_name"] for denial in ran.result["permission_denials"]] == ["Bash"]
    assert len(ran.of("system", "permission_denied")) == 1
    assert not (claude.work / "made").exists()


def test_a_hook_may_allow_what_needs_approval(claude: Claude, tmp_path: Path) -> None:
    answer = json.dumps({"hookSpecificOutput": ALLOW})
    hooks = record_hooks(tmp_path / "hooks", PermissionRequest=f"echo '{answer}'")
    ran = claude.run_headless(TOUCH, "--settings", json.dumps(hooks))
    assert (ran.code, ran.result["permission_denials"]) == (0, [])
    assert (claude.work / "made").exists()


def test_a_deny_rule_holds_under_bypass(claude: Claude) -> None:
    claude.settings(permissions={"deny": ["Bash(touch *)"]})
    ran = claude.run_headless(TOUCH, *BYPASS)
    assert (ran.code, len(ran.result["permission_denials"])) == (0, 1)
    assert not (claude.work / "made").exists()


def test_structured_output(claude: Claude) -> None:
    schema = {"type": "object", "properties": {"verdict": {"type": "string"}}}
    script = '[[tool StructuredOutput {"verdict":"ALLOW"} ; say x]]'
    ran = claude.run_headless(script, "--json-schema", json.dumps(schema))
    assert (ran.code, ran.result["structured_output"]) == (0, {"verdict": "ALLOW"})


def test_a_control_request_interrupts_a_turn_and_the_next_one_runs(
    claude: Claude, tmp_path: Path
) -> None:
    hooks = record_hooks(tmp_path / "hooks", "Stop", "StopFailure")
    with claude.spawn("--settings", json.dumps(hooks)) as pipes:
        pipes.send(user_line("[[hold a ; say never]]"))
        claude.wait_held("a")
        wait_until(lambda: [state["status"] for state in claude.states()] == ["busy"])
        pipes.send(control_line("interrupt"))
        first = pipes.wait_line("result")
        assert (first["is_error"], first["terminal_reason"]) == (True, "aborted_streaming")
        pipes.send(user_line("[[say after]]"))
        assert pipes.wait_line("result", 2)["result"] == "after"
        assert pipes.finish() == 0
    # An interrupt fires neither.
    assert [hook["last_assistant_message"] for hook in recorded(tmp_path / "hooks")] == ["after"]


def test_whoever_reads_the_output_may_approve(claude: Claude) -> None:
    with claude.spawn("--permission-prompt-tool", "stdio") as pipes:
        pipes.send(user_line(TOUCH))
        asked = pipes.wait_line("control_request")
        assert asked["request"]["tool_name"] == "Bash"
        answer = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
        pipes.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert pipes.wait_line("result")["permission_denials"] == []
        assert pipes.finish() == 0
    assert (claude.work / "made").exists()


def test_a_signal_ends_a_run_with_its_tool(claude: Claude, tmp_path: Path) -> None:
    hooks = record_hooks(tmp_path / "hooks", "SessionEnd")
    script = '[[tool Bash {"command":"echo $$ >made; exec tail -f /dev/null"} ; say x]]'
    made = claude.work / "made"
    with claude.spawn(*BYPASS, "--settings", json.dumps(hooks)) as pipes:
        pipes.send(user_line(script))
        wait_until(lambda: made.exists() and made.read_text().strip() != "")
        pipes.process.send_signal(signal.SIGTERM)
        assert pipes.process.wait(60) == 143
    wait_until(lambda: not alive(int(made.read_text())))
    assert [hook["reason"] for hook in recorded(tmp_path / "hooks")] == ["other"]
    assert claude.states() == []


# -- Claude Code and its stand-in, in a terminal ---------------------------------------------


def test_interactive_shows_no_dialog_and_its_state_follows_a_turn(claude: Claude) -> None:
    session = str(uuid.uuid4())
    with claude.start(*MANUAL, "--session-id", session) as terminal:
        terminal.wait_ready()
        assert terminal.state().get("status", "idle") == "idle"
        terminal.type("[[hold a ; say hello]]")
        terminal.wait_screen("hello]]")
        terminal.type("\r")
        claude.wait_held("a")
        terminal.wait_status("busy")
        claude.release("a")
        terminal.wait_screen("● hello")
        terminal.wait_status("idle")
        assert terminal.state()["sessionId"] == session
        terminal.submit("/exit")
        assert terminal.wait_exit() == 0
    assert claude.states() == []


@pytest.mark.few(1)
def test_interactive_waits_for_a_permission_until_a_key(claude: Claude, tmp_path: Path) -> None:
    hooks = record_hooks(tmp_path / "hooks", "PermissionRequest", "PostToolUse", "Stop")
    with claude.start(*MANUAL, "--settings", json.dumps(hooks)) as terminal:
        terminal.wait_ready()
        terminal.submit(TOUCH)
        terminal.wait_status("waiting")
        assert terminal.state()["waitingFor"] == "permission prompt"
        wait_until(lambda: len(recorded(tmp_path / "hooks")) == 1)
        terminal.answer("1")
        terminal.wait_screen("● done")
        terminal.wait_status("idle")
        assert (claude.work / "made").exists()
        terminal.submit('[[tool Bash {"command":"touch other"} ; say never]]')
        wait_until(lambda: len(recorded(tmp_path / "hooks")) == 4)
        terminal.answer("4")
        terminal.wait_status("idle")
    assert not (claude.work / "other").exists()
    # A refusal ends the turn, and no hook tells.
    events = [hook["hook_event_name"] for hook in recorded(tmp_path / "hooks")]
    assert events == ["PermissionRequest", "PostToolUse", "Stop", "PermissionRequest"]


def test_interactive_a_hook_answers_for_the_person(claude: Claude, tmp_path: Path) -> None:
    answer = json.dumps({"hookSpecificOutput": ALLOW})
    command = f"tail -f --pid=$(cat {tmp_path}/pid) /dev/null; echo '{answer}'"
    waiter = subprocess.Popen(["tail", "-f", "/dev/null"])
    (tmp_path / "pid").write_text(str(waiter.pid))
    hooks = record_hooks(tmp_path / "hooks", PermissionRequest=command)
    try:
        with claude.start(*MANUAL, "--settings", json.dumps(hooks)) as terminal:
            terminal.wait_ready()
            terminal.submit(TOUCH)
            terminal.wait_status("waiting")
            terminal.wait_screen("Do you want to proceed")
            waiter.kill()
            waiter.wait()
            terminal.wait_status("idle")
    finally:
        waiter.kill()
        waiter.wait()
    assert (claude.work / "made").exists()


def test_interactive_escape_interrupts_and_the_prompt_is_back_in_the_box(
    claude: Claude, tmp_path: Path
) -> None:
    hooks = record_hooks(tmp_path / "hooks", "Stop", "StopFailure")
    with claude.start(*MANUAL, "--settings", json.dumps(hooks)) as terminal:
        terminal.wait_ready()
        terminal.submit("[[hold a ; say never]]")
        claude.wait_held("a")
        terminal.wait_status("busy")
        terminal.type("\x1b")
        terminal.wait_status("idle")
        terminal.wait_screen("\n❯ [[hold a")
        terminal.type("\x15")
        terminal.submit("[[say after]]")
        terminal.wait_screen("● after")
        terminal.wait_status("idle")
    assert [hook["last_assistant_message"] for hook in recorded(tmp_path / "hooks")] == ["after"]


def test_interactive_clear_changes_the_session_id(claude: Claude) -> None:
    with claude.start(*MANUAL) as terminal:
        terminal.wait_ready()
        terminal.submit("[[say one]]")
        terminal.wait_screen("● one")
        terminal.wait_status("idle")
        before = terminal.state()["sessionId"]
        terminal.submit("/clear")
        wait_until(lambda: terminal.state().get("sessionId") not in (None, before))


def test_a_message_to_the_socket_starts_a_turn(claude: Claude) -> None:
    path = claude.temporary / "in.sock"
    with claude.start(*MANUAL, "--messaging-socket-path", str(path)) as terminal:
        terminal.wait_ready()
        wait_until(path.exists)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(user_line("[[say injected]]").encode())
        terminal.wait_screen("● injected")
        terminal.wait_status("idle")


def test_a_killed_session_leaves_its_state_file_and_resumes(claude: Claude) -> None:
    session = str(uuid.uuid4())
    with claude.start(*MANUAL, "--session-id", session) as terminal:
        terminal.wait_ready()
        terminal.submit("[[hold a ; say never]]")
        claude.wait_held("a")
        terminal.wait_status("busy")
        wait_until(lambda: "never" in transcript(claude, session))
        terminal.process.kill()
        assert terminal.wait_exit() == -signal.SIGKILL
    assert [state["status"] for state in claude.states()] == ["busy"]
    ran = claude.run_headless("[[say back]]", "--resume", session)
    assert (ran.code, ran.result["result"]) == (0, "back")


def test_a_session_killed_before_its_first_prompt_was_written_is_lost(claude: Claude) -> None:
    """Its id can neither be resumed nor used again."""
    session = str(uuid.uuid4())
    folder = claude.config / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(claude.work))
    folder.mkdir(parents=True)
    first_line = {"type": "mode", "mode": "normal", "sessionId": session}
    (folder / f"{session}.jsonl").write_text(json.dumps(first_line) + "\n")
    resumed = claude.run_headless("[[say x]]", "--resume", session)
    assert (resumed.code, "No conversation found" in resumed.err) == (1, True)
    assert resumed.result["subtype"] == "error_during_execution"
    again = claude.run_headless("[[say x]]", "--session-id", session)
    assert (again.code, "already in use" in again.err) == (1, True)


# -- only the real ones ----------------------------------------------------------------------


@pytest.mark.storm
def test_a_cut_answer_is_asked_for_again(real: Claude, anthropic: FakeAnthropic) -> None:
    ran = real.run_headless("[[cut x1 ; say whole]]")
    assert (ran.code, ran.result["result"]) == (0, "whole")
    assert [asked.outcome for asked in anthropic.turns] == ["cut", "answered"]
    # The second time without a stream, though no retries are allowed.
    assert [asked.body.get("stream") for asked in anthropic.turns] == [True, False]
    assert ran.result["usage"]["input_tokens"] == anthropic.usage[0]


@pytest.mark.storm
def test_requests_are_recorded(real: Claude, anthropic: FakeAnthropic) -> None:
    script = '[[say a ; tool Bash {"command":"echo 1"} ; also Bash {"command":"echo 2"} ; say b]]'
    ran = real.run_headless(script, *BYPASS, "--model", "haiku")
    assert [asked.outcome for asked in anthropic.turns] == ["answered"] * 2
    assert {asked.session for asked in anthropic.turns} == {ran.result["session_id"]}
    assert {asked.body["model"] for asked in anthropic.turns} == {"claude-haiku-5-5"}
    assert "sk-ant" not in str(anthropic.requests)
    usage = ran.result["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == anthropic.usage


@pytest.mark.storm
def test_a_compaction_is_no_turn(real: Claude, anthropic: FakeAnthropic) -> None:
    with real.start(*MANUAL) as terminal:
        terminal.wait_ready()
        terminal.submit("[[say one]]")
        terminal.wait_screen("● one")
        terminal.wait_status("idle")
        terminal.submit("/compact")
        terminal.wait_screen("Compacted")
    assert [asked.side for asked in anthropic.requests] == [False, True]


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[Codex]:
    with FakeOpenAI() as model:
        yield Codex(tmp_path, model)


@pytest.fixture
def gemini(tmp_path: Path) -> Iterator[Gemini]:
    with FakeGemini() as model:
        yield Gemini(tmp_path, model)


def test_codex_runs_a_tool_and_resumes(codex: Codex) -> None:
    script = '[[think ; tool exec_command {"cmd":"echo hi >made"} ; say done]]'
    first = codex.run_headless(script, "--dangerously-bypass-approvals-and-sandbox")
    assert first.code == 0
    assert (codex.work / "made").read_text() == "hi\n"
    thread = first.of("thread.started")[0]["thread_id"]
    second = codex.run_headless("[[say again]]", resume=thread)
    assert (second.code, second.of("thread.started")[0]["thread_id"]) == (0, thread)
    assert second.of("item.completed")[-1]["item"]["text"] == "again"
    # Codex counts the whole thread.
    usage = second.of("turn.completed")[0]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == codex.model.usage


@pytest.mark.slow
@pytest.mark.parametrize("script", ["status 401", "status 429", "status 500", "cut"])
def test_codex_fails(codex: Codex, script: str) -> None:
    ran = codex.run_headless(f"[[{script}]]")
    assert (ran.code, len(ran.of("turn.failed"))) == (1, 1)


@pytest.mark.storm
def test_gemini_runs_a_tool_and_resumes(gemini: Gemini) -> None:
    session = str(uuid.uuid4())
    script = '[[tool run_shell_command {"command":"echo hi >made"} ; say done]]'
    first = gemini.run_headless(script, "--session-id", session, "--approval-mode", "yolo")
    assert (first.code, first.result["status"]) == (0, "success")
    assert (gemini.work / "made").read_text() == "hi\n"
    stats = first.result["stats"]
    assert (stats["input_tokens"], stats["output_tokens"]) == gemini.model.usage
    second = gemini.run_headless("[[say again]]", "--resume", session)
    assert (second.code, second.of("init")[0]["session_id"]) == (0, session)
    assert second.of("message")[-1]["content"] == "again"


# -- nothing but loopback --------------------------------------------------------------------


# Gemini takes seconds to start; so the run that is watched is also the one that fails.
@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "script", "ends"),
    [("real", "say hi", 0), ("codex", "say hi", 0), ("gemini", "status 401", 145)],
)
def test_nothing_but_loopback_is_contacted(
    engine: str, script: str, ends: int, traced: Path, request: pytest.FixtureRequest
) -> None:
    cli = request.getfixturevalue(engine)
    cli.under = strace(traced)
    assert cli.run_headless(f"[[{script}]]").code == ends
    assert contacted(traced) == {"127.0.0.1"}


@pytest.mark.storm
def test_nothing_but_loopback_is_contacted_from_a_terminal(real: Claude, traced: Path) -> None:
    real.under = strace(traced)
    with real.start(*MANUAL) as terminal:
        terminal.wait_ready()
        terminal.submit("[[say hi]]")
        terminal.wait_screen("● hi")
        terminal.submit("/exit")
        assert terminal.wait_exit() == 0
    assert contacted(traced) == {"127.0.0.1"}
