"""The tools as official clients see them: the SDK's own, over the relay and over HTTP."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from mcp import ClientSession

from bullpen.hot import mcp_relay
from bullpen.hot.hook_line import mcp_line
from tests.hub.http.agents import token_of
from tests.hub.mcp.tools import PACKAGE, TOOLS, line_of, session_of
from tests.hub.tree.support import PROGRAM, Grove, made_grove

pytestmark = pytest.mark.slow


@pytest.fixture
def grove() -> Iterator[Grove]:
    with made_grove() as made:
        yield made


async def call(session: ClientSession, tool: str, **arguments: Any) -> str:
    answer = await session.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return str(answer.content[0].text)  # type: ignore[union-attr]


@pytest.mark.storm
def test_m0_the_sdks_client_lists_and_calls_every_tool_through_the_relay(grove: Grove) -> None:
    grove.pen.role("giver", **PROGRAM, capabilities=["delegate"], may_grant="coder")
    grove.run("lead", role="giver")

    async def story() -> None:
        async with session_of(grove, "lead") as lead:
            tools = {tool.name: tool for tool in (await lead.list_tools()).tools}
            assert tools.keys() == TOOLS
            assert all(len(tool.description or "") > 60 for tool in tools.values())
            spawned = json.loads(
                await call(lead, "spawn_subtree", task="x", branch_name="a", role="coder")
            )
            child = spawned["name"]
            workers = [{"name": "w", "task": "x"}]
            assert "lead.w.w" in await call(lead, "spawn_workers", workers=workers)
            assert child in await call(lead, "list_agents")
            assert "your child" in await call(lead, "agent_status", name=child)
            assert "0 commits" in await call(lead, "agent_diff", name=child)
            assert child in await call(lead, "send_message", to=child, text="hello")
            assert await call(lead, "read_messages") == "no new messages"
            task = json.loads(await call(lead, "delegate_task", prompt="x", role="coder"))
            assert "queued" in await call(lead, "task_status", task_id=task["task_id"])
            assert "cancelled" in await call(lead, "cancel_task", task_id=task["task_id"])
            async with session_of(grove, child) as below:
                assert "ack" in await call(below, "notify_parent", status="success", message="done")
            event = json.loads(await call(lead, "wait_for_event", timeout_seconds=60))
            assert (event["kind"], event["data"]["state"]) == ("task_finished", "cancelled")
            after = event["id"]
            event = json.loads(await call(lead, "wait_for_event", timeout_seconds=60, after=after))
            assert event["from"] == child
            refused = await lead.call_tool("merge_child", {"name": child})
            assert "no branch of its own" in refused.content[0].text
            wrong = await lead.call_tool("agent_status", {"name": "nobody"})
            assert wrong.is_error
            assert "no agent called nobody" in wrong.content[0].text

    asyncio.run(story())


def test_m0_the_http_endpoint_takes_the_agents_token(grove: Grove) -> None:
    grove.run("lead")
    port = json.loads((grove.pen.root / "hub.json").read_text())["port"]
    url = f"http://127.0.0.1:{port}/agents/lead/mcp"
    token = token_of(grove.pen.home, "lead")

    async def story() -> None:
        async with httpx.AsyncClient(timeout=60) as plain:
            assert (await plain.post(url, json={})).status_code == 401
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        headers = {"authorization": f"Bearer {token}", **accept}
        async with httpx.AsyncClient(timeout=60, headers=headers) as client:
            answer = (await client.post(url, json=body)).json()
        assert {tool["name"] for tool in answer["result"]["tools"]} == TOOLS

    asyncio.run(story())


@pytest.mark.storm
def test_m0_a_wait_outlives_hubs_that_are_killed_and_nothing_breaks(grove: Grove) -> None:
    grove.run("lead")
    child = grove.spawn("lead", "csv")

    async def story() -> None:
        async with session_of(grove, "lead") as lead:
            waiting = asyncio.create_task(call(lead, "wait_for_event", timeout_seconds=120))
            for _ in range(2):
                await asyncio.sleep(0)
                await asyncio.to_thread(grove.pen.kill_hub)
                await asyncio.to_thread(grove.pen.start)
            assert not waiting.done()
            await asyncio.to_thread(
                grove.call, child, "notify_parent", status="success", message="x"
            )
            assert json.loads(await waiting)["from"] == child
            # Asked while there is no hub, it is answered by the next.
            await asyncio.to_thread(grove.pen.kill_hub)
            listing = asyncio.create_task(call(lead, "list_agents"))
            await asyncio.to_thread(grove.pen.start)
            assert child in await listing

    asyncio.run(story())


def test_m0_without_its_own_socket_the_relay_refuses(grove: Grove) -> None:
    grove.run("lead")
    hub = grove.pen.home.socket("hub")
    for words in ([], [str(hub)], ["relative/api/hub.sock"]):
        line = [*mcp_line(sys.executable, PACKAGE, "")[:-1], *words]
        done = subprocess.run(line, input=b"", capture_output=True, timeout=60, check=False)
        assert done.returncode == 2
        assert b"the agent's own socket" in done.stderr
    assert grove.pen.cli("mcp", str(hub)).code == 2


def test_m0_progress_is_told_while_a_call_is_open(grove: Grove) -> None:
    grove.run("lead")
    words = line_of(grove, "lead")
    words[4] = words[4].replace(
        "main()", "import bullpen.hot.mcp_relay as r\nr.PROGRESS_SECONDS = 0.2\nmain()"
    )
    params = {
        "name": "wait_for_event",
        "arguments": {"timeout_seconds": 5},
        "_meta": {"progressToken": "p1"},
    }
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relay:
        assert relay.stdin is not None
        assert relay.stdout is not None
        relay.stdin.write(json.dumps(request).encode() + b"\n")
        relay.stdin.flush()
        lines = [json.loads(relay.stdout.readline()) for _ in range(3)]
        relay.stdin.close()
    assert [line["method"] for line in lines[:2]] == ["notifications/progress"] * 2
    assert [line["params"]["progressToken"] for line in lines[:2]] == ["p1", "p1"]
    assert lines[0]["params"]["progress"] < lines[1]["params"]["progress"]


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", (0, b"", False)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", (200, b"{", False)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", (200, b"{}", True)),
        (b"HTTP/1.1 202 Accepted\r\n\r\n", (202, b"", True)),
        (b"HTTP/1.1 200 OK\r\n\r\nx", (200, b"x", False)),
    ],
)
def test_m0_half_an_answer_is_none(data: bytes, answer: tuple[int, bytes, bool]) -> None:
    assert mcp_relay.parse_answer(data) == answer
