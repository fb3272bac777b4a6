"""Puts overrides into a role for one launch. What may be overridden is `model.override`'s."""

from collections.abc import Iterable

from bullpen.check import check_data
from bullpen.errors import BullpenError
from bullpen.model.override import parse_override
from bullpen.model.role import Role
from bullpen.yamlfile import dotted

__all__ = ["apply_overrides", "parse_override"]


def apply_overrides(role: Role, overrides: Iterable[str]) -> Role:
    """The role with `key=value` words in it, later ones winning, checked as a whole."""
    data = role.model_dump(by_alias=True, exclude_unset=True)
    for override in overrides:
        key, value = parse_override(override)
        *blocks, last = key.split(".")
        block = data
        for name in blocks:
            block = block.setdefault(name, {})
        block[last] = value
    changed, problems = check_data(Role, data)
    if changed is None:
        lines = [f"{dotted(where)}: {message}" for where, message in problems]
        raise BullpenError("\n".join(lines), hint=f"bullpen role show {role.name}")
    return changed
