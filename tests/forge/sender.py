"""A forge's webhooks: what GitHub and GitLab send when something happens, with their headers.

sender = GITHUB
body = encoded(sender.issue(3))
post(port, body, sender.headers("secret", body))
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from bullpen.directors.forge.deliveries import Deliveries
from bullpen.directors.forge.github import GitHubForge
from bullpen.directors.forge.github_deliveries import GITHUB as GITHUBS
from bullpen.directors.forge.gitlab import GitLabForge
from bullpen.directors.forge.gitlab_deliveries import GITLAB as GITLABS
from tests.forge.gitlab_routes import MERGE_REQUESTS
from tests.forge.server import served_github, served_gitlab

REPO = "acme/shop"
SECRET = "not-a-real-secret"
Payload = dict[str, Any]


@dataclass(frozen=True)
class Sender:
    """One forge: its fake, its adapter, and what it sends."""

    name: str
    served: Any
    adapter: Any
    deliveries: Deliveries
    headers: Callable[[str, bytes], dict[str, str]]
    issue: Callable[[int], Payload]
    comment: Callable[[int], Payload]
    pull_comment: Callable[[int], Payload]
    check: Callable[[str], Payload]


def encoded(payload: Payload) -> bytes:
    return json.dumps(payload).encode()


def signature(secret: str, body: bytes) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def post(port: int, body: bytes, headers: dict[str, str], path: str = "/webhook") -> httpx.Response:
    return httpx.post(
        f"http://127.0.0.1:{port}{path}",
        content=body,
        headers={"Content-Type": "application/json", **headers},
        timeout=60,
    )


def _of_github(event: str, **fields: Any) -> Payload:
    return {"action": event, **fields, "repository": {"full_name": REPO}, "sender": {"login": "x"}}


def _of_gitlab(kind: str, **fields: Any) -> Payload:
    return {"object_kind": kind, **fields, "project": {"path_with_namespace": REPO}}


GITHUB = Sender(
    "github",
    served_github,
    GitHubForge,
    GITHUBS,
    lambda secret, body: {
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-Hub-Signature-256": signature(secret, body),
    },
    lambda number: _of_github("opened", issue={"number": number, "title": "t"}),
    lambda number: _of_github("created", issue={"number": number}, comment={"id": 1}),
    lambda number: _of_github(
        "created", issue={"number": number, "pull_request": {"url": "u"}}, comment={"id": 1}
    ),
    lambda commit: _of_github("completed", check_run={"id": 1, "head_sha": commit}),
)
GITLAB = Sender(
    "gitlab",
    served_gitlab,
    GitLabForge,
    GITLABS,
    lambda secret, body: {"X-Gitlab-Event": "Issue Hook", "X-Gitlab-Token": secret},
    lambda number: _of_gitlab("issue", object_attributes={"id": 9, "iid": number}),
    lambda number: _of_gitlab("note", object_attributes={"id": 9}, issue={"iid": number}),
    lambda number: _of_gitlab(
        "note", object_attributes={"id": 9}, merge_request={"iid": MERGE_REQUESTS + number}
    ),
    lambda commit: _of_gitlab("pipeline", object_attributes={"id": 9, "sha": commit}),
)
SENDERS = (GITHUB, GITLAB)
