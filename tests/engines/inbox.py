"""Messages to agents of a team."""

from typing import Any

from tests.engines.team import SECONDS, Agent, Team
from tests.waiting import wait_until


def send(team: Team, to: str, text: str, **fields: Any) -> dict[str, Any]:
    return team.pen.client().post("agents", to, "messages", body={"text": text, **fields})


def inbox(team: Team, name: str) -> list[dict[str, Any]]:
    return team.pen.client().get("agents", name, "messages", limit=1000)["messages"]


def wait_delivered(team: Team, name: str, seconds: float = SECONDS) -> None:
    try:
        wait_until(lambda: all(m["status"] == "delivered" for m in inbox(team, name)), seconds)
    except AssertionError as error:
        left = [(m["status"], m["why"], m["text"][:40]) for m in inbox(team, name)]
        raise AssertionError(f"{left}\n{Agent(team, name).screen()}") from error


def _texts(messages: list[Any]) -> str:
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        found += [block.get("text", "") for block in blocks if isinstance(block, dict)]
    return "\n".join(found)
