"""The status line while attached: agent, role, state, usage, waiting messages, pod, detach key;
and whether the agent waits for a person.

State and usage come from the hub; without a hub the line leaves them out.
"""

from typing import TYPE_CHECKING, NamedTuple

from bullpen.client.agents import get_agent
from bullpen.client.hub import Hub
from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.home.session_file import SessionFile, read_session_file
from bullpen.terminal.attach_settings import attach_settings

if TYPE_CHECKING:
    from bullpen.model.agent_shown import AgentWithUsage

# A terminal waits for nobody: a hub that takes longer is left out of this line.
ANSWER_SECONDS = 0.1


class TerminalStatus(NamedTuple):
    """`text` is for the title and the status row, `needs_person` says for what the agent waits, if
    it does; None if no hub has said so. The caller removes control characters from both."""

    text: str = ""
    needs_person: str | None = ""


def status_of(home: Home, name: str) -> TerminalStatus:
    """What is known of the agent now."""
    agent = _ask_hub(home, name)
    # What another machine has of its agent is not here.
    session = SessionFile() if "/" in name else read_session_file(home, name)
    words = agent.words if agent else ""
    facts = [
        name,
        session.role,
        words,
        agent.summary if agent else "",
        session.pod,
        f"{attach_settings(home).detach_key} leaves",
    ]
    text = " · ".join(fact for fact in facts if fact)
    if agent is None:
        return TerminalStatus(text, None)
    return TerminalStatus(text, f"{name}: {words}" if words.startswith("blocked") else "")


def _ask_hub(home: Home, name: str) -> "AgentWithUsage | None":
    hub = Hub(home, start=False, seconds=ANSWER_SECONDS)
    try:
        return hub.do(get_agent(name).unchecked())
    except (BullpenError, OSError, ValueError):
        return None
