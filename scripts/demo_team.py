"""Stand-ins for the demo: an agent that leads two others, as models do it, without a model.

Started by `scripts/demo` through a role. Each talks to Bullpen by the tools that every agent has,
over `bullpen mcp`; what others write to it comes as lines on its standard input.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CART = Path("cart.py")
NET, VAT = "item.net", "item.net * 1.19"


class Agent:
    """This agent: its tools, and what it says of itself."""

    def __init__(self) -> None:
        self.name = os.environ["BULLPEN_ACTOR"]
        socket = f"{os.environ['BULLPEN_SESSION_DIR']}/api/hub.sock"
        self._relay = subprocess.Popen(
            ["bullpen", "mcp", socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._calls = 0

    def call(self, tool: str, **arguments: Any) -> Any:
        """One tool; its answer, which is JSON."""
        self._calls += 1
        params = {"name": tool, "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": params}
        assert self._relay.stdin is not None and self._relay.stdout is not None
        self._relay.stdin.write(json.dumps(call) + "\n")
        self._relay.stdin.flush()
        text = json.loads(self._relay.stdout.readline())["result"]["content"][0]["text"]
        print(f"{tool}: {text}", flush=True)
        return json.loads(text)

    def is_now(self, event: str, doing: str = "") -> None:
        """What `bullpen list` shows."""
        hook = json.dumps({"hook_event_name": event, "tool_name": doing})
        subprocess.run(["bullpen", "hook"], input=hook, text=True, check=True)

    def next_line(self) -> str:
        """What it is given to do, or what somebody writes to it."""
        line = sys.stdin.readline()
        self.is_now("UserPromptSubmit")
        return line

    def commit(self, net: str, price: str, message: str) -> None:
        """Change how the price is made."""
        self.is_now("PreToolUse", "Edit")
        CART.write_text(f"def price(item):\n    return {price.replace('NET', net)}\n")
        subprocess.run(["git", "commit", "-qam", message], check=True)


def lead(me: Agent) -> None:
    """Give the work to two, wait for both, take what they made, report."""
    me.is_now("UserPromptSubmit")
    vat = me.call("spawn_subtree", task="add VAT", branch_name="vat", role="member")["name"]
    rounder = me.call("spawn_subtree", task="round", branch_name="round", role="member")["name"]
    last = 0
    for _ in (vat, rounder):
        last = wait(me, last)
    me.call("merge_child", name=vat)
    while me.call("merge_child", name=rounder)["state"] != "landed":
        last = wait(me, last)  # it has a conflict, and its author mends it
    me.call("send_message", to=vat, text="It has landed: you are done.")
    me.call("notify_parent", status="success", message="Prices have VAT, and are rounded.")
    me.is_now("Stop")


def wait(me: Agent, last: int) -> int:
    """For the next report of an agent that it started."""
    me.is_now("PreToolUse", "waiting for children")
    return int(me.call("wait_for_event", kinds=["child_finished"], after=last)["id"])


def add_vat(me: Agent) -> None:
    """Does its part, and tells the other."""
    me.commit(NET, VAT, "Add VAT to the price")
    me.call("send_message", to=me.name.replace("vat", "round"), text="I add VAT to price().")
    me.is_now("PreToolUse", "waiting for an answer")
    me.next_line()


def round_up(me: Agent) -> None:
    """Hears of the other, and does its part all the same; the conflict comes when it lands."""
    me.is_now("PreToolUse", "waiting for a message")
    me.next_line()
    me.commit(NET, "round(NET, 2)", "Round the price")
    me.call("send_message", to=me.name.replace("round", "vat"), text="Fine. I round it.")


def mend(me: Agent) -> None:
    """The conflict came back to it; the person says how it is meant."""
    me.next_line()
    me.call("send_message", to="root", text="Is the price rounded before VAT, or after it?")
    me.is_now("Stop")
    me.next_line()
    merge = ["git", "merge", "-q", "--no-commit", "lead"]
    subprocess.run(merge, check=False, stdout=subprocess.DEVNULL)  # stops at the conflict
    me.commit(VAT, "round(NET, 2)", "Round the price with VAT")


def member(me: Agent) -> None:
    """One of the two: its first line is its task."""
    task = me.next_line().strip()
    (add_vat if task == "add VAT" else round_up)(me)
    me.call("notify_parent", status="success", message=f"Done: {task}.")
    me.is_now("Stop")
    if task == "round":
        mend(me)
        me.call("notify_parent", status="success", message="The conflict is solved.")
    else:
        me.next_line()  # there may be more to do


if __name__ == "__main__":
    {"lead": lead, "member": member}[sys.argv[1]](Agent())
