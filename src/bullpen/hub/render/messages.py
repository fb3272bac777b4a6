"""Messages: what became of one that was sent, and an inbox. Pure."""

from collections import Counter
from collections.abc import Sequence

from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.render.words import count_messages, moment, waiting_text
from bullpen.model.message import (
    ROOT,
    HandOver,
    Interrupt,
    Message,
    Wait,
    is_open,
    may_be_typed,
    next_step,
)
from bullpen.model.state import Idle, Starting, Unknown
from bullpen.table import lay_out
from bullpen.text import printable, width

TEXT_CHARACTERS = 200  # of a message in a line, where no width limits it
NAMES = ("id", "sender", "created", "status", "since", "text")
DROPPED = ("since", "created", "status", "sender")  # in a narrow terminal
NO_MESSAGES = "no messages\n"
# Of an agent that works or is blocked, the rule says it itself.
WAITS_UNTIL: dict[type, str] = {
    Starting: "when it is ready",
    Idle: "when its rate limit is reset",
    Unknown: "when its state is known",
}


def sent_text(message: Message, live: LiveAgent | None, takes_messages: bool) -> str:
    """`bullpen send`: how far it got, and when it will go on."""
    when = sent_when(message, live, takes_messages)
    return f"{message.status}{when} · {message.id}\n"


def sent_when(message: Message, live: LiveAgent | None, takes_messages: bool) -> str:
    """Why a message that was just sent is where it is: ` (amy is working): at the end of its
    turn`. `live` is the receiver; `takes_messages`, whether any can be handed to its engine."""
    name = printable(message.to)
    if message.status != "queued":
        return ""
    if live is None:
        host, slash, _ = name.partition("/")
        return f": on its way to {host}" if slash else ": in the person's inbox"
    if not live.is_running:
        return f" ({name} is not running): when it is started again"
    if not takes_messages:
        return f": {name} has to look into its inbox"
    if deliver := live.agent.deliver:
        is_typed = may_be_typed(deliver, message)
        of_owner = f" of its owner only): {name} has to look into its inbox"
        return f" ({name} takes lines{'): at once' if is_typed else of_owner}"
    state = live.view.state
    return f" ({name} is {state.state}): {_due(live, message)}"


def _due(live: LiveAgent, message: Message) -> str:
    state = live.view.state
    match next_step(state, [message], float("inf")):
        case HandOver():
            return "at once"
        case Interrupt():
            return "its turn is ended first"
        case Wait(why=why):
            return WAITS_UNTIL.get(type(state)) or why.partition(": ")[2] or why
        case _:
            return ""


def inbox_text(
    messages: Sequence[Message],
    *,
    is_own: bool,
    for_owner: bool,
    why: str = "",
    columns: int = 0,
    full: bool = False,
    more: int = 0,
) -> str:
    """`bullpen inbox`: a line each, the newest last; cut to the terminal's width, or with the
    whole text below. `is_own`: who looks is the receiver; `why`: why some are not delivered;
    `more`: new ones that come next time."""
    if not messages:
        return NO_MESSAGES
    heads = [_head(message, is_own, for_owner) for message in messages]
    if full:
        blocks = [
            f"{head}\n{_body(message.text)}"
            for head, message in zip(lay_out(NAMES[:-1], heads), messages, strict=True)
        ]
        text = "\n".join(blocks)
    else:
        rows = [
            (*head, _line(message.text, max(columns, TEXT_CHARACTERS)))
            for head, message in zip(heads, messages, strict=True)
        ]
        text = "\n".join(lay_out(NAMES, rows, columns, drop=DROPPED)) + "\n"
    if more:
        return f"{text}{more} more new · bullpen inbox\n"
    waiting = sum(map(is_open, messages))
    if waiting and why and not is_own:
        text += f"{waiting_text(waiting, why)}\n"
    return text + _refused(messages)


def _refused(messages: Sequence[Message]) -> str:
    """`2 messages refused: sam was removed`, a line for each reason."""
    reasons = Counter(message.reason for message in messages if message.status == "refused")
    return "".join(
        f"{count_messages(count)} refused: {printable(reason)}\n"
        for reason, count in reasons.items()
    )


def _head(message: Message, is_own: bool, for_owner: bool) -> tuple[str, ...]:
    is_new = is_own and message.status in ("queued", "sent")
    since = message.refused or message.read or message.delivered or message.sent
    return (
        message.id,
        "you" if for_owner and message.sender == ROOT else printable(message.sender),
        _short_moment(message.created),
        "new" if is_new else message.status,
        "" if is_new or since is None else _short_moment(since),
    )


def _line(text: str, room: int) -> str:
    """The beginning of a text in so many columns, and whether there is more."""
    whole = text.strip()
    first = whole.partition("\n")[0][: room + 1]  # escaped it is never shorter
    shown = printable(first)
    if first == whole and width(shown) <= room:
        return shown
    while shown and width(shown) > room - 2:
        shown = shown[:-1]
    return f"{shown} …"


def _body(text: str) -> str:
    lines = printable(text.replace("\r\n", "\n").expandtabs(8), lines=True).split("\n")
    return "".join(f"  {line}".rstrip() + "\n" for line in lines)


def _short_moment(at: float) -> str:
    """Without the seconds."""
    return moment(at)[:-3]
