"""One request to the hub as a value: method, path, query, body, and how to read the answer.

Made by the functions of `client/<noun>.py`, one per route. Run by `Hub.do` and `Hub.stream`
(synchronous) or by those of `AsyncHub`. Does no I/O. Imports no model: the type of an answer is
named here and imported when one is read, so that commands start without pydantic. For the same
reason these are plain classes: making a dataclass takes a millisecond.
"""

import json
from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

from bullpen.errors import BullpenError, Kind

if TYPE_CHECKING:
    from bullpen.client.streams import StreamReader

T = TypeVar("T")

ANSWER_SECONDS = 900.0  # set-up commands of worktrees take their time
LOOK_SECONDS = 60.0

Query = Mapping[str, str | int | float | None]
Json = Mapping[str, object]


class ValueObject:
    """Equal to another with the same fields; never changed."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class Request(ValueObject):
    """What is sent. `again`: asking twice is the same as asking once, so a hub that dies before it
    has answered is asked again. `starts_hub`: a hub that is down is started for it.
    `wait_seconds`: how long the hub is asked to wait before it answers."""

    def __init__(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Json | None = None,
        *,
        again: bool = False,
        starts_hub: bool = True,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query or {}
        self.body = body
        self.again = again
        self.starts_hub = starts_hub
        self.headers = headers or {}
        self.wait_seconds = wait_seconds

    @property
    def target(self) -> str:
        """Path and query as they stand in the request; what is None is not said."""
        query = {name: value for name, value in self.query.items() if value is not None}
        return self.path + ("?" + urlencode(query) if query else "")

    @property
    def data(self) -> bytes:
        return b"" if self.body is None else json.dumps(self.body).encode()

    @property
    def may_repeat(self) -> bool:
        return self.again or self.only_reads

    @property
    def only_reads(self) -> bool:
        return self.method == "GET"

    @property
    def seconds(self) -> float:
        """How long an answer, or the next piece of a stream, is waited for."""
        return self.wait_seconds + (LOOK_SECONDS if self.only_reads else ANSWER_SECONDS)


class Call(Request, Generic[T]):
    """A request with one answer, which `read` makes of the body."""

    def __init__(self, *request: Any, read: Callable[[bytes], T], **options: Any) -> None:
        super().__init__(*request, **options)
        self.read = read

    def as_text(self, **options: int) -> "Call[str]":
        """The same, answered with finished text for people; for routes that take `text`, or
        `lines` where `text` is something else."""
        call, name = cast("Call[str]", copy(self)), "lines" if "text" in self.query else "text"
        call.query, call.read = {**self.query, name: 1, **options}, bytes.decode
        return call

    def as_json(self) -> "Call[dict[str, object]]":
        """The same, answered with the object as the hub wrote it, for those who pass it on."""
        call = cast("Call[dict[str, object]]", copy(self))
        call.read = json.loads
        return call

    def unchecked(self) -> "Call[T]":
        """The same, its answer as `Fields`: for commands that must start fast."""
        call = copy(self)
        call.read = read_fields
        return call


class Stream(Request, Generic[T]):
    """A request whose answer is values that come one by one; `reader` makes what reads them."""

    def __init__(
        self, *request: Any, reader: "Callable[[], StreamReader[T]]", **options: Any
    ) -> None:
        super().__init__(*request, **options)
        self.reader = reader


def path(*parts: str) -> str:
    """A path, each part quoted. Dots alone, too: httpx would make `/config` of `/agents/../config`,
    and an agent's name would choose the route."""
    quoted = (quote(part, safe="") for part in parts)
    return "/" + "/".join(
        part.replace(".", "%2E") if part in (".", "..") else part for part in quoted
    )


def given(**fields: object) -> dict[str, object]:
    """The fields of a body that were said."""
    return {name: value for name, value in fields.items() if value is not None}


# ── reading one answer ──


class Model(ValueObject, Generic[T]):
    """Reads JSON into a type of `bullpen.model`, given as `module.Name`. Checked by pydantic."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def type(self) -> type[T]:
        module, _, name = self.name.partition(".")
        return cast("type[T]", getattr(import_module(f"bullpen.model.{module}"), name))

    def __call__(self, body: bytes) -> T:
        return self.parse(json.loads(body))

    def parse(self, value: object) -> T:
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(self.type).validate_python(value)
        except ValidationError as error:
            raise BullpenError(
                f"the hub's answer does not fit {self.name}: {error}", kind=Kind.COMMAND_FAILED
            ) from error


class Models(ValueObject, Generic[T]):
    """Reads a JSON list of them."""

    def __init__(self, name: str) -> None:
        self.model: Model[T] = Model(name)

    def __call__(self, body: bytes) -> list[T]:
        return [self.model.parse(value) for value in json.loads(body)]


class Either(ValueObject, Generic[T]):
    """Reads JSON into the first type if it has that field, else into the other."""

    def __init__(self, field: str, model: Model[Any], other: Model[Any]) -> None:
        self.field, self.model, self.other = field, model, other

    def __call__(self, body: bytes) -> T:
        value = json.loads(body)
        model = self.model if self.field in value else self.other
        return cast(T, model.parse(value))


class Fields(dict[str, Any]):
    """A JSON object whose keys are attributes as well. It stands in for the model that the hub
    made it from: the same fields, without the methods, and lists instead of tuples. Importing
    pydantic and the models takes longer than a whole command."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def read_fields(body: bytes) -> Any:
    """JSON, its objects as `Fields`."""
    return json.loads(body, object_hook=Fields)
