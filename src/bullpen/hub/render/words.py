"""Words that several texts share. Pure."""

from datetime import datetime

from bullpen.text import printable


def count_messages(count: int) -> str:
    """`1 message`, `2 messages`."""
    return "1 message" if count == 1 else f"{count} messages"


def waiting_text(count: int, why: str) -> str:
    """`2 messages wait: it is working: at the end of its turn`."""
    verb = "waits" if count == 1 else "wait"
    return f"{count_messages(count)} {verb}" + (f": {printable(why)}" if why else "")


def age(seconds: float) -> str:
    """`12s`, `40m`, `3h`, `6d`."""
    seconds = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(at: float) -> str:
    """Local time of day; with the date when it is not today's."""
    local = datetime.fromtimestamp(at).astimezone()
    today = local.date() == datetime.now().astimezone().date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
