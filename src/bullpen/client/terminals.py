"""Calls of `/agents/{name}/terminal`, a WebSocket. No I/O.

Run by `Hub.open` and `AsyncHub.open`. Binary messages are output and input as they are; a text
message is a size, `{"rows", "cols"}`.
"""

from bullpen.client.call import Request, path


class Terminal(Request):
    """A request whose answer is a connection, open until one side closes it. Starts no hub."""


def attach(
    name: str, *, rows: int = 24, cols: int = 80, read_only: bool = False, sizes: bool = False
) -> Terminal:
    """An agent's terminal. Closed with 4410 when the program has ended, or when this side reads too
    slowly. With `sizes` it says the program's size as text, too: first if this side only reads, and
    before a new replay when another has changed it."""
    query = {"rows": rows, "cols": cols, "read_only": int(read_only), "sizes": int(sizes)}
    return Terminal("GET", path("agents", name, "terminal"), query, starts_hub=False)


def hold(name: str) -> Terminal:
    """The same in the holder's own protocol, both ways: `docs/holder-protocol.md`."""
    return Terminal("GET", path("agents", name, "terminal"), {"frames": 1}, starts_hub=False)
