"""How GitLab's webhooks say who sends them, and what they name. Pure."""

import hmac
from collections.abc import Mapping

from bullpen.directors.forge.deliveries import Deliveries, Delivery, dig, numbers, words

TOKEN = "x-gitlab-token"
ISSUES = ("issue", "work_item")


def has_token(secret: str, headers: Mapping[str, str]) -> bool:
    """Whether the secret token is there, which it sends as it is."""
    return hmac.compare_digest(secret.encode(), headers.get(TOKEN, "").encode())


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By the token alone: nothing signs the body."""
    del body
    return has_token(secret, headers)


def parse(payload: Mapping[str, object]) -> Delivery:
    """Of an issue or a merge request itself, or of what happened at one: notes, emoji, jobs."""
    kind, own = dig(payload, "object_kind"), dig(payload, "object_attributes", "iid")
    return Delivery(
        repo="".join(words(dig(payload, "project", "path_with_namespace"))),
        issues=numbers(own if kind in ISSUES else None, dig(payload, "issue", "iid")),
        pulls=numbers(
            own if kind == "merge_request" else None, dig(payload, "merge_request", "iid")
        ),
        commits=words(dig(payload, "sha"), dig(payload, "object_attributes", "sha")),
    )


GITLAB = Deliveries(has_token, is_genuine, parse)
