"""Pods that run one after the other, and how they end."""

import json
from pathlib import Path

from tests.hub.pods.support import write_template
from tests.hub.tasks.desk import SECONDS, Desk
from tests.hub.tasks.office import FREE
from tests.waiting import wait_until
from tests.worktrees.repos import git, make_repo

WHO = "git -c user.name=Amy -c user.email=a@b.c"


def script(file: str, *steps: str) -> str:
    """Commit a file, then do the steps."""
    command = f"echo new > {file} && git add {file} && {WHO} commit -qm {file}"
    tool = f"tool Bash {json.dumps({'command': command})}"
    return f"[[{' ; '.join((tool, *steps))}]]"


def write_pod(desk: Desk, name: str, *prompts: tuple[str, str], **fields: str) -> Path:
    """A sequence of members with these prompts, and a repository for it."""
    rules = {"worktree": {"enabled": True}, "sandbox": {"enabled": False}, **FREE}
    desk.role("worker", **rules)
    agents = [
        f"name: {member}, role: worker, prompt: {json.dumps(prompt)}" for member, prompt in prompts
    ]
    write_template(desk.pen, name, *agents, workflow="sequence", **fields)
    repo = make_repo(desk.pen.root.parent / f"repo-{name}")
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.com")):
        git(repo, "config", key, value)  # who lands
    return repo


def tasks_of(desk: Desk, *names: str) -> list[dict[str, object]]:
    history = desk.pen.client().get("history")["items"]
    return [task for task in history if task["agent"] in names]


def ends(desk: Desk, pod: str) -> list[str]:
    return [
        event["failed"] for event in desk.pen.events(kind="pod.finished") if event["pod"] == pod
    ]


def wait_end(desk: Desk, pod: str) -> str:
    wait_until(lambda: ends(desk, pod), SECONDS)
    [end] = ends(desk, pod)
    return end
