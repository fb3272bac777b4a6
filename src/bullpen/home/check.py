"""Checks a document against a model and says in plain words what is wrong with it.

The only module that knows the validation library's error types. A message follows file, line and
key; it says what is there and what is allowed. Values that may be secret are never shown.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bullpen.errors import BullpenError
from bullpen.home.yamlfile import Document, FileProblem, Where, dotted
from bullpen.model.duration import EXAMPLES
from bullpen.model.fields import Block
from bullpen.suggest import did_you_mean

M = TypeVar("M", bound=Block)

# Below these keys values are never repeated, not even wrong ones.
HIDDEN = "the value"
SECRET = (("env",),)

# error type -> what is wrong with the value
VERDICTS = {
    "string_type": "is no text",
    "bool_type": "is neither true nor false",
    "int_type": "is no whole number",
    "float_type": "is no number",
    "finite_number": "is no number",
    "time_delta_type": f"is no duration · {EXAMPLES}",
    "tuple_type": "is no list",
    "dict_type": "is no block of `key: value` lines",
    "model_type": "is no block of `key: value` lines",
}
LIMITS = {
    "greater_than": ("too small", "more than", "gt"),
    "greater_than_equal": ("too small", "at least", "ge"),
    "less_than_equal": ("too large", "at most", "le"),
}


def check(model: type[M], document: Document) -> tuple[M | None, list[FileProblem]]:
    """The document as a model, or everything that is wrong with it, in the order of lines."""
    checked, problems = None, list(document.problems)
    if document.data is None and not problems:
        problems.append(FileProblem(document.path, 1, "", "the file is empty"))
    elif document.data is not None:
        checked, errors = check_data(model, document.data)
        problems += [
            FileProblem(document.path, document.line(where), dotted(where), message)
            for where, message in errors
        ]
    return (None if problems else checked), sorted(problems, key=lambda problem: problem.line)


def check_data(model: type[M], data: Any) -> tuple[M | None, list[tuple[Where, str]]]:
    """The same for data that come from no file: the model, or places and messages."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, [_translate(model, data, each) for each in error.errors()]


def raise_if_any(noun: str, problems: list[FileProblem], hint: str = "") -> None:
    """One error that lists them all."""
    if problems:
        lines = [f"  {p.path}:{p.line}  {p.key}  {p.message}" for p in problems]
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        raise BullpenError(
            "\n".join([f"{noun} has {count}", *lines]),
            hint=hint,
            details={"problems": [problem.to_json() for problem in problems]},
        )


def _translate(model: type[BaseModel], data: Any, error: ErrorDetails) -> tuple[Where, str]:
    where = _location(data, error)
    return where, _message(model, where, error)


def _location(data: Any, error: ErrorDetails) -> Where:
    """The error's place without the library's own steps (names of union members, `[key]`)."""
    where: Where = ()
    *way, last = error["loc"] or ("[key]",)
    for step in way:
        if _holds(data, step):
            where, data = (*where, step), data[step]
    # The last one may be a key that is missing.
    if _holds(data, last) or (isinstance(data, Mapping) and last != "[key]"):
        where = (*where, last)
    return where


def _holds(data: Any, step: str | int) -> bool:
    if isinstance(data, Mapping):
        return step in data
    return isinstance(data, list) and isinstance(step, int) and step < len(data)


def _message(model: type[BaseModel], where: Where, error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    display = HIDDEN if _is_secret(where) else _display(error["input"])
    if kind == "missing":
        message = "is required"
    elif kind == "extra_forbidden":
        message = f"unknown key{did_you_mean(str(where[-1]), _keys_around(model, where))}"
    elif kind == "literal_error":
        message = _not_one_of(display, error["input"], context["expected"])
    elif kind in VERDICTS:
        message = f"{display} {VERDICTS[kind]}{_remedy(kind, display, error['input'])}"
    elif kind in LIMITS:
        verdict, words, limit = LIMITS[kind]
        message = f"{display} is {verdict} · {words} {context[limit]}"
    elif kind == "value_error":
        message = str(context.get("text") or context.get("error"))
    else:
        message = f"{display} is not allowed here"
    return message


def _remedy(kind: str, display: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return " · put it in quotes" if display == HIDDEN else f' · in quotes it is: "{display}"'
    if kind == "tuple_type" and isinstance(value, str) and display != HIDDEN:
        return f" · write [{display}]"
    if kind == "bool_type" and isinstance(value, str):
        return " · write true or false, without quotes"
    return ""


def _not_one_of(display: str, value: Any, expected: str) -> str:
    words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    if len(words) == 1:
        return f"{display} is not allowed · only {words[0]}"
    near = did_you_mean(value, words) if isinstance(value, str) else ""
    return f"{display} is not allowed{near} · one of {', '.join(words)}"


def _display(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a block"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f'{text[:57]}…"'


def _is_secret(where: Where) -> bool:
    return any(where[: len(secret)] == secret for secret in SECRET)


def _keys_around(model: type[BaseModel], where: Where) -> list[str]:
    """The keys that are allowed where this one stands."""
    blocks: list[type[Block]] = _blocks(model)
    for step in where[:-1]:
        inner = [
            inner_block
            for block in blocks
            for name, field in block.model_fields.items()
            if (field.alias or name) == step
            for inner_block in _blocks(field.annotation)
        ]
        # Entries of lists and of maps by name stay on the same level of models.
        blocks = inner or blocks
    return [key for block in blocks for key in block.key_names()]


def _blocks(annotation: Any) -> list[type[Block]]:
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return [annotation]
    return [block for inner in get_args(annotation) for block in _blocks(inner)]
