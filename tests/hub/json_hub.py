"""The hub's API by path, JSON in and out, for tests that look at routes themselves."""

from collections.abc import Iterator
from typing import Any

from bullpen.client.call import Call, Stream, path, read_fields
from bullpen.client.hub import Hub
from bullpen.client.streams import Lines
from bullpen.home.paths import Home


class JsonHub:
    """One home's hub; started when it is down, unless `start` is false."""

    def __init__(self, home: Home, *, start: bool = True) -> None:
        self.hub = Hub(home, start=start)

    def get(self, *parts: str, **query: Any) -> Any:
        return self.hub.do(Call("GET", path(*parts), query, read=read_fields))

    def text(self, *parts: str, **query: Any) -> str:
        return self.hub.do(Call("GET", path(*parts), query, read=read_fields).as_text())

    def post(self, *parts: str, body: Any = None, again: bool = False, **query: Any) -> Any:
        return self.hub.do(Call("POST", path(*parts), query, body, again=again, read=read_fields))

    def delete(self, *parts: str, **query: Any) -> Any:
        return self.hub.do(Call("DELETE", path(*parts), query, again=True, read=read_fields))

    def stream(self, *parts: str, body: Any, again: bool = False) -> Iterator[Any]:
        """A JSON value per line."""
        call: Stream[Any] = Stream(
            "POST", path(*parts), body=body, again=again, reader=lambda: Lines(dict)
        )
        return self.hub.stream(call)
