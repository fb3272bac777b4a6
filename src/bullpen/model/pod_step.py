"""One step of a pod's start, as `POST /pods` tells it. Pure and light: no pydantic."""

from dataclasses import dataclass, fields
from typing import Any, TypedDict


class ErrorFields(TypedDict):
    """An error as `BullpenError.to_json` makes it."""

    error: str
    message: str
    hint: str
    details: dict[str, object]


@dataclass(frozen=True)
class PodStep:
    """What was done, or begun; the last has the `pod` that runs, or the `error`. Of a sequence it
    also has the members, in their order, and where it lands at the end, if it does."""

    step: str | None = None
    members: tuple[str, ...] | None = None
    seconds: float | None = None
    pod: str | None = None
    lands_in: str | None = None
    error: ErrorFields | None = None

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "PodStep":
        """Keys of a later version are passed over."""
        return cls(**{field.name: line[field.name] for field in fields(cls) if field.name in line})

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}
