"""The rules of a role as Codex has them. Pure."""

import json
import shlex

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import Role

OWN_TOOLS = "mcp__bullpen"


def make_rules(role: Role) -> str:
    """The role's rules as Codex's own, which know commands by how they begin. Pure. It holds
    them also against the parts of `a && b`, and of several the strictest decides."""
    # The hub's own tools are allowed in its configuration (`config`), not by a rule.
    allowed = (rule for rule in role.permissions.allow if rule != OWN_TOOLS)
    allow = [_rule(role, rule, "allow") for rule in allowed]
    deny = [_rule(role, rule, "forbidden") for rule in role.permissions.deny]
    return "".join(f"{line}\n" for line in (*allow, *deny))


def _rule(role: Role, rule: str, decision: str) -> str:
    tool, _, rest = rule.partition("(")
    pattern = rest.removesuffix(")")
    begins = pattern.removesuffix(":*").removesuffix(" *")
    try:
        words = shlex.split(begins)
    except ValueError:
        words = []
    is_prefix = begins != pattern or decision == "forbidden"  # more is refused than was asked
    if tool != "Bash" or not words or "*" in begins or not is_prefix:
        raise BullpenError(
            f"role {role.name}: Codex has no such rule: {rule}",
            hint="it knows commands by how they begin: Bash(git push:*)",
            kind=Kind.UNSUPPORTED,
        )
    return f"prefix_rule(pattern={json.dumps(words)}, decision={json.dumps(decision)})"
