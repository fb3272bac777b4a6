"""What a role says of a worktree that `bullpen worktree create` makes, and of its set-up.

Called by `commands/worktree`. Imports what is slow only when there is a role or a set-up.
"""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.home.paths import current_home
from bullpen.worktrees import Spec

if TYPE_CHECKING:
    from bullpen.model.role import Role  # pydantic takes long to import
    from bullpen.sandboxes.setup import SetupSandbox


def load_role(name: str) -> "Role":
    """A role of this home; in a pod its own come first."""
    from bullpen.home import roles

    home = current_home()
    pod_roles = home.pod_roles if os.environ.get("BULLPEN_POD") else None
    return roles.load_role(roles.find_role(name, home.roles, pod_roles))


def as_role_wants(spec: Spec, role: "Role") -> Spec:
    """The role's worktree settings, where the command line says nothing."""
    rules = role.worktree
    return dataclasses.replace(
        spec,
        role=role.name,
        base=spec.base or rules.branch_from or "",
        detached=spec.detached or (rules.use_detached_head and not spec.branch),
        copy=spec.copy or rules.copy_globs,
        setup=spec.setup or rules.setup or "",
        ports=rules.ports,
    )


def make_setup_sandbox(role: "Role | None") -> "SetupSandbox | None":
    """As the role has it; the usual one without a role."""
    from bullpen.engines.programs import path_roots
    from bullpen.sandboxes.setup import SetupSandbox

    if role and role.sandbox.enabled is False:
        return None
    person = Path.home()
    sandbox = SetupSandbox(
        home=current_home().root,
        person=person,
        programs=tuple(path_roots(os.environ.get("PATH", ""), person, ())),
    )
    if role:
        sandbox = dataclasses.replace(sandbox, rules=role.sandbox, variables=role.env)
    return sandbox
