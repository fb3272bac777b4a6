"""The file of a manager: whose agent leads, and where it looks.

Read by `director`. STARTER is what `director init claude` writes; a test compares the two. A role
that could change files itself, or that nothing holds back, is an error of the file.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from bullpen.directors.config import DirectorConfig
from bullpen.errors import BullpenError
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home
from bullpen.home.roles import find_role, load_role
from bullpen.model.fields import AgentName, ModelName, PositiveDuration, RoleName, Text
from bullpen.model.role import Role

STARTER = """\
# A manager: takes goals, has agents work on them, looks at what they made, and reports.
#   bullpen director start NAME
#   bullpen director task NAME "The goal"
# It cannot change files itself: it gives tasks to agents that take them. Start some of the role
# that it may grant (may_grant; the starter role's: coder): bullpen agent start dev --role coder
type: claude
# name: lead             # the name of this file
# port: 9150             # without one, the first that is free
# log_level: info
# autostart: true        # bullpen up starts it
# discovery:
#   method: scan
# role: manager          # what leads: read-only, in a sandbox, with capabilities: [delegate]
# agent: lead            # the agent of that role; left out: called as this file is
# workdir: /home/me/shop # the repository that goals are about, unless a goal says another
# project: shop          # or a file in projects/
# model: opus
# timeout: 4h            # for one goal
"""
EDITING = ("Edit", "Write", "NotebookEdit")


class ManagerConfig(DirectorConfig):
    """The whole file."""

    type: Literal["claude"] = "claude"
    role: RoleName = "manager"
    agent: AgentName | None = None
    workdir: Text | None = None
    project: Text | None = None
    model: ModelName = None
    timeout: PositiveDuration | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "ManagerConfig":
        if self.workdir is not None and self.project is not None:
            raise ValueError("workdir or project says where it looks, not both")
        return self

    def agent_of(self, name: str) -> str:
        """The agent that leads for the director of that name."""
        return self.agent or name

    def leading_agent(self, name: str) -> tuple[str, str] | None:
        return self.agent_of(name), self.role

    def notes(self) -> Iterator[str]:
        if self.workdir is None and self.project is None:
            yield (
                "its file has neither workdir nor project: goals that name none are worked on in an"
                " empty directory"
            )

    def problems(self, home: Home, name: str) -> Iterator[tuple[str, str]]:
        agent = self.agent_of(name)
        try:
            has_file = agent in list_agent_files(home)
            file = load_agent_file(home, agent) if has_file else None
            role = load_role(find_role(file.role if file else self.role, home.roles))
        except BullpenError as error:
            yield "role", error.message
            return
        for why in why_unfit(file.apply_to(role) if file else role):
            yield "role", f"{role.name} {why}"


def why_unfit(role: Role) -> Iterator[str]:
    """Why an agent of that role must not lead. Pure."""
    if "delegate" not in role.capabilities:
        yield "may not give tasks · capabilities: [delegate]"
    if role.sandbox.enabled is False:
        yield "has no sandbox · sandbox: {enabled: true}"
    if "." not in role.sandbox.read_only_paths:
        yield "could change the project · sandbox: {read_only_paths: [.]}"
    if open_tools := [tool for tool in EDITING if tool not in role.permissions.deny]:
        yield f"could change files · permissions: {{deny: [{', '.join(open_tools)}]}}"
