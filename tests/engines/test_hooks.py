"""How the hook that asks for a permission is answered."""

import json
from typing import Any

from bullpen.engines.hooks import permission_answer


def test_q5_the_answer_to_a_permission_has_the_engines_schema() -> None:
    def decided(**fields: Any) -> Any:
        output = json.loads(permission_answer(**fields))
        assert list(output) == ["hookSpecificOutput"]
        assert output["hookSpecificOutput"].pop("hookEventName") == "PermissionRequest"
        assert list(output["hookSpecificOutput"]) == ["decision"]
        return output["hookSpecificOutput"]["decision"]

    assert decided(is_allowed=True, reason="not said") == {"behavior": "allow"}
    assert decided(is_allowed=False, reason="no!") == {"behavior": "deny", "message": "no!"}
    assert decided(is_allowed=False)["message"]
    rule = {"toolName": "Bash", "ruleContent": "make (x)"}
    change = {"type": "addRules", "behavior": "allow", "destination": "session", "rules": [rule]}
    assert decided(is_allowed=True, rule="Bash(make (x))") == {
        "behavior": "allow",
        "updatedPermissions": [change],
    }
