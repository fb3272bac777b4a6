"""A director as the API shows it: who is let in, and how it stands. Pure."""

from typing import Annotated, Literal

from pydantic import Field

from bullpen.model.component import Phase
from bullpen.model.value import Value

GONE = "its process has ended, and nobody starts it again"
DirectorState = Phase | Literal["running", "restarting", "gone", "stopped"]


class DirectorLetIn(Value):
    """Whose token counts, and since when. Of the token itself nothing is shown."""

    name: str
    since: float  # seconds since 1970


class DirectorShown(Value):
    """One that has a file or is let in. `running`: it has not said yet how it is; `gone`: its
    process has ended, and nobody starts it again. `stopped` with a `file_problem`: nobody can start
    it."""

    name: str
    state: DirectorState
    since: Annotated[
        float | None, Field(description="of that process, or of its crash; seconds since 1970")
    ] = None
    problem: Annotated[str, Field(description="what holds it up; empty: nothing")] = ""
    restarts: Annotated[int, Field(description="after crashes, since it was started")] = 0
    again_at: Annotated[float | None, Field(description="when it is started again")] = None
    pid: int | None = None
    file_problem: Annotated[
        str, Field(description="what is wrong with its file as it is now; empty: nothing")
    ] = ""
