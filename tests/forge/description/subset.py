"""Makes the part of GitHub's description that the tests need: `subset.py WHOLE OUT`.

The paths below with all that they refer to, without texts and examples. One correction: an enum
of something nullable has to hold null, which the description forgets.
"""

import json
import sys
from pathlib import Path
from typing import Any

ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}"
PULL = "/repos/{owner}/{repo}/pulls/{pull_number}"
PATHS = (
    "/user",
    "/rate_limit",
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/actions/jobs/{job_id}/logs",
    "/repos/{owner}/{repo}/collaborators/{username}/permission",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "/repos/{owner}/{repo}/commits/{ref}/status",
    "/repos/{owner}/{repo}/issues",
    ISSUE,
    f"{ISSUE}/assignees",
    f"{ISSUE}/comments",
    f"{ISSUE}/labels",
    f"{ISSUE}/reactions",
    "/repos/{owner}/{repo}/pulls",
    PULL,
    f"{PULL}/comments",
    f"{PULL}/reviews",
)
TEXTS = {"description", "example", "examples", "externalDocs", "x-github", "x-webhooks", "summary"}


def without_texts(value: Any, is_names: bool = False) -> Any:
    """`is_names`: its keys are names of properties, and one of them may be `description`."""
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: without_texts(each, key in ("properties", "schemas") and not is_names)
        for key, each in value.items()
        if is_names or key not in TEXTS
    }
    if not is_names and kept.get("nullable") is True and None not in kept.get("enum", [None]):
        kept["enum"] = [*kept["enum"], None]
    return kept


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {found for each in value for found in references(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own | {found for each in value.values() for found in references(each)}


def subset(whole: dict[str, Any]) -> dict[str, Any]:
    paths = without_texts({path: whole["paths"][path] for path in PATHS}, is_names=True)
    components: dict[str, dict[str, Any]] = {}
    waiting = references(paths)
    while waiting:
        _, _, kind, name = waiting.pop().split("/")
        if name not in components.setdefault(kind, {}):
            components[kind][name] = without_texts(whole["components"][kind][name])
            waiting |= references(components[kind][name])
    responses = [
        *components.get("responses", {}).values(),
        *(
            response
            for path in paths.values()
            for operation in path.values()
            for response in operation["responses"].values()
        ),
    ]
    for response in responses:
        if "$ref" not in response:
            response["description"] = ""  # the form requires one
    info = {"title": "GitHub REST API (part)", "version": whole["info"]["version"]}
    return {"openapi": whole["openapi"], "info": info, "paths": paths, "components": components}


if __name__ == "__main__":
    whole = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(subset(whole)))
