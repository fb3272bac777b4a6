"""The file of a manager: whose agent leads, and where it looks.

Read by `director`. STARTER is what `director init claude` writes; a test compares the two. A role
that could change files itself, or that nothing holds back, is an error of the file.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from bullpen.directors.config import DirectorConfig
from bullpen.errors import BullpenError
from bullpen.home.agent_files import list_agent_files, load_agent_file
from bullpen.home.paths import Home, person_home
from bullpen.home.projects import load_project
from bullpen.home.roles import find_role, load_role
from bullpen.home.settings import load_settings
from bullpen.home.workdirs import checked_directory, named_directory
from bullpen.model.fields import AgentName, ModelName, PositiveDuration, RoleName, Text
from bullpen.model.role import Role
from bullpen.worktrees.git import has_commits, is_repository, open_repository

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


def starter_for(workdir: Path) -> str:
    """STARTER for who stands in that repository."""
    named = f"workdir: {json.dumps(str(workdir), ensure_ascii=False)} #"
    return STARTER.replace("# workdir: /home/me/shop #", named)


class ManagerConfig(DirectorConfig):
    """The whole file."""

    type: Literal["claude"] = "claude"
    role: RoleName = "manager"
    agent: AgentName | None = None
    workdir: Text | None = None
    project: Text | None = None
    model: ModelName = None
    timeout: PositiveDuration | None = None

    @field_validator("workdir")
    @classmethod
    def _no_relative(cls, text: str | None) -> str | None:
        if text is not None and not named_directory(Path("/"), text).is_absolute():
            raise ValueError(f"{text} is no absolute path")  # a director has no directory
        return text

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

    def notes(self, home: Home) -> Iterator[str]:
        """Where its goals are worked on; that a directory is missing is no error of the file."""
        if self.workdir is None and self.project is None:
            yield (
                "its file has neither workdir nor project: goals that name none are worked on in an"
                " empty directory"
            )
        try:
            if self.workdir is not None:
                settings = load_settings(home.config_file)
                directory = checked_directory(home, settings, person_home(), self.workdir)
                if is_repository(directory) and not has_commits(open_repository(directory)):
                    yield (
                        f"{self.workdir} has no commit yet: no task of a goal can have a branch"
                        " there · git commit"
                    )
            if self.project is not None:
                load_project(home, self.project)
        except BullpenError as error:
            hint = f" · {error.hint}" if error.hint else ""
            yield f"goals that name no other place cannot be worked on: {error.message}{hint}"

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
