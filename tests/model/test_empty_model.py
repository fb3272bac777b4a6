"""`model: ""`, as a form or a line that was only emptied has it."""

from typing import Any

import pytest
from pydantic import BaseModel

from bullpen.directors.forge.config import ForgeConfig
from bullpen.directors.manager.config import ManagerConfig
from bullpen.directors.manager.goals import GoalRequest
from bullpen.directors.scheduler.config import Entry
from bullpen.model.agent_file import TaskRunSettings
from bullpen.model.role import ReviewerSettings
from bullpen.model.task import QueuedTaskRequest, TaskRequest

ENTRY = {"name": "a", "cron": "@daily", "prompt": "x", "agent": "amy"}
FORGE = {"type": "github", "port": 9000, "repo": "a/b", "agent": "amy"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (TaskRequest, {"prompt": "x"}),
        (QueuedTaskRequest, {"prompt": "x"}),
        (TaskRunSettings, {}),
        (ReviewerSettings, {}),
        (Entry, ENTRY),
        (ForgeConfig, FORGE),
        (ManagerConfig, {}),
        (GoalRequest, {"prompt": "x"}),
    ],
)
def test_t1_an_empty_model_is_the_default_wherever_one_may_be_named(
    kind: type[BaseModel], fields: dict[str, Any]
) -> None:
    assert kind.model_validate({**fields, "model": ""}) == kind.model_validate(fields)
