"""Whatever an agent writes: no command lets it drive a terminal, or look like something else."""

import json
import re
import sys

import pytest

from bullpen.cli.main import VERBS
from tests.hub.pen import Pen, change_hub
from tests.hub.permissions.asking import Asking
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BAD = "a\x1b]0;pwned\x07\x1b[2Jb\u202egnp.exe\u2066\u200bc\x9b31m\u2028"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
SHOWN = ("u202e", "U+202E")

# What each command that shows the words of agents is asked for; `TASK` is a task's id.
WALKED = {
    "list": [[], ["--json"]],
    "status": [[], ["amy"], ["amy", "--json"], ["--json"]],
    "explain": [["amy"], ["amy", "--json"]],
    "approvals": [[], ["--json"], ["1"], ["1", "--json"], ["2"], ["2", "--json"]],
    "inbox": [["amy"], ["amy", "--full"], ["amy", "--json"], []],
    "peek": [["amy"], ["amy", "--json"]],
    "logs": [["amy"]],
    "record": [["amy"]],
    "task": [["show", "TASK"], ["show", "TASK", "--json"], ["debug", "TASK"]],
    "tasks": [[], ["--json"]],
    "history": [[], ["show", "TASK", "--logs"], ["show", "TASK", "--json"]],
    "hub": [["logs"], ["status"]],
    "pod": [["list"]],
    "agent": [["list"]],
    "usage": [[], ["--json"]],
    "director": [["list"]],
    "fleet": [["status"], ["status", "--json"]],
    "tree": [[], ["--json"]],
    "components": [[], ["--json"]],
    "events": [[], ["--json"]],
    "deny": [["1", "--reason", BAD]],
    "answer": [["2", BAD, "--json"]],
}
# What an agent writes is not in what these print, or they are meant to pass it on as it is.
OTHERS = {
    *("init", "doctor", "auth", "trust", "version", "completion", "help", "role", "validate"),
    *(
        "run",
        "stop",
        "kill",
        "restart",
        "resume",
        "gc",
        "discover",
        "shutdown",
        "send",
        "send-keys",
    ),
    *("hook", "permission-request", "approve", "attach", "reset", "worktree"),
    # of the tree: tests/hub/tree; of diffs and landings: tests/worktrees/landing, tests/hub/landing
    *("wait", "mcp", "diff", "conflicts", "land", "finish"),
    *("schedule", "up", "down"),  # what the person wrote
    "web",  # the view, not what is in it: tests/web
    *("rm", "transcript"),  # of transcripts: tests/engines/test_transcript.py
}
PROGRAM = "import sys, time; print({bad!a}, flush=True); time.sleep(600)"
TASK = "import sys; print(sys.stdin.read() + {bad!a}); print({bad!a}, file=sys.stderr)"


def test_q4_every_command_is_walked_or_has_a_reason_not_to_be() -> None:
    assert set(VERBS) == set(WALKED) | OTHERS


def role(pen: Pen, name: str, program: str) -> None:
    command = [sys.executable, "-c", program.format(bad=BAD)]
    fields = {"name": name, "agent_type": "command", "command": command}
    text = json.dumps({**fields, "sandbox": {"enabled": False}})
    (pen.root / "roles" / f"{name}.yaml").write_text(text)


def test_q4_no_command_passes_what_an_agent_wrote_as_it_is(pen: Pen) -> None:
    pen.start()
    role(pen, "talker", PROGRAM)
    role(pen, "worker", TASK)
    (pen.root / "agents" / "wes.yaml").write_text("role: worker\n")
    pen.run(name="amy", role="talker")
    wait_until(lambda: "gnp.exe" in pen.cli("logs", "amy").out)
    asking = Asking(pen)
    try:
        asking.tell("PreToolUse", tool_name=BAD, tool_use_id="x")
        asking.ask(BAD, tool=BAD)
        asking.ask_question(BAD)
        pen.client().post("agents", "amy", "messages", body={"text": BAD, "sender": "bob"})
        pen.client().post("agents", "root", "messages", body={"text": BAD, "sender": "bob"})
        ran = pen.cli("task", "wes", BAD)
        assert ran.code == 0, ran.err
        task = pen.client().get("history")["items"][0]["task_id"]
        texts = {"task": ran.out + ran.err}
        for verb, calls in WALKED.items():
            for words in calls:
                ran = pen.cli(verb, *(task if word == "TASK" else word for word in words))
                assert ran.code == 0, (verb, words, ran.err)
                texts[" ".join([verb, *words])] = ran.out + ran.err
    finally:
        for hook in asking.hooks:
            hook.kill()
    passed = {command: UNSAFE.findall(text) for command, text in texts.items()}
    assert {command: found for command, found in passed.items() if found} == {}
    # The words are there, so that the walk proves something.
    for command in (
        "approvals",
        "approvals 1",
        "approvals 2",
        "inbox amy --full",
        "logs amy",
        "task",
    ):
        assert any(mark in texts[command] for mark in SHOWN), (command, texts[command])


def test_q4_without_escapes_commands_pass_it_on(pen: Pen) -> None:
    """An attack counts only if it works without the defence."""
    change_hub(
        pen,
        "import re; from bullpen import text; text._UNSAFE = text._UNSAFE_IN_LINES = "
        "text._ODD = re.compile('(?!)')",
    )
    role(pen, "talker", PROGRAM)
    pen.run(name="amy", role="talker")
    wait_until(lambda: "gnp.exe" in pen.cli("logs", "amy").out)
    pen.client().post("agents", "amy", "messages", body={"text": BAD, "sender": "bob"})
    asking = Asking(pen)
    try:
        asking.ask(BAD)
        for words in (["logs", "amy"], ["inbox", "amy", "--full"], ["approvals", "1"]):
            assert "\u202e" in pen.cli(*words).out, words
    finally:
        for hook in asking.hooks:
            hook.kill()
