"""What a request becomes: words for a person, a rule that is never broader, an end."""

import json
from typing import Any

import pytest

from bullpen.model.approval import (
    Answered,
    Closed,
    Request,
    Waiting,
    describe,
    hook_output,
    parse_request,
    rule_for,
    settled_elsewhere,
)
from bullpen.model.role import Permissions
from bullpen.model.state import Blocked, Exited, Idle, View, Working


def bash(command: Any, **more: Any) -> Request:
    return Request(tool="Bash", input={"command": command, **more})


def tool(name: str, **given: Any) -> Request:
    return Request(tool=name, input=given)


# ── requests ──


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{}", b"{", b"\xff", b'{"tool_name": 1}', b'{"tool_name": ""}'),
        b'{"tool_name": "Bash", "tool_input": "ls"}',
        b'{"tool_name": "Bash", "hook_event_name": "Stop"}',
        b'{"tool_name":' * 100_000,
    ],
)
def test_s2_what_is_no_request_is_none(body: bytes) -> None:
    assert parse_request(body) is None


def test_s2_a_request_has_a_tool_and_its_input() -> None:
    fields = {"hook_event_name": "PermissionRequest", "tool_name": "Bash\ud800" + "x" * 200}
    found = parse_request(json.dumps({**fields, "tool_input": {"command": "ls"}}).encode())
    assert found is not None
    assert (found.tool, found.input) == ("Bash?" + "x" * 75, {"command": "ls"})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (bash("make all", description="x", timeout=5), "make all"),
        (bash("make", run_in_background=True), "make [run_in_background]"),
        (bash(["ls"]), '{"command": ["ls"]}'),
        (tool("Write", file_path="/w/a.py", content="secret"), "/w/a.py (6 characters)"),
        (tool("Edit", file_path="/w/a.py", old_string="a", new_string="b"), "/w/a.py"),
        (tool("WebFetch", url="https://a.example", prompt="p"), "https://a.example"),
        (tool("mcp__x__y", to="bob", text="ä"), '{"to": "bob", "text": "ä"}'),
    ],
)
def test_q4_a_person_reads_what_it_wants(request_: Request, words: str) -> None:
    assert describe(request_) == words


# ── rules ──


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (bash("git push"), "Bash(git push)"),
        (bash("touch a && touch 'b c'; make (x)"), "Bash(touch a && touch 'b c'; make (x))"),
        (tool("Write", file_path="/w/a b.py", content="x"), "Edit(//w/a b.py)"),
        (tool("Edit", file_path="/w/a.py"), "Edit(//w/a.py)"),
        (tool("NotebookEdit", notebook_path="/w/a.ipynb"), "Edit(//w/a.ipynb)"),
        (tool("Read", file_path="/etc/hostname"), "Read(//etc/hostname)"),
        (
            tool("WebFetch", url="https://docs.example.com:8/a?b"),
            "WebFetch(domain:docs.example.com)",
        ),
        (tool("mcp__bullpen__send", to="x"), "mcp__bullpen__send"),
        (tool("WebSearch", query="x"), "WebSearch"),
    ],
)
def test_q4_a_rule_means_what_was_asked(request_: Request, rule: str) -> None:
    found = rule_for(request_)
    assert (found.rule, found.why_not) == (rule, "")
    Permissions(allow=(rule,))  # a rule that a role may have


@pytest.mark.parametrize(
    "request_",
    [
        *(bash(text) for text in ("rm *", "ls [a-z]*", "a\\*b", "git push:*", "ls\nrm x", " ls")),
        *(bash(text) for text in ("echo $HOME", "echo `id`", "ls > a", "cat < a", "ls \u202e", "")),
        *(bash(value) for value in (None, 1, ["ls"], "x" * 1000)),
        *(
            tool("Read", file_path=path)
            for path in ("a.py", "~/a", "/w/../etc/passwd", "/w/*", "/")
        ),
        *(tool("Edit", file_path=path) for path in ("/w/[a]", "/w/!a", "/w/a ", "/w/a\n", "/w//a")),
        *(tool("Read", file_path=path) for path in (None, "", "/w/?", "/w/{a,b}", "//w/a")),
        *(tool("WebFetch", url=url) for url in (None, "file:///x", "https://a@b.c", "https://*.a")),
        *(tool(name) for name in ("mcp__a", "mcp__a__*", "mcp__", "Bash(x)", "To ol", "*", "É")),
    ],
    ids=repr,
)
def test_q4_where_no_rule_means_exactly_that_there_is_none(request_: Request) -> None:
    found = rule_for(request_)
    assert found.rule == ""
    assert found.why_not


# ── ends ──


def view(**fields: Any) -> View:
    state = fields.pop("state", Blocked(on="permission"))
    return View(run="r", state=state, since=0, decided_by="x", **fields)


ASKED = 10.0


@pytest.mark.parametrize(
    ("seen", "waited_for", "why"),
    [
        # The file says busy until a moment later, and in a headless run for ever.
        (view(filed=Working(), filed_at=9.0), True, ""),
        (view(filed=Working(), filed_at=9.0), False, ""),
        (view(filed=Blocked(on="permission"), filed_at=11.0), True, ""),
        (view(filed=Working(), filed_at=11.0), True, "answered in the terminal"),
        (view(filed=Idle(), filed_at=11.0), True, "the turn ended"),
        # Another tool of a headless run goes on; the hook still waits, or not any more.
        (view(filed=Working(), filed_at=9.0, told=Working(), told_at=11.0), True, ""),
        (
            view(filed=Working(), filed_at=9.0, told=Working(), told_at=11.0),
            False,
            "answered in the terminal",
        ),
        # Without a state file hooks are all there is.
        (view(told=Blocked(on="permission"), told_at=10.0), True, ""),
        (view(told=Working(), told_at=9.0), True, ""),
        (view(told=Working(tool="Bash"), told_at=11.0), True, "answered in the terminal"),
        (view(told=Working(doing="review"), told_at=11.0), True, ""),
        (view(told=Idle(), told_at=11.0), True, "the turn ended"),
        (view(state=Exited(code=0)), True, "the agent ended"),
    ],
)
def test_q3_it_ends_when_something_newer_shows_it(seen: View, waited_for: bool, why: str) -> None:
    assert settled_elsewhere(ASKED, seen, waited_for) == why


def test_q5_the_output_is_the_engines_schema() -> None:
    def decided(**fields: Any) -> Any:
        text = hook_output(Answered(by="owner", at=1, **fields))
        output = json.loads(text)
        assert list(output) == ["hookSpecificOutput"]
        assert output["hookSpecificOutput"].pop("hookEventName") == "PermissionRequest"
        assert list(output["hookSpecificOutput"]) == ["decision"]
        return output["hookSpecificOutput"]["decision"]

    assert decided(decision="allow", reason="not said") == {"behavior": "allow"}
    assert decided(decision="deny", reason="no!") == {"behavior": "deny", "message": "no!"}
    assert decided(decision="deny")["message"]
    rule = {"toolName": "Bash", "ruleContent": "make (x)"}
    change = {"type": "addRules", "behavior": "allow", "destination": "session", "rules": [rule]}
    assert decided(decision="allow", always="Bash(make (x))") == {
        "behavior": "allow",
        "updatedPermissions": [change],
    }
    assert hook_output(Waiting()) == hook_output(Closed(why="x", at=1)) == ""
