"""Hints as an agent reads them."""

import pytest

from bullpen.hub.mcp.hints import hint_for_agent


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("", ""),
        ("bullpen list", "list_agents shows who there is"),
        (
            "bullpen role list · bullpen role init x",
            "list_agents shows who has which role · a person can run: bullpen role init x",
        ),
        (
            'bullpen send amy "…" · or bullpen agent start',
            "send_message writes to amy · or a person can run: bullpen agent start",
        ),
        (
            "bullpen attach amy · or another name",
            "agent_status says what amy is doing · or another name",
        ),
        ("bullpen explain amy says what", "agent_status says what amy is doing"),
        (
            "choose another name, or bullpen worktree remove x",
            "choose another name, or a person can run: bullpen worktree remove x",
        ),
        ("commit them there, and land again", "commit them there, and call merge_child again"),
        (
            "land it with --strategy merge or squash",
            "call merge_child with strategy merge or squash",
        ),
        ("git commit --allow-empty -m 'Start'", "git commit --allow-empty -m 'Start'"),
        ("ask bullpen's owner", "ask bullpen's owner"),
    ],
)
def test_m5_a_hint_names_the_tool_or_says_that_a_person_can(hint: str, words: str) -> None:
    assert hint_for_agent(hint) == words
