"""The base class of Bullpen's values: immutable, and tolerant of what a later version adds."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Never changes after it was made. Unknown keys are ignored: a later version wrote them."""

    model_config = ConfigDict(frozen=True, extra="ignore")
