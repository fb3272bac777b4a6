"""The file of a scheduler: `schedule`, a list of entries, each with its time and its task.

Read by `director` and `bullpen schedule`. STARTER is what `director init scheduler` writes; a test
compares the two.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, model_validator

from bullpen.directors.config import DirectorConfig
from bullpen.directors.scheduler.cron import check_cron, check_zone
from bullpen.model.fields import (
    AgentName,
    Block,
    Labels,
    ModelName,
    PositiveDuration,
    RoleName,
    Text,
    matching,
)

STARTER = """\
# A scheduler: gives tasks by the clock. bullpen director start NAME
# Changes of the schedule count at once; bullpen validate --all checks.
type: scheduler
# name: nightly        # the name of this file
# port: 9150           # without one, the first that is free
# log_level: info
# autostart: true      # bullpen up starts it
# discovery:
#   method: scan
# schedule:
#   - name: tidy
#     cron: 30 2 * * MON-FRI   # minute hour day month weekday, or @hourly, @daily …
#     prompt: Look for TODO comments that are done, and remove them.
#     role: coder              # or agent: NAME, or labels: {team: web}; none: whoever is free
#     project: shop            # a file in projects/
#     workdir: /home/me/shop   # or this; neither: an empty directory
#     model: sonnet
#     timezone: Europe/Berlin  # without one, this machine's
#     overlap: skip            # the last run is not over: skip this one, queue it, or allow both
#     catch_up: none           # missed while it was down: none, once, or all
#     timeout: 1h              # for a free agent; then again for the task
#     fleet: false             # true, on any machine; what is committed in workdir goes there, and
#                              # comes back as a branch, schedule/NAME-TIME
schedule: []
"""


class Entry(Block):
    """One line of the schedule."""

    name: Annotated[
        str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "letters, digits and . _ -, at most 63")
    ]
    cron: Annotated[str, AfterValidator(check_cron)]
    prompt: Text
    agent: AgentName | None = None
    role: RoleName | None = None
    labels: Labels = Field(default_factory=dict)
    project: Text | None = None
    workdir: Text | None = None
    model: ModelName = None
    timezone: Annotated[str, AfterValidator(check_zone)] | None = None
    overlap: Literal["skip", "queue", "allow"] = "skip"
    catch_up: Literal["none", "once", "all"] = "none"
    timeout: PositiveDuration = timedelta(hours=1)
    fleet: bool = False

    @model_validator(mode="after")
    def _is_for_one_machine_or_all(self) -> "Entry":
        if self.fleet and (self.agent is not None or self.project is not None):
            raise ValueError(
                "fleet: true goes with role or labels, not with agent; with workdir, not project"
            )
        return self

    @model_validator(mode="after")
    def _has_one_taker(self) -> "Entry":
        if self.agent is not None and (self.role is not None or self.labels):
            raise ValueError("agent says who takes it: no role and no labels beside it")
        return self


def _unlike(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    names = [entry.name for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two entries are called {', '.join(twice)}")
    return entries


class SchedulerConfig(DirectorConfig):
    """The whole file."""

    type: Literal["scheduler"] = "scheduler"
    schedule: Annotated[tuple[Entry, ...], Strict(False), AfterValidator(_unlike)] = ()


def entry_fields(entry: Entry) -> dict[str, Any]:
    """As a file has it: what was said, and no more."""
    fields: dict[str, Any] = entry.model_dump(mode="json", exclude_defaults=True)
    return fields
