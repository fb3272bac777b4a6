"""Which set-ups of worktrees run in a sandbox, by the role."""

from pathlib import Path

import pytest

from bullpen.home.paths import Home
from bullpen.home.settings import Settings
from bullpen.hub.agents.plan import _setup_sandbox
from bullpen.hub.context import HubContext
from bullpen.model.role import Role


@pytest.mark.parametrize("enabled", [True, False, None])
def test_w14_only_a_role_that_wants_no_sandbox_has_none_for_its_setup(
    tmp_path: Path, enabled: bool | None
) -> None:
    context = HubContext(Home(tmp_path), Settings(), 9000, tmp_path / "me")
    rules = {"enabled": enabled, "allow_network": False}
    role = Role.model_validate({"name": "r", "sandbox": rules, "env": {"HUSKY": "0"}})
    sandbox = _setup_sandbox(context, role)
    assert (sandbox is None) == (enabled is False)
    if sandbox:
        assert not sandbox.rules.allow_network
        assert sandbox.variables == {"HUSKY": "0"}
