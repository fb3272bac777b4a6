"""Approvals: asked by a hook that waits, answered by a person, once; and what ends them else."""

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.component.redact import Redactor
from bullpen.home.paths import HUB
from bullpen.home.roles import RoleFile, load_role, text_with_rule
from bullpen.hot import wire
from bullpen.hot.hook_line import ask_line
from bullpen.hub.permissions import summary
from bullpen.hub.permissions.flow import MOST_OPEN
from bullpen.model.approval import ToolRequest, describe
from tests.at_terminal import AtTerminal
from tests.commands import BULLPEN
from tests.homes import STARTER
from tests.hub.http.http import connect
from tests.hub.listener import Listener
from tests.hub.pen import Pen, change_hub
from tests.hub.permissions.asking import ALLOW, ROOT, Asking, request
from tests.processes import alive
from tests.threads import together
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def asking(pen: Pen) -> Iterator[Asking]:
    pen.start()
    pen.run(name="amy")
    made = Asking(pen)
    yield made
    for hook in made.hooks:
        hook.kill()


def give_dialogs(asking: Asking, directory: Path) -> None:
    """Amy is a program that shows a dialog of its own when its hook is gone."""
    asking.pen.stop("amy")
    codex = directory / "codex"
    codex.write_text("#!/bin/sh\nexec sleep 1000\n")
    codex.chmod(0o755)
    asking.pen.run(str(codex), name="amy")


# ── answered from here ──


