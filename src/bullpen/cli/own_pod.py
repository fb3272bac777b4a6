"""The pod that a command runs in."""

import os


def own_pod() -> str | None:
    """That of the agent, or of the shell, that runs this command."""
    return os.environ.get("BULLPEN_POD") or None


def pod_in_effect(given: str | None) -> str | None:
    """`--pod`, else the pod that this command runs in."""
    return given or own_pod()
