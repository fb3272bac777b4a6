"""What hosts write about a task for all to read: what is asked, and how it stands. Signed.

The asker signs what is asked, whoever takes it signs how it stands. A signature is over the
subject, which names the asker and the task: nothing counts at another place. Pure.
"""

import base64
import binascii
import json
from typing import Literal

from pydantic import Field

from bullpen.errors import BullpenError
from bullpen.fleet.signed import SignedRecords
from bullpen.model.parcel import Parcel
from bullpen.model.task import Cancelled as TaskCancelled
from bullpen.model.task import Completed, Failed, Run, Wish
from bullpen.model.value import Value

MOST_BYTES = 900 << 10  # of one message, below the server's limit
MOST_NEED = 240  # a name of the server's has at most 255 characters
OUTPUT_BYTES = 256 << 10  # of what a task came to; the rest stays where it was done
KEPT_SECONDS = 14 * 86400.0  # of everything here
OLDEST_SECONDS = KEPT_SECONDS / 2  # nobody takes what is older: its end may be forgotten by then


class TaskRecord(Value):
    """What is asked. The wish has no directory: `parcel` brings the repository, if there is one."""

    at: float
    wish: Wish
    role: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    repo_name: str = ""
    parcel: Parcel | None = None

    @property
    def need(self) -> str:
        """Of an agent."""
        return name_need(self.role, self.labels, sandboxed=bool(self.wish.sandboxed))


class Result(Value):
    """What a task came to."""

    status: Completed | Failed | TaskCancelled = Field(discriminator="state")
    started: float | None = None
    ended: float
    output: str | None = None
    runs: tuple[Run, ...] = ()
    commits: tuple[str, ...] = ()
    commit_count: int = 0
    warnings: tuple[str, ...] = ()
    parcel: Parcel | None = None


def by_own_clock(result: Result, created: float, now: float) -> Result:
    """Its times as the clock here has them, if that of the other machine is wrong for certain: a
    task ends before one hears of it, and begins after it was asked for. Pure."""
    runs = [moment for run in result.runs for moment in (run.began, run.ended)]
    moments = [result.ended, *runs, *([result.started] if result.started is not None else [])]
    shift = min(0.0, now - max(moments)) or max(0.0, created - min(moments))
    if not shift:
        return result

    def here(moment: float) -> float:
        return max(created, min(moment + shift, now))

    changed: dict[str, object] = {
        "started": here(result.started) if result.started is not None else None,
        "ended": here(result.ended),
        "runs": tuple(
            run.model_copy(update={"began": here(run.began), "ended": here(run.ended)})
            for run in result.runs
        ),
    }
    return result.model_copy(update=changed)


class Standing(Value):
    """How a task stands: `epoch` counts those who took it. `free`: it was given back, `why`."""

    kind: Literal["leased", "free", "ended"]
    epoch: int
    beat: int = 0  # of a lease
    by: str
    agent: str = ""
    why: str = ""
    result: Result | None = None


class Signed(SignedRecords):
    """Records of tasks."""

    def write(self, subject: str, value: TaskRecord | Standing) -> bytes:
        """As it is sent there; BullpenError if it is too long."""
        data = self.sign(subject, value)
        check_size(len(data))
        return data

    def read_asked(self, subject: str, data: bytes) -> TaskRecord:
        """BullpenError if the host of the subject never said it."""
        frame, record, _ = self.parse(subject, data, TaskRecord)
        self.check(frame, subject.split(".")[1])
        return record

    def read_standing(self, subject: str, data: bytes) -> Standing:
        """BullpenError if the host that it names never said it."""
        frame, standing, _ = self.parse(subject, data, Standing)
        self.check(frame, standing.by)
        if standing.kind == "ended" and standing.result is None:
            raise BullpenError(f"{standing.by} says that it is over, and not how")
        return standing


def check_size(size: int) -> None:
    """BullpenError if it is more than one message may have, with what is said beside it."""
    if size > MOST_BYTES:
        raise BullpenError(
            f"a task for the fleet may have {MOST_BYTES >> 10} KiB, and this one has {size >> 10}",
            hint="put the long part of the prompt into a file of the repository",
        )


def name_need(role: str, labels: dict[str, str], *, sandboxed: bool = False) -> str:
    """What a task needs of an agent, as a word of a subject."""
    need = [role, sorted(labels.items()), *([True] if sandboxed else ())]
    text = json.dumps(need, separators=(",", ":"))
    word = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    if len(word) > MOST_NEED:
        raise BullpenError("a task for the fleet cannot have so long a role and labels")
    return word


def parse_need(word: str) -> tuple[str, dict[str, str], bool] | None:
    """Role, labels, and whether it has to be in a sandbox; None for what is none."""
    try:
        role, labels, *more = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        if more not in ([], [True]):
            return None
        return str(role), {str(name): str(value) for name, value in labels}, bool(more)
    except (binascii.Error, ValueError, TypeError):
        return None
