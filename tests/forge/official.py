"""Holds every request to a fake, and every answer of it, to the forge's own description.

`scripts/forge-api` makes that of GitHub. That of GitLab has another licence than this project: it
is used from where it lies, if it is there. Without one nothing is checked: the tests that are about
the check are skipped, and all others say so by a skip of their own (`conftest`).
"""

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from tests.forge.description.subset import PATHS

FILE = Path(__file__).parents[2] / ".engines" / "github-api.json"
GITLAB_FILE = Path(__file__).parents[3] / "shared" / "data" / "gitlab-subset.json.gz"
# What that part of GitLab's description has not: `commits` without their statuses, and no jobs.
UNDESCRIBED = re.compile(r"/api/v4/projects/[^/]+/(repository/commits/\w+/statuses|jobs/\d+/trace)")
unchecked: set[Path] = set()  # descriptions that were wanted in this test, and are not there
# One path parameter holds slashes, and is matched only with these encoded.
REF = re.compile(r"(?<=/commits/)(.+)(?=/check-runs$)")


@functools.cache
def is_there(file: Path = FILE) -> bool:
    """Whether it can be used: one that was made for other paths cannot."""
    if not file.exists():
        return False
    return file != FILE or json.loads(file.read_bytes())["paths"].keys() >= set(PATHS)


@functools.cache
def _api(base: str, file: Path) -> Any:
    """Loading is slow (0.6 s), and only done where a request is checked."""
    from openapi_core import Config, OpenAPI

    packed = file.read_bytes()
    description = json.loads(gzip.decompress(packed) if file.suffix == ".gz" else packed)
    description["servers"] = [{"url": base}]
    # With validation of the description itself it takes 33 s.
    return OpenAPI.from_dict(description, config=Config(spec_validator_cls=None))


def why_unchecked() -> str:
    """What a test says whose exchanges nobody has checked."""
    files = ", ".join(str(file) for file in sorted(unchecked))
    return f"it passed, and its exchanges with the fake were not checked: there is no {files}"


def find_faults(
    base: str,
    method: str,
    target: str,
    body: bytes,
    status: int,
    answer: bytes,
    file: Path = FILE,
) -> tuple[str, ...]:
    """What in this exchange is not as the description says; nothing where it is not there, which
    is noted."""
    if not is_there(file):
        unchecked.add(file)
        return ()
    return _find_faults(base, method, target, body, status, answer, file)


@functools.cache  # a poll asks the same again and again
def _find_faults(
    base: str,
    method: str,
    target: str,
    body: bytes,
    status: int,
    answer: bytes,
    file: Path,
) -> tuple[str, ...]:
    if UNDESCRIBED.fullmatch(urlsplit(target).path):
        return ()
    from openapi_core.exceptions import OpenAPIError
    from openapi_core.testing import MockRequest, MockResponse

    parts = urlsplit(target)
    request = MockRequest(
        base,
        method.lower(),
        REF.sub(lambda found: quote(found[1], safe=""), parts.path),
        args=dict(parse_qsl(parts.query)),
        data=body or None,
        content_type="application/json",
    )
    faults = []
    if status != 422:  # that is how GitHub says itself that a request is wrong
        try:
            _api(base, file).validate_request(request)
        except OpenAPIError as error:
            faults.append(_text("request", method, target, error))
    # Refusals that any path may give are not described for each.
    if status not in (304, 401, 403, 404, 409, 429, 502):
        try:
            _api(base, file).validate_response(
                request, MockResponse(answer, status, content_type="application/json")
            )
        except OpenAPIError as error:
            faults.append(_text(f"answer {status}", method, target, error))
    return tuple(faults)


def _text(what: str, method: str, target: str, error: Exception) -> str:
    cause = error.__cause__
    inner = getattr(cause, "schema_errors", None) or [cause or error]
    return f"{what} of {method} {target}: {error}: " + "; ".join(str(each)[:600] for each in inner)
