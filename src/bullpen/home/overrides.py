"""Applies overrides to a role for one launch. `model/override.py` says what can be overridden."""

from collections.abc import Iterable

from bullpen.errors import BullpenError
from bullpen.home.check import check_data
from bullpen.home.paths import Home
from bullpen.home.roles import RoleFile, find_role, load_persona, load_role
from bullpen.home.yamlfile import dotted
from bullpen.model.override import fit_engine, parse_override
from bullpen.model.role import Role

__all__ = ["apply_overrides", "launch_role", "load_changed_role", "parse_override"]


def apply_overrides(role: Role, overrides: Iterable[str]) -> Role:
    """The role with `key=value` words in it, later ones winning, checked as a whole."""
    data = role.model_dump(by_alias=True, exclude_unset=True)
    values: dict[str, object] = {}
    errors: list[BullpenError] = []
    for override in overrides:
        try:
            key, value = parse_override(override)
        except BullpenError as error:
            errors.append(error)  # all that is wrong is told at once
        else:
            values[key] = value
    fit_engine(data, str(values.get("agent_type", role.agent_type)), values)
    for key, value in values.items():
        *blocks, last = key.split(".")
        block = data
        for name in blocks:
            block = block.setdefault(name, {})
        block[last] = value
    changed, problems = check_data(Role, data)
    if len(errors) == 1 and changed is not None:
        raise errors[0]
    if errors or changed is None:
        wrong = [f"{dotted(where)}: {message}" for where, message in problems]
        lines = [*(error.message for error in errors), *wrong]
        raise BullpenError("\n".join(lines), hint=f"bullpen role show {role.name}")
    return changed


def launch_role(file: RoleFile, overrides: Iterable[str]) -> Role:
    """The role as one launch uses it: with the overrides in it, and its persona in front of its
    instructions. Reads the disk."""
    role = apply_overrides(load_role(file), overrides)
    texts = (load_persona(file), role.instructions or "")
    instructions = "\n\n".join(text.strip("\n") for text in texts if text.strip())
    return role.model_copy(update={"instructions": instructions or None})


def load_changed_role(home: Home, name: str, pod: str, overrides: Iterable[str]) -> Role:
    """`launch_role` of the role that the name means, as its file is now."""
    return launch_role(find_role(name, home.roles, home.pod_roles if pod else None), overrides)
