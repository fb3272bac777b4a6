"""The tools as MCP Inspector's command line sees them: an official client that knows nothing of us.
`scripts/inspector` installs it."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.cli import ROOT, node_version
from tests.hub.mcp.tools import TOOLS, line_of
from tests.hub.tree.support import PROGRAM, Grove, made_grove

pytestmark = pytest.mark.storm

PLACE = ROOT / ".engines" / "inspector"
# It is started where it lies: it looks for its own package.json from its working directory.
BUILD = PLACE / "node_modules" / "@modelcontextprotocol" / "inspector-cli" / "build"
LOCK = ROOT / "tests" / "engines" / "inspector" / "package-lock.json"


class Inspector:
    """Its command line, told of the agents' relays by a file as a person would."""

    def __init__(self, grove: Grove) -> None:
        self.grove = grove

    def ask(self, agent: str, *words: str) -> dict[str, Any]:
        command, *args = line_of(self.grove, agent)
        config = self.grove.pen.root.parent / "inspector.json"
        config.write_text(json.dumps({"mcpServers": {agent: {"command": command, "args": args}}}))
        argv = ["node", "cli.js", "--cli", "--config", config, "--server", agent, *words]
        done = subprocess.run(argv, cwd=BUILD, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def call(self, agent: str, tool: str, **arguments: Any) -> str:
        given = []
        for key, value in arguments.items():
            given += [
                "--tool-arg",
                f"{key}={value if isinstance(value, str) else json.dumps(value)}",
            ]
        answer = self.ask(agent, "--method", "tools/call", "--tool-name", tool, *given)
        assert not answer.get("isError"), answer
        return str(answer["content"][0]["text"])


@pytest.fixture
def inspector() -> Iterator[Inspector]:
    if not BUILD.exists() or (PLACE / LOCK.name).read_bytes() != LOCK.read_bytes():
        pytest.skip("MCP Inspector is not installed: run scripts/inspector")
    if (node := node_version()) < 20:
        pytest.skip(f"MCP Inspector needs Node 20 or newer; here is {node or 'none'}")
    with made_grove() as grove:
        yield Inspector(grove)


def test_m0_inspector_lists_and_calls_every_tool(inspector: Inspector) -> None:
    grove = inspector.grove
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], may_grant="coder")
    grove.pen.role("boss", **PROGRAM, worktree={"enabled": True}, may_grant="coder")
    grove.run("lead", role="boss")
    grove.run("giver", role="giver")
    called = set()

    def call(agent: str, tool: str, **arguments: Any) -> str:
        called.add(tool)
        return inspector.call(agent, tool, **arguments)

    listed = inspector.ask("lead", "--method", "tools/list")["tools"]
    assert {tool["name"] for tool in listed} == TOOLS
    child = json.loads(call("lead", "spawn_subtree", task="x", branch_name="a", role="coder"))[
        "name"
    ]
    assert "lead.w.w" in call("lead", "spawn_workers", workers=[{"name": "w", "task": "x"}])
    assert child in call("lead", "list_agents")
    assert "your child" in call("lead", "agent_status", name=child)
    assert "0 commits" in call("lead", "agent_diff", name=child)
    assert child in call("lead", "send_message", to=child, text="hello")
    assert call("lead", "read_messages") == "no new messages"
    assert "ack" in call(child, "notify_parent", status="success", message="done")
    event = json.loads(call("lead", "wait_for_event", timeout_seconds=60))
    assert (event["from"], event["kind"]) == (child, "child_finished")
    grove.pen.stop(child)
    assert '"landed"' in call("lead", "merge_child", name=child)
    task = json.loads(call("giver", "delegate_task", prompt="x", role="coder"))["task_id"]
    assert "queued" in call("giver", "task_status", task_id=task)
    assert "cancelled" in call("giver", "cancel_task", task_id=task)
    assert "has not begun" in call("giver", "task_diff", task_id=task)
    assert called == TOOLS