def test_q4_an_answer_from_the_inbox_reaches_the_engine(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask("rm -rf build && make all\x1b[2J")
    assert pen.state("amy") == "blocked (permission: Bash)"
    shown = pen.cli("approvals").out
    assert shown.startswith(" #1  amy  Bash  ")
    assert shown.endswith("   rm -rf build && make all⟨U+001B⟩[2J\n")
    assert pen.cli("list").out.endswith("\n1 approval waits · bullpen approvals\n")
    assert "approval                #1 waits for you" in pen.cli("explain", "amy").out

    ran = pen.cli("approve", "1")
    assert (ran.code, ran.out) == (0, "amy goes on.\n")
    assert hook.decision() == ALLOW
    assert pen.state("amy") == "working (Bash)"
    assert "#1 allowed by you" in pen.cli("explain", "amy").out
    assert pen.cli("approvals").out == "nothing waits for you\n"
    assert "approval" not in pen.cli("list").out


def test_q4_a_refusal_brings_its_reason(asking: Asking) -> None:
    hook = asking.ask()
    assert asking.pen.cli("deny", "#1", "--reason", "use make test").code == 0
    assert hook.decision() == {"behavior": "deny", "message": "use make test"}
    assert asking.pen.state("amy") == "working (thinking)"


def test_q4_the_first_answer_wins_and_the_other_is_told(asking: Asking) -> None:
    hook = asking.ask()
    ids = [f"answer-{number}" for number in range(8)]

    def answer(number: int) -> tuple[int, dict[str, Any]]:
        body = {"decision": "deny" if number % 2 else "allow", "answer": ids[number]}
        return asking.pen.ask("POST", "/approvals/1", body)

    answers = together(*(lambda n=n: answer(n) for n in range(8)))
    won = [number for number, (status, _) in enumerate(answers) if status == 200]
    assert len(won) == 1
    said = "denied by you" if won[0] % 2 else "allowed by you"
    messages = {found["message"] for status, found in answers if status == 409}
    assert messages == {f"#1 was decided before: {said}"}
    assert hook.decision()["behavior"] == ("deny" if won[0] % 2 else "allow")
    assert len(asking.pen.events(kind="approval.answered")) == 1
    # The same answer once more, because its sender did not hear: no conflict.
    assert answer(won[0])[0] == 200
    ran = asking.pen.cli("approve", "1")
    assert (ran.code, ran.err.split("\n")[0]) == (5, f"error: #1 was decided before: {said}")


def test_q4_two_questions_of_one_agent_are_two(asking: Asking) -> None:
    first, second = asking.ask("one"), asking.ask("two", tool="Write")
    assert asking.pen.cli("list").out.endswith("2 approvals wait · bullpen approvals\n")
    assert asking.pen.cli("deny", "1").code == 0
    assert first.decision()["behavior"] == "deny"
    assert asking.pen.state("amy") == "blocked (permission: Write)"
    assert asking.pen.cli("approve", "2").code == 0
    assert second.decision() == ALLOW
    assert asking.pen.state("amy") == "working (Write)"


def test_q4_changes_are_events_for_who_follows(asking: Asking) -> None:
    listener = Listener(asking.pen)
    try:
        asking.ask("echo hi\u202e")
        asking.pen.cli("approve", "1")
        wait_until(lambda: "approval.answered" in [event["kind"] for event in listener.events])
        kinds = {event["kind"]: event["data"] for event in listener.events}
    finally:
        listener.close()
    assert kinds["approval.asked"]["text"] == "echo hi⟨U+202E⟩"
    assert kinds["approval.answered"]["decision"] == "allow"


def test_q4_an_agent_cannot_flood_the_inbox(asking: Asking, tmp_path: Path) -> None:
    give_dialogs(asking, tmp_path)
    asking.ask("the first")
    with contextlib.ExitStack() as stack:
        for number in range(MOST_OPEN - 1):
            body = request(f"ls {number}")
            head = f"POST /agents/amy/permission?ask=question-{number} HTTP/1.1\r\nHost: x\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            talk = stack.enter_context(connect(asking.pen.home.socket(HUB)))
            talk.sendall(head.encode() + body)
        wait_until(lambda: len(asking.inbox()) == MOST_OPEN)
        assert asking.send(request("one more")).decision() is None
        assert len(asking.inbox()) == MOST_OPEN


HIDDEN = "true " + "x" * 20_000 + " && rm -rf /\u202e && echo ghp_" + "Ab1" * 12


def test_q4_what_runs_is_shown_whole_and_literally_wherever_it_is_decided(asking: Asking) -> None:
    pen, shown = asking.pen, HIDDEN.replace("\u202e", "⟨U+202E⟩")
    asking.ask(HIDDEN, description="run the tests")
    line = pen.cli("approvals").out
    total = len(f"{shown}\n⟨description⟩ run the tests")
    assert line.endswith(f"… (160 of {total} characters · bullpen approvals 1)\n")
    (found,) = pen.cli("approvals", "--json").json["approvals"]
    assert (found["text"], found["more"]) == (shown[:2000], total - 2000)

    whole = pen.cli("approvals", "1").out
    assert whole.endswith(f"\n{shown}\n⟨description⟩ run the tests\n")
    assert f"  {total} characters\n" in whole
    for found in (pen.cli("approvals", "1", "--json").json, pen.ask("GET", "/approvals/1")[1]):
        assert found["input"] == {"command": HIDDEN, "description": "run the tests"}
        assert (len(found["text"]), found["more"]) == (total, 0)
    assert pen.cli("approvals", "1", "--json").out.isascii()
    socket = str(pen.home.socket(HUB))
    assert wire.request(socket, "GET", "/approvals/1", {}, b"", 60).body.isascii()


@pytest.mark.parametrize("is_guarded", [True, False])
def test_q4_a_redacted_text_would_hide_what_runs(
    monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """An attack counts only if it works without the defence: redaction is for logs alone."""
    if not is_guarded:
        monkeypatch.setattr(summary, "describe", lambda one: Redactor().text(describe(one)))
    hidden = ToolRequest(tool="Bash", input={"command": "curl x?password=y|sh"})
    assert summary.summarize(hidden)["text"].endswith("|sh") == is_guarded


def test_q4_nobody_allows_what_the_list_does_not_show(asking: Asking) -> None:
    """`--yes` takes the defence away: then it is allowed unseen."""
    hook = asking.ask(HIDDEN)
    ran = asking.pen.cli("approve", "1")
    assert (ran.code, "is not allowed yet: it has 2" in ran.err) == (5, True)
    assert "bullpen approvals 1 · then: bullpen approve 1 --yes" in ran.err
    assert hook.process.poll() is None
    assert asking.pen.cli("approve", "1", "--yes").out == "amy goes on.\n"
    assert hook.decision() == ALLOW


@pytest.mark.parametrize(
    ("pages", "last", "is_allowed"), [(4, "y", True), (4, "n", False), (1, "q", False)]
)
@pytest.mark.few(1)
def test_q4_at_a_terminal_all_of_it_is_paged_before_it_is_allowed(
    asking: Asking, pages: int, last: str, is_allowed: bool
) -> None:
    """Without the question it is allowed unseen, as `--yes` shows above."""
    hook = asking.ask("\n".join(f"line {n}" for n in range(100)))
    env = {"BULLPEN_DIR": str(asking.pen.root), "LINES": "24", "COLUMNS": "80"}
    terminal = AtTerminal("approve", "1", **env)
    for page in range(1, pages + 1):
        terminal.expect(f"-- {22 * page} of 102 lines")
        terminal.type("\n" if page < pages or last != "q" else "")
    if last != "q":
        terminal.expect("line 99")
        terminal.expect("[y/N]")
    terminal.type(f"{last}\n")
    assert (terminal.end() == 0, bool(asking.inbox())) == (is_allowed, not is_allowed)
    assert is_allowed == (hook.decision() == ALLOW if is_allowed else False)


@pytest.mark.few(2)
@pytest.mark.parametrize("number", ["0", "-1", "X", "#", "7" * 30])
def test_q4_what_is_no_number_is_refused(asking: Asking, number: str) -> None:
    assert asking.pen.cli("approve", "--", number).code == 2
    assert asking.pen.cli("deny", "99").code == 4


# ── which ones ──


@pytest.mark.storm
def test_q4_by_numbers_by_agent_all_or_the_only_one(asking: Asking) -> None:
    pen = asking.pen
    pen.run(name="bob")
    first = [asking.ask(f"make {n}") for n in range(2)]
    assert pen.cli("approve", "1", "#2").out == "amy goes on.\n" * 2
    assert [hook.decision() for hook in first] == [ALLOW] * 2
    assert pen.cli("approve").err.startswith("error: nothing waits for you")
    bobs = [asking.ask(f"make {n}", agent="bob") for n in range(2)]
    amys = asking.ask("make 9")
    ran = pen.cli("approve")
    assert (ran.code, "3 approvals wait: which one?" in ran.err) == (2, True)
    assert pen.cli("approve", "carl").code == 4
    assert pen.cli("deny", "bob").out == "bob was refused, and goes on without it.\n" * 2
    assert [hook.decision()["behavior"] for hook in bobs] == ["deny"] * 2
    for verb in ("approve", "deny"):
        for words in ([], ["--json"], *([["--yes"]] if verb == "approve" else [])):
            ran = pen.cli(verb, *words)
            assert (ran.code, ran.out) == (2, ""), "nobody saw which one it is"
            assert f"bullpen {verb} 5" in ran.err
    assert amys.process.poll() is None
    named = pen.cli("approve", "amy").out
    assert "make 9" in named, "it was not named by its number, so it is shown"
    assert named.endswith("\namy goes on.\n")
    assert amys.decision() == ALLOW
    others = [asking.ask("make x", agent=agent) for agent in ("amy", "bob")]
    answered = json.loads(pen.cli("approve", "--all", "--json").out)["approvals"]
    assert [one["agent"] for one in answered] == ["amy", "bob"]
    assert [hook.decision() for hook in others] == [ALLOW] * 2


def test_q4_what_one_of_many_failed_at_is_said_and_the_rest_is_done(asking: Asking) -> None:
    hooks = [asking.ask(f"make {n}") for n in range(2)]
    ran = asking.pen.cli("approve", "66", "1", "77", "2")
    assert (ran.code, ran.out) == (4, "amy goes on.\n" * 2)
    errors = [line for line in ran.err.splitlines() if line.startswith("error:")]
    assert errors == ["error: no approval #66", "error: no approval #77"]
    assert [hook.decision() for hook in hooks] == [ALLOW] * 2


def test_q4_at_a_terminal_the_only_one_is_shown_before_it_is_allowed(asking: Asking) -> None:
    hook = asking.ask("make all")
    env = {"BULLPEN_DIR": str(asking.pen.root), "LINES": "24", "COLUMNS": "80"}
    terminal = AtTerminal("approve", **env)
    terminal.expect("make all")
    terminal.expect("Allow it? [y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert hook.decision() == ALLOW


def test_q4_an_agent_named_at_a_terminal_is_allowed_only_what_was_shown(asking: Asking) -> None:
    """Another request slips in between the list and the answer."""
    shown = [asking.ask("make all"), asking.ask("make test")]
    env = {"BULLPEN_DIR": str(asking.pen.root), "LINES": "24", "COLUMNS": "80"}
    terminal = AtTerminal("approve", **env)
    terminal.expect("Which?")
    late = asking.ask("rm -rf /")
    terminal.type("amy\n")
    assert terminal.end() == 0
    assert [hook.decision() for hook in shown] == [ALLOW] * 2
    assert [each["text"] for each in asking.inbox()] == ["rm -rf /"]
    assert late.process.poll() is None


# ── decided elsewhere ──


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("PostToolUse", "answered in the terminal"),
        ("Stop", "the turn ended"),
    ],
)
def test_q3_an_answer_in_the_terminal_closes_it_and_ends_the_hook(
    asking: Asking, event: str, why: str
) -> None:
    hook = asking.ask()
    asking.tell(event, tool_name="Bash")
    assert hook.decision() is None
    assert asking.last()["why"] == why
    ran = asking.pen.cli("approve", "1")
    assert (ran.code, ran.err.split("\n")[0]) == (5, f"error: #1 was decided before: {why}")
    assert f"#1 {why}" in asking.pen.cli("explain", "amy").out


def test_q4_one_that_a_program_without_dialogs_asked_ends_with_its_hook(asking: Asking) -> None:
    asking.ask().kill()
    wait_until(lambda: asking.inbox() == [])
    assert asking.last()["why"] == "whoever asked is gone"
    assert asking.pen.state("amy") == "working"
    ran = asking.pen.cli("approve", "1")
    assert (ran.code, "whoever asked is gone" in ran.err) == (5, True)


def test_q4_one_whose_hook_is_gone_is_answered_in_the_terminal(
    asking: Asking, tmp_path: Path
) -> None:
    """Of a program with dialogs of its own, which it shows now."""
    give_dialogs(asking, tmp_path)
    hook = asking.ask()
    hook.kill()
    wait_until(lambda: not asking.inbox()[0]["state"]["reachable"])
    assert "answer in the terminal · bullpen attach amy" in asking.pen.cli("approvals").out
    ran = asking.pen.cli("approve", "1", "--always")
    assert ran.code == 5
    assert "can only be answered in amy's terminal" in ran.err
    assert not (asking.pen.session("amy") / "rules.json").exists()
    assert asking.pen.state("amy") == "blocked (permission: Bash)"
    asking.tell("PostToolUse", tool_name="Bash")
    wait_until(lambda: asking.inbox() == [])


def test_q4_it_ends_with_its_agent(asking: Asking) -> None:
    hook = asking.ask()
    asking.pen.stop("amy")
    assert hook.decision() is None
    wait_until(lambda: asking.last().get("why") == "the agent ended")


def test_q4_nobody_answers_in_time(pen: Pen) -> None:
    with (pen.root / "config.yaml").open("a") as file:
        file.write("ask_timeout: 1s\n")
    pen.run(name="amy")
    asking = Asking(pen)
    hook = asking.send(request("ls"))
    assert hook.decision() == {"behavior": "deny", "message": "nobody answered within 1s"}
    assert asking.last()["by"] == "ask_timeout"


# ── hubs that die ──


@pytest.mark.storm
def test_q4_a_killed_hub_finds_it_again_and_the_hook_comes_back(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask()
    for _ in range(3):
        pen.kill_hub()
        assert pen.cli("approvals").out.startswith(" #1  amy  Bash  ")
        assert "answer in the terminal" not in pen.cli("approvals").out
        wait_until(lambda: pen.state("amy") == "blocked (permission: Bash)")
    assert hook.process.poll() is None
    assert pen.cli("approve", "1").code == 0
    assert hook.decision() == ALLOW
    assert len(pen.events(kind="approval.asked")) == 1
    asking.ask("another")
    assert [one["id"] for one in asking.inbox()] == [2]


def test_q4_an_answer_that_the_hook_did_not_hear_is_kept_for_it(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask()
    os.kill(hook.process.pid, signal.SIGSTOP)  # it hears nothing
    assert pen.cli("approve", "1").code == 0
    pen.kill_hub()
    pen.start()
    os.kill(hook.process.pid, signal.SIGCONT)
    assert hook.decision() == ALLOW


@pytest.mark.storm
def test_q4_answered_by_nobody_while_the_hub_is_away(asking: Asking) -> None:
    pen, hook = asking.pen, asking.ask()
    hook.kill()
    pen.kill_hub()
    pen.start()
    wait_until(lambda: asking.inbox() == [])  # who asked is gone, and its program has no dialog
    assert pen.cli("approve", "1").code == 5


def catches_alarms(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGALRM - 1) & 1)


def test_s2_a_hub_that_comes_late_is_waited_for(pen: Pen) -> None:
    pen.start()
    pen.run(name="amy")
    asking = Asking(pen)
    pen.kill_hub()
    hook = asking.send(request("ls"))
    wait_until(lambda: catches_alarms(hook.process.pid))  # it has begun to ask
    pen.start()
    wait_until(lambda: len(asking.inbox()) == 1)
    assert asking.inbox()[0]["asked"] < pen.events(kind="hub.started")[-1]["time"]
    pen.cli("approve", "1")
    assert hook.decision() == ALLOW


@pytest.mark.storm
def test_q4_a_hub_that_stops_does_not_wait_for_hooks(asking: Asking) -> None:
    asking.pen.kill_hub()
    change_hub(
        asking.pen, "from bullpen.component import http_server; http_server.LEAVE_SECONDS = 600"
    )
    pen, hook = asking.pen, asking.ask()
    pid = pen.pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid))
    assert pen.cli("approve", "1").code == 0
    assert hook.decision() == ALLOW


