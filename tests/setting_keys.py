"""The keys of a settings file, of a model, and of data."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel


def uncommented(text: str) -> str:
    """The file as it is once every setting's comment sign is taken away."""
    return re.sub(r"^#(?! \S|$)", "", text, flags=re.MULTILINE)


def model_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + (field.alias or name)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from model_keys(kind, f"{prefix}{field.alias or name}.")


def data_keys(data: Any, prefix: str = "") -> Iterator[str]:
    for key in data if isinstance(data, dict) else ():
        yield prefix + key
        yield from data_keys(data[key], f"{prefix}{key}.")
