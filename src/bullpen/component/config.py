"""The config file of a director, view or bridge: read at its start, changed by `PUT /config`.

Called by `component/server` and `component/routes`. A change holds until the process ends. Never
writes the file: it is the person's.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from bullpen.component.redact import Redactor
from bullpen.errors import BullpenError
from bullpen.home.check import check, check_data, raise_if_any
from bullpen.home.yamlfile import dotted, read
from bullpen.model.component import Level
from bullpen.model.fields import Block


class ComponentConfig(Block):
    """The keys that every component's file may have."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    log_level: Level = "info"


C = TypeVar("C", bound=ComponentConfig)


@dataclass(frozen=True)
class ConfigChange:
    """What a `PUT /config` does: the new config, and the keys that changed or would."""

    config: ComponentConfig
    data: dict[str, Any]
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def load_config(config_type: type[C], path: Path) -> tuple[C, dict[str, Any]]:
    """The config, and the keys as the file has them. Raises with line and key of each mistake."""
    document = read(path)
    if document.data is None and not document.problems:
        return config_type(), {}
    config, problems = check(config_type, document)
    raise_if_any(path.name, problems)
    assert config is not None
    return config, document.data


def plan_change(
    config: ComponentConfig, data: dict[str, Any], given: dict[str, Any], live: Collection[str]
) -> ConfigChange:
    """Change the given keys and no others; of these only the `live` ones change now. Pure."""
    new, problems = check_data(type(config), {**data, **given})
    if problems or new is None:
        lines = [f"{dotted(where)}: {message}" for where, message in problems]
        raise BullpenError("; ".join(lines), details={"problems": lines})
    keys = [key for key in type(config).model_fields if getattr(config, key) != getattr(new, key)]
    changed = tuple(key for key in keys if key in live)
    return ConfigChange(
        config=config.model_copy(update={key: getattr(new, key) for key in changed}),
        data={**data, **{key: given[key] for key in changed if key in given}},
        changed=changed,
        needs_restart=tuple(key for key in keys if key not in changed),
    )


def shown_config(config: ComponentConfig) -> dict[str, Any]:
    """The config without credentials."""
    shown: dict[str, Any] = Redactor().value(config.model_dump(mode="json", by_alias=True))
    return shown
