"""What the blocks of all YAML files share: strictness, and the types of text in them.

Validators raise ValueError with the message for a person; `home/check.py` adds file, line and key.
"""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from bullpen.errors import BullpenError
from bullpen.model import duration, names

T = TypeVar("T")


class Block(BaseModel):
    """A block of keys: unknown ones are errors, nothing is converted, nothing changes later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_unset(cls, data: Any) -> Any:
        # `heartbeat:` above lines that are all commented out is what a person means by "not set".
        if not isinstance(data, dict):
            return data
        return {
            key: data[key] for key in data if data[key] is not None or key not in cls.key_names()
        }

    @classmethod
    def key_names(cls) -> list[str]:
        """The keys as a file writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def refuse(problems: Iterable[tuple[tuple[str | int, ...], str]]) -> None:
    """Raise several errors at once from inside one validator, each with its own place."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("value_error", "{text}", {"text": text}),
            loc=location,
            input=None,
        )
        for location, text in problems
    ]
    if details:
        raise ValidationError.from_exception_data("refused", details)


def _check(rule: Callable[[str], object]) -> AfterValidator:
    """A rule that raises; the text itself stays as it was."""

    def validate(text: str) -> str:
        try:
            rule(text)
        except BullpenError as error:
            raise ValueError(f"{error.message} · {error.hint}") from error
        return text

    return AfterValidator(validate)


def matching(form: str, allowed: str) -> AfterValidator:
    """Text of a form; `allowed` says in words which."""
    pattern = re.compile(form)

    def rule(text: str) -> None:
        if pattern.fullmatch(text) is None:
            raise ValueError(f'"{text[:60]}" is not allowed · {allowed}')

    return _check(rule)


def _no_blank(text: str) -> None:
    if not text.strip():
        raise ValueError("is empty")


def _branch(text: str) -> None:
    # The rules of git check-ref-format that a person can run into.
    if (
        re.fullmatch(r"[^\s~^:?*\[\\\x00-\x20\x7f-][^\s~^:?*\[\\\x00-\x20\x7f]*", text) is None
        or any(bad in text for bad in ("..", "//", "@{", "/."))
        or text.startswith((".", "/"))
        or text.endswith((".", "/", ".lock"))
    ):
        raise ValueError(f'"{text[:60]}" is no name that git allows for a branch')


def empty_is_unset(value: object) -> object:
    """An empty text is the default, as a line or a form that was only emptied means it."""
    return None if value == "" else value


def _duration(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise ValueError(f"{value} is no duration · {duration.EXAMPLES}")
    return duration.parse(value) if isinstance(value, str) else value


def _above_zero(value: timedelta) -> timedelta:
    if not value:
        raise ValueError(f"0s is too short · {duration.EXAMPLES}")
    return value


Text = Annotated[str, _check(_no_blank)]
# Ends up as one word of a command line, so it must not look like an option.
Word = Annotated[str, matching(r"[^\s-]\S*", "one word that does not begin with -")]
ModelName = Annotated[Word | None, BeforeValidator(empty_is_unset)]
Branch = Annotated[str, _check(_branch)]
# A start point is any revision: HEAD~2, v1.2^{commit}.
Revision = Word
RoleName = Annotated[str, _check(lambda text: names.check_name("role", text))]
AgentName = Annotated[str, _check(lambda text: names.check_name("agent", text))]
PodName = Annotated[str, _check(lambda text: names.check_name("pod", text))]
LabelName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}", "a label is letters, digits and . _ / -")
]
Labels = dict[LabelName, str]
# YAML knows lists only; a strict tuple would refuse them.
Texts = Annotated[tuple[Text, ...], Strict(False)]
Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(duration.to_text, return_type=str),
]
PositiveDuration = Annotated[Duration, AfterValidator(_above_zero)]
