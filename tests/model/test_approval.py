"""What a request becomes: words for a person, a rule that is never broader, an end."""

import json
from typing import Any

import pytest

from bullpen.model.approval import (
    ToolRequest,
    decided_elsewhere,
    describe,
    digest,
    parse_request,
    rule_for,
)
from bullpen.model.role import Permissions
from bullpen.model.state import Blocked, Draining, Exited, Idle, View, Working


def bash(command: Any, **more: Any) -> ToolRequest:
    return ToolRequest(tool="Bash", input={"command": command, **more})


def tool(name: str, **given: Any) -> ToolRequest:
    return ToolRequest(tool=name, input=given)


# ── requests ──


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{}", b"{", b"\xff", b'{"tool_name": 1}', b'{"tool_name": ""}'),
        b'{"tool_name": "Bash", "tool_input": "ls"}',
        b'{"tool_name": "Bash", "hook_event_name": "Stop"}',
        b'{"tool_name":' * 100_000,
        b'{"tool_name": "Bash", "tool_input": {"timeout": NaN}}',
    ],
)
def test_s2_what_is_no_request_is_none(body: bytes) -> None:
    assert parse_request(body) is None


def test_s2_a_request_has_a_tool_and_its_input() -> None:
    fields = {"hook_event_name": "PermissionRequest", "tool_name": "Bash\ud800"}
    found = parse_request(json.dumps({**fields, "tool_input": {"command": "ls"}}).encode())
    assert found is not None
    assert (found.tool, found.input) == ("Bash⟨U+D800⟩", {"command": "ls"})


def test_q4_the_beginning_of_a_tools_name_is_not_its_name() -> None:
    body = {"tool_name": "mcp__notes__read" + "_" * 300 + "and_delete", "tool_input": {}}
    assert parse_request(json.dumps(body).encode()) is None


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (bash("make all"), "make all"),
        (bash("make", description="x", timeout=5), "make\n⟨description⟩ x\n⟨timeout⟩ 5"),
        (bash("make", run_in_background=True), "make\n⟨run_in_background⟩ true"),
        (bash(["ls"]), '["ls"]'),
        (tool("Write", content="a\nb", file_path="/w/a.py"), "/w/a.py\n⟨content⟩ a\nb"),
        (
            tool("Edit", file_path="/w/a", old_string="a", new_string="b"),
            "/w/a\n⟨old_string⟩ a\n⟨new_string⟩ b",
        ),
        (tool("mcp__x__y", to="bob", text="ä"), "⟨to⟩ bob\n⟨text⟩ ä"),
        (tool("mcp__x__y"), "{}"),
        (tool("mcp__x__y", **{"U+0041": 1}), '{"U+0041": 1}'),
        (bash("echo ghp_" + "Ab1" * 12), "echo ghp_" + "Ab1" * 12),
    ],
)
def test_q4_a_person_reads_all_that_it_wants(request_: ToolRequest, words: str) -> None:
    assert describe(request_) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (bash("make", description="x"), bash("make\n⟨description⟩ x")),
        (bash("a\\nb"), bash("a\nb")),
        (bash("ls\u202e"), bash("ls⟨U+202E⟩")),
        (bash("ls\t"), bash("ls⇥")),
        (bash("ls" + " " * 99), bash("ls⟨99 spaces⟩")),
        (tool("T", **{"a\n⟨b⟩ c": "d"}), tool("T", a="", b="c")),
    ],
)
def test_q4_two_requests_do_not_look_the_same(one: ToolRequest, other: ToolRequest) -> None:
    assert describe(one) != describe(other)
    assert digest(one) != digest(other)


def test_q4_without_marks_one_request_looks_like_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack counts only if it works without the defence."""
    monkeypatch.setattr("bullpen.text.literal", lambda text: text)
    assert describe(bash("make", description="x")) == describe(bash("make\n⟨description⟩ x"))
    assert describe(bash("ls\u202e")) == "ls\u202e"


@pytest.mark.parametrize(
    ("request_", "other", "wider"),
    [
        (bash("git push"), bash("git push -f"), ""),
        (tool("Read", file_path="/w/a"), tool("Read", file_path="/w/b"), ""),
        (
            tool("Write", file_path="/w/a", content="x"),
            tool("Write", file_path="/w/a", content="evil"),
            "every change of /w/a",
        ),
        (
            tool("WebFetch", url="https://a.example/b"),
            tool("WebFetch", url="https://a.example/evil"),
            "every address of a.example",
        ),
        (
            tool("mcp__db__query", sql="select 1"),
            tool("mcp__db__query", sql="drop table x"),
            "every use of mcp__db__query, whatever it is given",
        ),
        (
            tool("WebSearch", query="x"),
            tool("WebSearch", query="evil"),
            "every use of WebSearch, whatever it is given",
        ),
    ],
)
def test_q4_what_a_rule_allows_beside_this_is_said(
    request_: ToolRequest, other: ToolRequest, wider: str
) -> None:
    """The attack, if it were not said: the rule for the one allows the other, too."""
    rule = rule_for(request_)
    assert rule.wider == wider
    assert (rule.rule == rule_for(other).rule) == bool(wider)


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
def test_q4_a_rule_means_what_was_asked(request_: ToolRequest, rule: str) -> None:
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
def test_q4_where_no_rule_means_exactly_that_there_is_none(request_: ToolRequest) -> None:
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
        # A task agent has no terminal. At a restart of the hub its run is taken up again.
        (view(stage=Idle(), told=Working(), told_at=11.0), True, ""),
        (view(stage=Idle(), told=Working(), told_at=11.0), False, "answered in the terminal"),
        (view(stage=Draining(), told=Idle(), told_at=11.0), False, "the turn ended"),
        (view(stage=Idle(), told_at=9.0), True, ""),
        (view(stage=Idle(), told_at=9.0), False, "the turn ended"),
        (view(state=Exited(code=0)), True, "the agent ended"),
    ],
)
def test_q3_it_ends_when_something_newer_shows_it(seen: View, waited_for: bool, why: str) -> None:
    assert decided_elsewhere(ASKED, seen, waited_for) == why
