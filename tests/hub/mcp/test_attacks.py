"""What an agent tries that is not its own to do: each is refused with words, and noted."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bullpen.hot import wire
from tests.hub.http.agents import token_of
from tests.hub.tree.support import PROGRAM, Grove, ToolError, made_grove
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


def refused(grove: Grove, agent: str) -> list[str]:
    return [event["why"] for event in grove.pen.events(agent, "child.refused")]


def noted_paths(grove: Grove) -> list[str]:
    return [line["path"] for line in grove.pen.logged("a request was refused")]


def test_i2_nobody_acts_as_another_whatever_it_says(grove: Grove) -> None:
    grove.run("lead")
    amy, bob = grove.spawn("lead", "amy"), grove.spawn("lead", "bob")
    params = {"name": "list_agents", "arguments": {}}
    # By its own socket, at the route of its parent, a sibling, and with a stolen token.
    for victim in ("lead", bob):
        status, answer = grove.ask(amy, "tools/call", params, path=victim)
        assert status == 403, answer
    stolen = token_of(grove.pen.home, "lead")
    socket = str(grove.pen.session(amy) / "api" / "hub.sock")
    headers = {"authorization": f"Bearer {stolen}", "content-type": "application/json"}
    answer = wire.request(socket, "POST", "/agents/lead/mcp", headers, b"{}", 60.0)
    assert answer.status == 403
    # The owner has no tools: they act as an agent.
    status, _ = grove.pen.ask("POST", f"/agents/{amy}/mcp", {"jsonrpc": "2.0"})
    assert status == 403
    wait_until(lambda: len([path for path in noted_paths(grove) if path.endswith("/mcp")]) >= 3)
    # An argument that names somebody else is no argument of any tool.
    for other in ("from", "sender", "name", "to"):
        with pytest.raises(ToolError, match=f"notify_parent has no argument {other}"):
            grove.call(amy, "notify_parent", status="success", message="x", **{other: "root"})
    grove.call(amy, "notify_parent", status="success", message="x")
    assert grove.kinds("root") == []
    assert grove.kinds("lead") == [(amy, "child_finished")]


def test_i2_an_agent_neither_stops_a_sibling_nor_reads_its_mail_or_queue(grove: Grove) -> None:
    grove.run("lead")
    amy, bob = grove.spawn("lead", "amy"), grove.spawn("lead", "bob")
    token = token_of(grove.pen.home, amy)
    for method, target, body in (
        ("DELETE", f"/agents/{bob}", None),
        ("DELETE", f"/tree/{bob}", None),
        ("DELETE", "/tree/lead", None),
        ("GET", f"/agents/{bob}/messages", None),
        ("GET", f"/agents/{bob}/queue", None),
        ("GET", "/agents/lead/queue", None),
        ("GET", "/agents/root/queue", None),
        ("GET", f"/wait?names={bob}", None),
        ("POST", f"/agents/{bob}/messages", {"text": "x", "sender": "lead"}),
    ):
        status, answer = grove.pen.ask(method, target, body, token=token)
        assert status == 403, (method, target, answer)
        path = target.partition("?")[0]
        wait_until(lambda path=path: path in noted_paths(grove))
    with pytest.raises(ToolError, match="no agent of yours"):
        grove.call(amy, "agent_diff", name=bob)
    # What it may: its own, and everybody's state.
    assert grove.pen.ask("GET", f"/agents/{amy}/queue", token=token)[0] == 200
    assert grove.call(amy, "agent_status", name=bob)["relation"] == "peer"
    assert "report" not in grove.call(amy, "agent_status", name=bob)


def test_m1_spawns_past_depth_and_number_are_refused_and_noted(grove: Grove) -> None:
    config = grove.pen.root / "config.yaml"
    config.write_text(config.read_text() + "max_children: 2\n")
    grove.run("lead")
    one = grove.spawn("lead", "one")
    two = grove.spawn(one, "two")
    for tool, arguments in (
        ("spawn_subtree", {"task": "x", "branch_name": "three", "role": "coder"}),
        ("spawn_workers", {"workers": [{"name": "w", "task": "x"}]}),
    ):
        with pytest.raises(ToolError, match="2 deep"):
            grove.call(two, tool, **arguments)
    workers = [{"name": name, "task": "x"} for name in ("a", "b")]
    with pytest.raises(ToolError, match="max_children"):
        grove.call("lead", "spawn_workers", workers=workers)
    assert len(refused(grove, two)) == 2
    assert len(refused(grove, "lead")) == 1
    assert grove.names() == {"lead", one, two}
    assert grove.worktrees() == {one, two}


def test_m1_a_role_may_have_less_children_than_the_home_allows(grove: Grove) -> None:
    config = grove.pen.root / "config.yaml"
    config.write_text(config.read_text() + "max_children: 2\n")
    workers = [{"name": name, "task": "x"} for name in ("a", "b", "c")]
    for most, allowed in ((1, 1), (0, 0), (5, 2)):
        grove.pen.role("few", **PROGRAM, max_children=most)
        grove.run(f"lead{most}", role="few")
        for count in range(allowed + 1, 4):
            with pytest.raises(ToolError, match=rf"at most {allowed} are allowed \(max_children\)"):
                grove.call(f"lead{most}", "spawn_workers", workers=workers[:count])
        if allowed:
            grove.call(f"lead{most}", "spawn_workers", workers=workers[:allowed])


def test_m8_a_budget_is_divided_and_never_exceeded(grove: Grove) -> None:
    grove.pen.role("rich", **PROGRAM, may_grant="coder", budget={"usd": 9.0})
    grove.run("lead", role="rich")
    first = grove.spawn("lead", "first")
    assert grove.pen.agents()[first]["budget"]["usd"] == 4.5
    second = grove.spawn("lead", "second")
    assert grove.pen.agents()[second]["budget"]["usd"] == 2.25
    below = grove.spawn(first, "below")
    assert grove.pen.agents()[below]["budget"]["usd"] == 2.25
    grove.pen.cli("stop", first, "--tree")  # what it did not spend is given back
    third = grove.spawn("lead", "third")
    assert grove.pen.agents()[third]["budget"]["usd"] == pytest.approx((9.0 - 2.25) / 2)


@pytest.mark.storm
def test_m8_a_child_that_is_removed_takes_nothing_of_what_it_spent_with_it(grove: Grove) -> None:
    grove.pen.role("rich", **PROGRAM, may_grant="coder", budget={"tokens": 1000})
    grove.run("lead", role="rich")
    for left in (1000, 800, 600):  # the same name again and again
        child = grove.spawn("lead", "child")
        assert grove.pen.agents()[child]["budget"]["tokens"] == left // 2
        grove.spend(child, 200)
        assert grove.pen.cli("rm", child).code == 0
        kill(grove.pen.pid)
        grove.pen.start()
    child = grove.spawn("lead", "child")
    grove.spend(child, 400)
    wait_until(lambda: grove.pen.events(child, "budget.reached"))
    assert grove.pen.cli("rm", child).code == 0
    with pytest.raises(ToolError, match="nothing of your budget is left"):
        grove.spawn("lead", "child")
    assert len(refused(grove, "lead")) == 1


def test_m8_a_grandchild_gets_no_more_than_its_parent_may_grant(grove: Grove) -> None:
    fields = {"agent_type": "claude", "permissions": {"allow": ["Bash", "WebFetch"]}}
    grove.pen.role("open", **fields, permission_mode="bypassPermissions")
    grove.pen.role("tight", **PROGRAM, sandbox={"enabled": False, "allow_network": True})
    grove.run("lead")
    child = grove.spawn("lead", "child")
    # Its ceiling is the coder's: no rules, and asked for everything.
    grandchild = grove.call(
        child, "spawn_workers", workers=[{"name": "w", "task": "x", "role": "tight"}]
    )["started"][0]["name"]
    ceiling = grove.pen.agents()[grandchild]["ceiling"]
    assert (ceiling["allow"], ceiling["mode"]) == ([], 1)
    # Also after a restart, by which roles are read again.
    grove.pen.client().post("agents", grandchild, "restart")
    assert grove.pen.agents()[grandchild]["ceiling"] == ceiling


def test_m8_a_child_has_nothing_of_its_role_that_its_parent_may_not_grant(grove: Grove) -> None:
    (grove.repo / ".env").write_text("COPIED\n")
    (grove.repo / ".git" / "info" / "exclude").write_text(".env\n")
    show = ["sh", "-c", "echo $TOKEN; cat .env; echo ready; cat"]
    program = {**PROGRAM, "command": show}
    tree = {"enabled": True, "copy": [".env"]}
    grove.pen.role("loot", **program, env={"TOKEN": "SECRET"}, worktree=tree)
    grove.pen.role("giver", **PROGRAM, may_grant="loot")
    grove.pen.role("hooked", **PROGRAM, hooks={"Stop": [{"command": "true"}]})
    grove.run("lead")
    child = grove.spawn("lead", "child")
    answer = grove.call(child, "spawn_subtree", task="x", branch_name="loot", role="loot")
    assert answer["not_granted"] == ["env TOKEN", "worktree.copy .env"]
    grandchild = answer["name"]

    def shown(name: str) -> tuple[bool, bool]:
        wait_until(lambda: b"ready" in grove.pen.log(name))
        return b"SECRET" in grove.pen.log(name), b"COPIED" in grove.pen.log(name)

    assert shown(grandchild) == (False, False)
    grove.pen.client().post("agents", grandchild, "restart")  # by which roles are read again
    assert shown(grandchild)[0] is False
    with pytest.raises(ToolError, match=r"hooked has more than .* may grant: hooks Stop"):
        grove.call(child, "spawn_workers", workers=[{"name": "w", "task": "x", "role": "hooked"}])
    assert any("hooks Stop" in why for why in refused(grove, child))
    # Who may grant it does, and a person has no ceiling.
    grove.run("rich", role="giver")
    assert shown(
        grove.call("rich", "spawn_subtree", task="x", branch_name="l2", role="loot")["name"]
    ) == (True, True)


@pytest.mark.parametrize("deliver", ["lines", "lines-from-agents"])
def test_m1_an_agents_task_is_a_line_of_a_shell_only_if_the_role_says_so(
    grove: Grove, deliver: str
) -> None:
    grove.pen.role("shell", **{**PROGRAM, "command": ["sh"], "deliver": deliver})
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"])
    grove.run("lead", role="giver")
    grove.pen.cli("agent", "start", "taker", "--role", "shell")
    evil, told = grove.repo / "evil", grove.repo / "told"
    workers = [{"name": "w", "task": f"touch {evil}", "role": "shell"}]
    calls = (
        ("spawn_workers", {"workers": workers}),
        ("delegate_task", {"role": "shell", "prompt": f"touch {told}"}),
    )
    for tool, arguments in calls:
        if deliver == "lines":
            with pytest.raises(ToolError, match="a person alone"):
                grove.call("lead", tool, **arguments)
        else:
            grove.call("lead", tool, **arguments)
    if deliver == "lines":
        assert len(refused(grove, "lead")) == 2
        # A person's line is one.
        grove.run("mine", role="shell", prompt=f"touch {evil}")
    wait_until(evil.exists)


def test_m7_only_who_may_delegate_does_and_only_its_own_tasks_are_shown(grove: Grove) -> None:
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], may_grant="coder")
    grove.run("lead", role="giver")
    grove.run("other", role="giver")
    child = grove.spawn("lead", "child")
    with pytest.raises(ToolError, match="may not delegate"):
        grove.call(child, "delegate_task", prompt="x", role="coder")
    with pytest.raises(ToolError, match="either"):
        grove.call("lead", "delegate_task", prompt="x")
    task = grove.call("lead", "delegate_task", prompt="x", role="coder")["task_id"]
    assert grove.call("lead", "task_status", task_id=task)["state"] == "queued"
    for tool in ("task_status", "cancel_task"):
        with pytest.raises(ToolError, match="no task that you delegated"):
            grove.call("other", tool, task_id=task)
    assert grove.call("lead", "cancel_task", task_id=task)["state"] == "cancelled"


def test_m1_spawns_that_come_at_once_do_not_pass_the_limits_together(grove: Grove) -> None:
    config = grove.pen.root / "config.yaml"
    config.write_text(config.read_text() + "max_children: 2\n")
    grove.pen.role("rich", **PROGRAM, may_grant="coder", budget={"usd": 9.0})
    grove.run("lead", role="rich")

    def spawn(number: int) -> bool:
        workers = [{"name": f"w{number}-{each}", "task": "x"} for each in ("a", "b")]
        try:
            grove.call("lead", "spawn_workers", workers=workers)
        except ToolError as error:
            assert "max_children" in str(error)
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(spawn, range(6))) == [False] * 5 + [True]
    budgets = [agent["budget"]["usd"] for name, agent in grove.pen.agents().items() if "." in name]
    assert budgets == [3.0, 3.0]
