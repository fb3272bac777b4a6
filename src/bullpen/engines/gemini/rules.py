"""The rules of a role as Gemini CLI has them, and its names of tools. Pure."""

import json
import re

from bullpen.errors import BullpenError, Kind
from bullpen.model.role import Role

# Of its own names for the tools that rules know.
TOOLS = {
    "Bash": "run_shell_command",
    "Read": "read_file",
    "Edit": "replace",
    "Write": "write_file",
    "Grep": "grep_search",
    "Glob": "glob",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
}
SHELL = TOOLS["Bash"]
ALLOW, DENY = 500, 999  # priorities; what the person allows in a dialog has 950


def make_rules(role: Role) -> str:
    """The role's rules as a policy of Gemini CLI. Pure. It passes over a whole file of which it
    cannot read one rule, so what it has no words for is refused here."""
    rules = [_rule(role, rule, "allow", ALLOW) for rule in role.permissions.allow]
    rules += [_rule(role, rule, "deny", DENY) for rule in role.permissions.deny]
    return "".join(rules)


def _rule(role: Role, rule: str, decision: str, priority: int) -> str:
    tool, _, rest = rule.partition("(")
    pattern = rest.removesuffix(")")
    name = TOOLS.get(tool, tool)
    fields: dict[str, str] = {"toolName": name}
    if rule.startswith("mcp__"):
        server, _, of_server = rule.removeprefix("mcp__").partition("__")
        fields = {"toolName": of_server or "*", "mcpName": server}
    elif pattern:
        begins = pattern.removesuffix(":*").removesuffix(" *")
        if name != SHELL or not begins or "*" in begins:
            raise BullpenError(
                f"role {role.name}: Gemini CLI has no such rule: {rule}",
                hint="it knows tools, and commands by how they begin: Bash(git push:*)",
                kind=Kind.UNSUPPORTED,
            )
        if begins != pattern:
            fields["commandPrefix"] = begins
        else:
            # Held against the arguments as JSON, so the closing quote ends the command.
            fields["commandRegex"] = re.escape(json.dumps(pattern)[1:-1]) + '"'
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    lines += [f"decision = {json.dumps(decision)}", f"priority = {priority}"]
    return "[[rule]]\n" + "".join(f"{line}\n" for line in lines) + "\n"
