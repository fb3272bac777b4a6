"""Calls of `/agents`: list, start, look at, type into, stop, start again. No I/O."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bullpen.client.call import Call, Model, given, path

if TYPE_CHECKING:
    from bullpen.client.shell import Shell
    from bullpen.model.agent_shown import (
        AgentList,
        AgentRemoved,
        AgentShown,
        AgentStarted,
        AgentWithUsage,
        Diff,
        Explained,
        Screenful,
        Typed,
    )


def list_agents(pod: str | None = None, own_pod: str | None = None) -> "Call[AgentList]":
    """All agents, those that have ended too; of one pod, `*` for all pods. `own_pod` counts when
    `pod` is not given. Its text takes `colour`."""
    return Call(
        "GET",
        path("agents"),
        {"pod": pod, "own_pod": own_pod},
        read=Model("agent_shown.AgentList"),
    )


def start_agent(
    shell: "Shell",
    *,
    kind: Literal["interactive", "headless"] | None = None,
    role: str | None = None,
    name: str | None = None,
    pod: str | None = None,
    words: Sequence[str] | None = None,
    overrides: Sequence[str] | None = None,
    prompt: str | None = None,
    branch: str | None = None,
    resume: bool | None = None,
    conversation: str | None = None,
    run: str | None = None,
) -> "Call[AgentStarted]":
    """Start an agent; answered when its program runs. The same `run` starts it once. With `resume`
    it goes on with the `conversation` of that id, else with its last one."""
    options = given(
        kind=kind,
        role=role,
        name=name,
        pod=pod,
        words=words,
        overrides=overrides,
        prompt=prompt,
        branch=branch,
        resume=resume,
        conversation=conversation,
    )
    body = {**shell.to_json(), "run": run or uuid.uuid4().hex, **options}
    return Call(
        "POST", path("agents"), body=body, again=True, read=Model("agent_shown.AgentStarted")
    )


def get_agent(name: str) -> "Call[AgentWithUsage]":
    """One agent, running or ended."""
    return Call("GET", path("agents", name), read=Model("agent_shown.AgentWithUsage"))


def stop_agent(name: str, grace: float | None = None) -> "Call[AgentShown]":
    """End its program; `grace` is the time in seconds between SIGTERM and SIGKILL."""
    return Call(
        "DELETE",
        path("agents", name),
        {"grace": grace},
        again=True,
        read=Model("agent_shown.AgentShown"),
    )


def restart_agent(name: str, grace: float | None = None) -> "Call[AgentStarted]":
    """Start it again with the same identity; stopped first if it runs."""
    return Call(
        "POST",
        path("agents", name, "restart"),
        {"grace": grace},
        read=Model("agent_shown.AgentStarted"),
    )


def resume_agent(name: str) -> "Call[AgentStarted]":
    """Start an agent that has ended again, with its conversation."""
    return Call("POST", path("agents", name, "resume"), read=Model("agent_shown.AgentStarted"))


def remove_agent(
    name: str, grace: float | None = None, *, keep_branch: bool = False, discard: bool = False
) -> "Call[AgentRemoved]":
    """End it, and remove its session and its worktree; refused if work would be lost, unless it is
    to be discarded (a copy stays for 30 days). Its branch goes along if it is merged, unless it is
    kept."""
    return Call(
        "POST",
        path("agents", name, "remove"),
        {"grace": grace, "keep_branch": keep_branch or None, "discard": discard or None},
        read=Model("agent_shown.AgentRemoved"),
    )


def plan_removal(
    name: str, *, keep_branch: bool = False, discard: bool = False
) -> "Call[AgentRemoved]":
    """What `remove_agent` would do now, or the same refusal. Nothing is stopped or changed."""
    return Call(
        "GET",
        path("agents", name, "removal"),
        {"keep_branch": keep_branch or None, "discard": discard or None},
        read=Model("agent_shown.AgentRemoved"),
    )


def type_into(name: str, text: str | list[str]) -> "Call[Typed]":
    """Type into its terminal, as it is: a line ends with a carriage return. Several texts are typed
    one after the other, as a person would."""
    return Call(
        "POST", path("agents", name, "input"), body={"text": text}, read=Model("agent_shown.Typed")
    )


def get_screen(name: str) -> "Call[Screenful]":
    """What its terminal shows now."""
    return Call("GET", path("agents", name, "screen"), read=Model("agent_shown.Screenful"))


def explain(name: str) -> "Call[Explained]":
    """Its state, and all the evidence that it rests on; and why messages wait."""
    return Call("GET", path("agents", name, "explain"), read=Model("agent_shown.Explained"))


def get_diff(name: str) -> "Call[Diff]":
    """What it has changed in its worktree since that was made."""
    return Call("GET", path("agents", name, "diff"), read=Model("agent_shown.Diff"))
