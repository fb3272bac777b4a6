"""Messages: what became of one that was sent, and an inbox. Pure."""

from collections.abc import Sequence

from bullpen.hub.registry import Live
from bullpen.hub.render.words import moment, waiting_text
from bullpen.model.message import ROOT, HandOver, Interrupt, Message, Wait, next_step
from bullpen.model.state import Idle, Starting, Unknown
from bullpen.text import align, printable, width

TEXT_CHARACTERS = 200  # of a message in a line, where no width limits it
LEAST_CHARACTERS = 20
NO_MESSAGES = "no messages\n"
# Of an agent that works or is blocked, the rule says it itself.
WAITS_UNTIL: dict[type, str] = {
    Starting: "when it is ready",
    Idle: "when its rate limit is reset",
    Unknown: "when its state is known",
}


def sent_text(message: Message, live: Live | None, takes_messages: bool) -> str:
    """`bullpen send`: how far it got, and when it will go on."""
    when = sent_when(message, live, takes_messages)
    return f"{message.status}{when} · {message.id}\n"


def sent_when(message: Message, live: Live | None, takes_messages: bool) -> str:
    """Why a message that was just sent is where it is: ` (amy is working): at the end of its
    turn`. `live` is the receiver; `takes_messages`, whether any can be handed to its engine."""
    name = printable(message.to)
    if message.status != "queued":
        return ""
    if live is None:
        return ": in the person's inbox" if message.to == ROOT else ""
    if not live.is_running:
        return f" ({name} is not running): when it is started again"
    if not takes_messages:
        return f": {name} has to look into its inbox"
    if live.agent.deliver == "lines":
        return f" ({name} takes lines): at once"
    state = live.view.state
    return f" ({name} is {state.state}): {_due(live, message)}"


def _due(live: Live, message: Message) -> str:
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
) -> str:
    """`bullpen inbox`: a line each, the newest last; cut to the terminal's width, or with the
    whole text below. `is_own`: who looks is the receiver; `why`: why some are not delivered."""
    if not messages:
        return NO_MESSAGES
    heads = align([_head(message, is_own, for_owner) for message in messages])
    if full:
        blocks = [
            f"{head}\n{_body(message.text)}" for head, message in zip(heads, messages, strict=True)
        ]
        text = "\n".join(blocks)
    else:
        widest = max(map(width, heads))
        room = max(columns - widest - 2, LEAST_CHARACTERS) if columns else TEXT_CHARACTERS
        texts = [_line(message.text, room) for message in messages]
        text = "\n".join(align(list(zip(heads, texts, strict=True)))) + "\n"
    waiting = sum(message.status in ("queued", "sent") for message in messages)
    return text if is_own or not waiting or not why else f"{text}{waiting_text(waiting, why)}\n"


def _head(message: Message, is_own: bool, for_owner: bool) -> tuple[str, ...]:
    is_new = is_own and message.status in ("queued", "sent")
    since = message.read or message.delivered or message.sent
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
