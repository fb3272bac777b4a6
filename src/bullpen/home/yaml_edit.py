"""Changes values in a YAML text, and leaves the rest as a person wrote it: comments, order, quotes.

Used by `agent_files`, which checks what comes out before it is written. Pure.
"""

from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

WIDTH = 4096  # no line is broken that was not


def edited(text: str, fields: Mapping[str, Any]) -> str:
    """The text with these fields in place of its own; a text that is no mapping is begun anew."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    try:
        document = yaml.load(text)
    except (YAMLError, ValueError):
        document = None
    if not isinstance(document, CommentedMap):
        document = CommentedMap()
    _update(document, fields)
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _update(document: dict[Any, Any], fields: Mapping[str, Any]) -> None:
    for key in [key for key in document if key not in fields]:
        del document[key]
    for key, value in fields.items():
        inner = document.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            _update(inner, value)
        elif key not in document or inner != value:
            document[key] = value
