"""Reading JSON that somebody else wrote: what is not of the kind that is asked for is as good as
none. Pure.
"""

import json
import re
from typing import Any

MOST = 1e300  # JSON holds whole numbers that no float can
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def read_fields(line: bytes) -> dict[str, Any]:
    """The object that a line of JSON is; an empty one for whatever else it is."""
    try:
        return fields(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def fields(value: object) -> dict[str, Any]:
    """An object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """A list, of whatever it is."""
    return value if isinstance(value, list) else []


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text that a file can hold."""
    return sound(value) if isinstance(value, str) else ""


def count(value: object) -> int:
    """A whole number, not below 0."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0


def number(value: object) -> float:
    """A number, not below 0."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(min(value, MOST))) if is_one else 0.0  # type: ignore[call-overload]


def conversation_id(value: object) -> str:
    """The id, or nothing if it is none: it becomes part of a command line and of a path."""
    return value if isinstance(value, str) and ID.fullmatch(value) else ""


def sound(text: str) -> str:
    """Without half surrogates, which JSON can hold and no file could."""
    return text.encode("utf-8", "replace").decode()
