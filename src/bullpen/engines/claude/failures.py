"""Why a turn of Claude Code got no answer, in a few words. Pure.

Its hook StopFailure (2.1.325) has a kind in `error`, and what is on its screen in
`last_assistant_message`: `Not logged in · Please run /login`, `API Error: 500 …`.
"""

import re
from collections.abc import Mapping
from typing import Any

STATUS = re.compile(r"API Error: ([45][0-9]{2})\b")
KIND = re.compile(r"[a-z]{2,20}(_[a-z]{2,20}){0,4}")
NO_LOGIN = "authentication_failed"


def find_failure(hook: Mapping[str, Any]) -> str:
    """`not logged in`, `login refused, API 401`, `API 500`; empty at a rate limit, which is no
    failure: it passes by itself (`limits`)."""
    kind = str(hook.get("error") or "")
    if kind == "rate_limit":
        return ""
    status = STATUS.search(str(hook.get("last_assistant_message") or "")[:2000])
    if kind == NO_LOGIN:
        return f"login refused, API {status[1]}" if status else "not logged in"
    if status:
        return f"API {status[1]}"
    is_known = kind != "unknown" and KIND.fullmatch(kind)
    return kind.replace("_", " ") if is_known else "API error"
