"""Parameters and answers that several nouns share: names, text or JSON, how wide, how long."""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel
from starlette.responses import JSONResponse

from bullpen import clock

Name = Annotated[
    str,
    Path(max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]*$", description="an agent's name"),
]
Grace = Annotated[
    float | None,
    Query(
        ge=0,
        le=86400,
        allow_inf_nan=False,
        description="seconds between SIGTERM and SIGKILL; else the setting `stop_grace`",
    ),
]
AsText = Annotated[bool, Query(description="plain text for people, not JSON")]
# JSON as commands print it, for `hot/fast.py`: times as text, which the schema does not say.
Iso = Annotated[bool, Query(include_in_schema=False)]
Colour = Annotated[bool, Query(description="text with colours for a terminal")]
Columns = Annotated[int, Query(ge=0, le=9999, description="of the text; 0: no limit")]
TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/plain": {"schema": {"type": "string"}}},
        "description": "JSON; with `text` plain text",
    }
}


def as_json(value: BaseModel, iso: bool) -> Any:
    """The answer of a route that takes `iso`."""
    if not iso:
        return value
    return JSONResponse(clock.with_iso_times(value.model_dump(mode="json", by_alias=True)))
