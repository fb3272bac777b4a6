"""Tools of everybody: agents write to each other, see who there is, and look at children's work."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.tree.support import Grove, ToolError, made_grove
from tests.worktrees.repos import commit, git

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        made.run("lead")
        yield made


def test_m5_agents_write_to_each_other_and_each_reads_its_own(grove: Grove) -> None:
    amy, bob = grove.spawn("lead", "amy"), grove.spawn("lead", "bob")
    first = grove.call(amy, "send_message", to=bob, text="use port 8080")
    second = grove.call(amy, "send_message", to=bob, text="or 8081", priority="urgent")
    up = grove.call(amy, "send_message", to="parent", text="half way")
    assert (first["to"], up["to"]) == (bob, "lead")
    read = grove.call(bob, "read_messages")
    assert read.index("use port 8080") < read.index("or 8081")
    assert f"[message from {amy} · {first['id']}]" in read
    assert "half way" not in read
    assert "half way" in grove.call("lead", "read_messages")
    assert grove.call(amy, "read_messages") == "no new messages"
    stored = grove.pen.client().get("agents", bob, "messages")["messages"]
    by_id = {each["id"]: each for each in stored}
    assert by_id[second["id"]]["priority"] == "urgent"
    assert all(each["read"] for each in by_id.values())


def test_m5_a_message_that_is_sent_again_is_the_same_one(grove: Grove) -> None:
    amy = grove.spawn("lead", "amy")
    sent = [
        grove.call("lead", "send_message", request="a" * 32, to=amy, text="once") for _ in range(2)
    ]
    assert sent[0]["id"] == sent[1]["id"]
    assert grove.call(amy, "read_messages").count("once") == 1


@pytest.mark.parametrize(
    ("to", "text", "why"),
    [
        ("nobody", "x", r"no agent called nobody · .* · list_agents shows who there is$"),
        ("lead", "", "1 to"),
        ("lead", "\0", "NUL"),
    ],
)
@pytest.mark.few(1)
def test_m5_what_cannot_be_sent_is_refused_with_the_reason(
    grove: Grove, to: str, text: str, why: str
) -> None:
    amy = grove.spawn("lead", "amy")
    with pytest.raises(ToolError, match=why):
        grove.call(amy, "send_message", to=to, text=text)


def test_m5_who_there_is_and_what_they_are_to_the_caller(grove: Grove) -> None:
    amy, bob = grove.spawn("lead", "amy"), grove.spawn("lead", "bob")
    text = grove.call(amy, "list_agents")
    rows = {row["name"]: row for row in map(json.loads, text.splitlines())}
    relations = {name: row["relation"] for name, row in rows.items()}
    assert relations == {"lead": "your parent", amy: "you", bob: "peer"}
    status = grove.call("lead", "agent_status", name=amy)
    assert (status["relation"], status["parent"]) == ("your child", "lead")
    assert Path(status["path"]).name == amy


def test_m5_a_parent_sees_what_is_committed_and_what_is_not(grove: Grove) -> None:
    amy = grove.spawn("lead", "amy")
    tree = Path(grove.call("lead", "agent_status", name=amy)["path"])
    commit(tree, "made.txt", "made by amy\n")
    (tree / "half.txt").write_text("not yet\n")
    shown = grove.call("lead", "agent_diff", name=amy)
    assert "1 commits on" in shown
    assert git(tree, "log", "-1", "--format=%s").strip() in shown
    assert "+made by amy" in shown
    committed, _, rest = shown.partition("not committed:")
    assert "half.txt" not in committed
    assert "half.txt" in rest
