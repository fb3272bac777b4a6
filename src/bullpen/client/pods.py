"""Calls of `/pods`: start one from a template, list them, stop one. No I/O."""

import uuid
from typing import TYPE_CHECKING

from bullpen.client.call import Call, Models, Stream, given, path
from bullpen.client.streams import Lines
from bullpen.model.pod_step import PodStep

if TYPE_CHECKING:
    from bullpen.client.shell import Shell
    from bullpen.model.agent_shown import AgentShown, PodShown


def list_pods() -> "Call[list[PodShown]]":
    """All pods that an agent belongs to."""
    return Call("GET", path("pods"), read=Models("agent_shown.PodShown"))


def start_pod(
    shell: "Shell",
    template: str,
    *,
    pod: str | None = None,
    session: str | None = None,
    prompt: str | None = None,
    run: str | None = None,
) -> Stream[PodStep]:
    """Start all agents of a template, or none; the last step says how it ended. The same `run`
    starts one pod."""
    body = {
        **shell.to_json(),
        "template": template,
        "run": run or uuid.uuid4().hex,
        **given(pod=pod, session=session, prompt=prompt),
    }
    return Stream(
        "POST", path("pods"), body=body, again=True, reader=lambda: Lines(PodStep.from_json)
    )


def stop_pod(name: str, grace: float | None = None) -> "Call[list[AgentShown]]":
    """Stop all agents of a pod, at once; answered when all are over."""
    return Call(
        "DELETE",
        path("pods", name),
        {"grace": grace},
        again=True,
        read=Models("agent_shown.AgentShown"),
    )