# ── the command ──

WAYS = {
    "line": None,
    "command": [str(BULLPEN), "permission-request"],
    "named": [str(BULLPEN), "permission-request", "--agent", "amy"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.few(1)
def test_q2_all_ways_to_ask_are_the_same(asking: Asking, way: str) -> None:
    hook = asking.send(request("ls"), words=WAYS[way])
    wait_until(lambda: len(asking.inbox()) == 1)
    asking.pen.cli("approve", "1")
    assert hook.decision() == ALLOW


@pytest.mark.few(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[1]", b"{", b'{"tool_name": 7}', b'{"a": 1}'], ids=repr
)
def test_s2_malformed_input_is_noted_and_no_answer(asking: Asking, way: str, body: bytes) -> None:
    assert asking.send(body, words=WAYS[way]).result() == (b"", b"", 0)
    noted = asking.pen.events("amy", "hook.received")
    assert [event["malformed"] for event in noted] == [len(body)]
    assert asking.inbox(all=1) == []


def test_s2_malformed_input_does_not_wait_for_a_hub(asking: Asking) -> None:
    asking.pen.kill_hub()
    assert asking.send(b"no request").result() == (b"", b"", 0)
    asking.pen.start()
    wait_until(lambda: len(asking.pen.events("amy", "hook.received")) == 1)


def test_s2_words_that_it_does_not_know_are_no_error_and_no_answer(asking: Asking) -> None:
    words = [str(BULLPEN), "permission-request", "--new-option"]
    out, err, code = asking.send(request("ls"), words=words).result()
    assert (out, code) == (b"", 0)
    assert b"not understood" in err


def test_s2_an_agent_that_nobody_knows_gets_no_answer(asking: Asking) -> None:
    assert asking.send(request("ls"), agent="nobody").decision() is None


@pytest.mark.parametrize("hub", ["there", "away"])
def test_s2_it_ends_with_its_engine(asking: Asking, hub: str, tmp_path: Path) -> None:
    """Killed, so that nobody tells the hook; with a shell in between, as some engines have it."""
    ids = tmp_path / "ids"
    line = shlex.join(ask_line(sys.executable, ROOT, "amy"))
    (tmp_path / "request").write_bytes(request("ls"))
    shell = f"{line} < {tmp_path}/request & echo $! $$ > {ids}; wait; true"
    engine = "import subprocess, sys; subprocess.run(sys.argv[1], shell=True, capture_output=True)"
    if hub == "away":
        asking.pen.kill_hub()
    hook = asking.send(b"", words=[sys.executable, "-c", engine, shell])
    wait_until(lambda: ids.exists() and ids.read_text().count(" ") == 1)
    pid, between = map(int, ids.read_text().split())
    if hub == "there":
        wait_until(lambda: len(asking.inbox()) == 1)
    assert alive(pid)
    hook.kill()
    wait_until(lambda: not alive(pid))
    wait_until(lambda: not alive(between))
    if hub == "there":
        wait_until(lambda: asking.inbox() == [])


def test_q2_an_agent_asks_through_its_own_socket(asking: Asking, tmp_path: Path) -> None:
    """In a sandbox there is nothing but its socket: no home, no token."""
    session = asking.pen.session("amy")
    words = ["env", "-i", f"BULLPEN_SESSION_DIR={session}", f"HOME={tmp_path}"]
    hook = asking.send(request("ls"), words=[*words, *ask_line(sys.executable, ROOT, "amy")])
    wait_until(lambda: len(asking.inbox()) == 1)
    asking.pen.cli("approve", "1")
    assert hook.decision() == ALLOW
    other = asking.send(request("ls"), words=[*words, *ask_line(sys.executable, ROOT, "bob")])
    assert other.decision() is None
    assert len(asking.inbox(all=1)) == 1


def test_q4_an_agent_decides_nothing(asking: Asking) -> None:
    hook = asking.ask()
    env = json.loads((asking.pen.session("amy") / "private" / "env").read_text())["env"]
    token = env["BULLPEN_TOKEN"]
    assert asking.pen.ask("GET", "/approvals", token=token)[0] == 403
    allow = {"decision": "allow"}
    assert asking.pen.ask("POST", "/approvals/1", allow, token=token)[0] == 403
    assert asking.pen.ask("POST", "/agents/bob/permission?ask=12345678", {}, token=token)[0] == 403
    assert asking.pen.cli("approve", "1", BULLPEN_TOKEN=token).code == 6
    assert "approval" not in asking.pen.cli("list", BULLPEN_TOKEN=token).out
    assert hook.process.poll() is None


# ── for good ──

ROLE = """\
# What amy is.
name: sleeper
agent_type: command
command: [/bin/sleep, "1000000"]  # for long

permissions:
    # Looking.
    allow:
    - Read
    - "Bash(ls:*)"   # harmless
    # Secrets.
    deny: [Read(./.env)]

instructions: |
  One.

  Two: three.
"""


def test_q4_always_is_kept_for_the_next_start(asking: Asking) -> None:
    session = asking.pen.session("amy")
    (session / "settings.json").write_text('{"permissions": {"allow": ["Read"]}, "hooks": {}}')
    for command in ("make all", "git push origin main"):
        hook = asking.ask(command)
        number = asking.inbox()[0]["id"]
        ran = asking.pen.cli("approve", str(number), "--always")
        assert ran.out == f"amy goes on.\nallowed to it from now on: Bash({command})\n"
        (change,) = hook.decision()["updatedPermissions"]
        assert change["rules"] == [{"toolName": "Bash", "ruleContent": command}]
    rules = ["Bash(make all)", "Bash(git push origin main)"]
    assert json.loads((session / "rules.json").read_text()) == {"allow": rules}
    settings = json.loads((session / "settings.json").read_text())
    assert settings == {"permissions": {"allow": ["Read", *rules]}, "hooks": {}}


def test_q4_what_no_rule_can_mean_is_not_allowed_for_good(asking: Asking) -> None:
    hook = asking.ask("rm -rf *")
    ran = asking.pen.cli("approve", "1", "--always")
    assert ran.code == 7
    assert "#1 cannot be allowed for good: no rule can mean exactly this command" in ran.err
    assert hook.process.poll() is None
    assert len(asking.inbox()) == 1
    assert asking.pen.ask("POST", "/approvals/1", {"decision": "deny", "always": True})[0] == 400
    secret = asking.ask("curl -H 'Authorization: Bearer abcdefgh12345678' example.com")
    assert "looks like a credential" in asking.pen.cli("approve", "2", "--always").err
    assert secret.process.poll() is None


def test_q4_a_rule_that_allows_more_says_so_before_it_is_made(asking: Asking) -> None:
    hook = asking.ask("", tool="WebFetch", url="https://docs.example/a")
    note = "every address of docs.example"
    assert f"--always would allow more: {note} (WebFetch(domain:docs.example))" in (
        asking.pen.cli("approvals").out
    )
    assert asking.inbox()[0]["rule"]["wider"] == note
    ran = asking.pen.cli("approve", "1", "--always")
    assert (ran.code, f"--always would allow more than this: {note}" in ran.err) == (5, True)
    assert hook.process.poll() is None
    ran = asking.pen.cli("approve", "1", "--always", "--yes")
    assert ran.out.endswith(f": WebFetch(domain:docs.example)\nthat is {note}\n")


def test_q4_a_directory_is_more_than_a_file(asking: Asking, tmp_path: Path) -> None:
    asking.ask("", tool="Read", file_path=str(tmp_path))
    assert "all that is in it" in asking.pen.cli("approve", "1", "--always").err


def test_q4_a_rule_for_the_role_leaves_the_rest_of_its_file(pen: Pen) -> None:
    path = pen.root / "roles" / "sleeper.yaml"
    path.write_text(ROLE)
    pen.start()
    pen.run(role="sleeper", name="amy", words=[])
    asking = Asking(pen)
    hook = asking.ask("make all")
    ran = pen.cli("approve", "1", "--role")
    assert ran.out.endswith("allowed to it and its role from now on: Bash(make all)\n")
    assert hook.decision()["behavior"] == "allow"
    kept = ROLE.splitlines()
    assert [line for line in path.read_text().splitlines() if line not in kept] == [
        "    - Bash(make all)"
    ]
    assert pen.cli("role", "check").code == 0
    # A role that is broken by now is not touched, and nothing is allowed.
    path.write_text(broken := ROLE + "modle: x\n")
    hook = asking.ask("make none")
    assert pen.cli("approve", "2", "--role").code == 2
    assert path.read_text() == broken
    assert len(asking.inbox()) == 1
    hook.kill()


def test_q4_without_a_role_there_is_no_file_to_change(asking: Asking) -> None:
    asking.ask()
    assert "has no role" in asking.pen.cli("approve", "1", "--role").err
    assert len(asking.inbox()) == 1


@pytest.mark.parametrize("path", sorted((STARTER / "roles").glob("*.yaml")), ids=lambda p: p.stem)
def test_q4_a_rule_is_one_more_line_in_every_starter_role(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text())
    text = text_with_rule(RoleFile(path.stem, copy), "Bash(git push)")
    before = path.read_text().splitlines()
    added = [line for line in text.splitlines() if line not in before]
    assert [line.strip() for line in added][-1] == "- Bash(git push)"
    assert len(added) <= 3
    assert [line for line in text.splitlines() if line not in added] == before


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("", "\npermissions:\n  allow:\n    - RULE\n"),
        (
            "permissions:\n    deny: [Read]  # no\n",
            "permissions:\n    allow:\n      - RULE\n    deny: [Read]  # no\n",
        ),
        (
            "permissions:\n  allow: [Read]  # yes\nmodel: x\n",
            "permissions:\n  allow: [Read, RULE] # yes\nmodel: x\n",
        ),
        ("permissions: {deny: [Read]}\n", "permissions: {deny: [Read], allow: [RULE]}\n"),
        ("permissions:\n  allow: []\n", "permissions:\n  allow:\n    - RULE\n"),
        ("permissions:\n  allow:\n  - RULE\n", "permissions:\n  allow:\n  - RULE\n"),
    ],
)
def test_q4_a_rule_fits_into_any_role(written: str, becomes: str, tmp_path: Path) -> None:
    path, rule = tmp_path / "a.yaml", "Bash(make)"
    path.write_text(f"# A.\nname: a\n{written.replace('RULE', rule)}")
    text = text_with_rule(RoleFile("a", path), rule)
    assert text == f"# A.\nname: a\n{becomes.replace('RULE', rule)}"


@pytest.mark.parametrize("rule", ["Bash(echo 'a: b' #c)", 'Bash(make "x", [y])', "Bash(- x: y)"])
def test_q4_a_rule_with_signs_of_yaml_stays_one(rule: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\npermissions:\n  allow:\n    - Read\n")
    path.write_text(text_with_rule(RoleFile("a", path), rule))
    assert load_role(RoleFile("a", path)).permissions.allow == ("Read", rule)
