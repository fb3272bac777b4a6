"""What is wrong with the arguments of a tool, in words that a model can act on. Pure. Called by
`server`, with the schemas that clients see.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bullpen.suggest import did_you_mean

Schema = Mapping[str, Any]

# Gemini CLI 0.61 adds it to the schema of every tool, obeys it, and sends it along.
OF_ENGINES = {"wait_for_previous"}
MOST_PROBLEMS = 5
MOST_SHOWN = 60
UNLIMITED = 1e15  # and more: a limit that nobody meets by mistake


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were meant for the tool. Engines send null for what their model left out."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and name not in OF_ENGINES
    }


def find_unknown(tool: str, schema: Schema, names: Iterable[str]) -> list[str]:
    """One line for each argument that the tool does not have."""
    known = list(schema.get("properties", {}))
    return [_unknown(tool, "argument", name, known) for name in names if name not in known]


def describe(tool: str, schema: Schema, errors: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each error of the validation library."""
    return [_line(tool, schema, error) for error in errors]


def as_text(lines: Sequence[str]) -> str:
    """The first of them."""
    left = len(lines) - MOST_PROBLEMS
    return "\n".join([*lines[:MOST_PROBLEMS], *([f"and {left} more"] if left > 0 else [])])


def _line(tool: str, root: Schema, error: Mapping[str, Any]) -> str:
    *above, last = way = error["loc"]
    if error["type"] == "extra_forbidden":
        known = list(_below(root, above)["properties"])
        return _unknown(f"{tool}: {_dotted(above)}", "key", str(last), known)
    schema = _below(root, way)
    allowed = _allowed(root, schema)
    if error["type"] == "missing":
        who = f"{tool}: {_dotted(above)}" if above else tool
        what = f": {schema['description']}" if "description" in schema else ""
        return f"{who} needs {last} ({allowed}){what}"
    return f"{tool}: {_dotted(way)} is {_shown(error['input'])}, and has to be {allowed}"


def _unknown(who: str, noun: str, name: str, known: Sequence[str]) -> str:
    near = did_you_mean(name, known)
    has = f"it has {', '.join(known)}" if known else "it has none"
    return f"{who} has no {noun} {_cut(name)}{near} · {has}"


def _below(root: Schema, way: Iterable[str | int]) -> Schema:
    """The schema of what stands there."""
    schema = root
    for step in way:
        schema = _resolved(root, schema)
        schema = schema["items"] if isinstance(step, int) else schema["properties"][step]
    return _resolved(root, schema)


def _resolved(root: Schema, schema: Schema) -> Schema:
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    definition: Schema = root["$defs"][name] if name else schema
    return definition


def _allowed(root: Schema, schema: Schema) -> str:
    schema = _resolved(root, schema)
    if "anyOf" in schema:
        some = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(_allowed(root, each) for each in some)
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    match schema["type"]:
        case "array":
            items = _allowed(root, schema["items"])
            return f"a list{_limits(schema, 'Items')}, each {items}"
        case "object":
            names = [
                name if name in schema["required"] else f"{name}?" for name in schema["properties"]
            ]
            return f"an object {{{', '.join(names)}}}"
        case "string":
            return f"a text{_limits(schema, 'Length')}"
        case kind:
            noun = "a whole number" if kind == "integer" else "a number"
            return f"{noun}{''.join(_bounds(schema))}"


def _limits(schema: Schema, of: str) -> str:
    least, most = schema.get(f"min{of}", 0), schema.get(f"max{of}")
    return "" if most is None else f" of {least} to {most}"


def _bounds(schema: Schema) -> Iterator[str]:
    words = {"exclusiveMinimum": "more than", "minimum": "at least", "maximum": "at most"}
    for key, text in words.items():
        if key in schema and schema[key] < UNLIMITED:
            yield f", {text} {schema[key]:g}"


def _dotted(way: Sequence[str | int]) -> str:
    """`workers[0].engine`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in way)[1:]


def _shown(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
