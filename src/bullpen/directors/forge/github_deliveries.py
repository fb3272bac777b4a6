"""How GitHub's webhooks are signed, and what they name. Pure."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from bullpen.directors.forge.deliveries import Deliveries, Delivery, dig, numbers, words

SIGNATURE = "x-hub-signature-256"
FORM = re.compile("sha256=[0-9a-f]{64}")
OF_COMMITS = ("check_run", "check_suite", "workflow_run", "workflow_job")


def may_be_genuine(_: str, headers: Mapping[str, str]) -> bool:
    """By the form of its signature: whether it is right depends on the body."""
    return FORM.fullmatch(headers.get(SIGNATURE, "")) is not None


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By its signature of the body, byte by byte as it came."""
    wanted = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    return hmac.compare_digest(wanted.encode(), headers.get(SIGNATURE, "").encode())


def parse(payload: Mapping[str, object]) -> Delivery:
    """By what is in the body: headers like `X-GitHub-Event` are not signed."""
    number = dig(payload, "issue", "number")
    is_pull = dig(payload, "issue", "pull_request") is not None
    commits = [dig(payload, kind, "head_sha") for kind in OF_COMMITS]
    return Delivery(
        repo="".join(words(dig(payload, "repository", "full_name"))),
        issues=numbers(None if is_pull else number),
        pulls=numbers(number if is_pull else None, dig(payload, "pull_request", "number")),
        commits=words(dig(payload, "sha"), *commits),
    )


GITHUB = Deliveries(may_be_genuine, is_genuine, parse)
