"""Fields of what hubs send each other. Pure. Another hub has written them: each says what it may
be."""

import re
from typing import Annotated

from pydantic import Field

Id = Annotated[str, Field(pattern=r"^m-[0-9a-f]{12}$")]
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,79}")
AgentName = Annotated[str, Field(pattern=f"^{AGENT_NAME.pattern}$")]
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=0, lt=1 << 53)]  # fits into the database, and into JSON anywhere
Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
