"""Writing TOML, which the standard library only reads. Pure."""

import datetime
import json
from collections.abc import Mapping
from typing import Any


def to_toml(config: Mapping[str, Any]) -> str:
    """The text of it. Pure."""
    plain = {k: v for k, v in config.items() if v is not None and not isinstance(v, Mapping)}
    lines = [f"{_quoted(key)} = {_value(value)}" for key, value in plain.items()]
    for key, table in config.items():
        if isinstance(table, Mapping):
            lines.append(f"[{_quoted(key)}]")
            lines += [f"{_quoted(k)} = {_value(v)}" for k, v in table.items() if v is not None]
    return "".join(f"{line}\n" for line in lines)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            pairs = [f"{_quoted(k)} = {_value(v)}" for k, v in value.items() if v is not None]
            return "{" + ", ".join(pairs) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    # JSON leaves one control character as it is that TOML does not take.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
