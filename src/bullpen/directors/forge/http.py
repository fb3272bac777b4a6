"""HTTP as forges want it: every GET is conditional, lists come in pages, a limit says how long.

Used by the adapters. Never retries and never waits: that is the loop's. Never follows a
redirection, which would take the token along, but to a log, without it. githubkit was tried: with
its cache (hishel 1.4) a list that has changed once is asked for with its old ETag for ever, and the
rest of it is 57 MB.
"""

import contextlib
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bullpen import clock
from bullpen.client.plain_httpx import httpx
from bullpen.directors.failures import ActionError, LimitError, Verdict

SECONDS = 30.0
PAGE = 100
MOST_PAGES = 100
MOST_BYTES = 32 << 20  # of one answer; a page of the longest comments has about 26 MiB
MOST_KEPT_BYTES = 32 << 20  # of all answers that are kept for their ETags
ENTRY_BYTES = 1000  # what a kept answer takes beside its text
CHUNK_BYTES = 1 << 16
NO_LOG = (403, 404, 410)  # not for this token, not there, too old
LIMIT_SECONDS = 60.0  # where a limit does not say how long it lasts


@dataclass(frozen=True)
class Answer:
    """One answer: its JSON and its headers."""

    status: int
    json: Any
    headers: Mapping[str, str]
    bytes: int = 0


class ForgeHttp:
    """Requests to one forge. `headers` are asked each time: a person may have set a new token;
    answers to the old one are then forgotten."""

    def __init__(
        self, forge: str, base: str, headers: Callable[[], Mapping[str, str]], credential: str
    ) -> None:
        self._forge = forge
        self._base = base.rstrip("/")
        self._headers = headers
        self._credential = credential
        self._used: Mapping[str, str] = {}
        self._kept: OrderedDict[str, Answer] = OrderedDict()  # the one used last is the last
        # Reading all certificates for each request takes 20 ms.
        self._tls = ssl.create_default_context()

    async def get(
        self, target: str, params: Mapping[str, str] | None = None, accept: tuple[int, ...] = ()
    ) -> Answer:
        """The answer; the one of before if it still holds, which costs nothing of a limit."""
        headers = dict(self._current_headers())
        key = f"{target}?{sorted((params or {}).items())}"
        kept = self._kept.get(key)
        if kept is not None:
            headers["If-None-Match"] = kept.headers["etag"]
        answer = await self._ask("GET", target, headers, params=params, accept=(304, *accept))
        if kept is not None and answer.status == 304:
            self._kept.move_to_end(key)
            # Of the list as it is now: it may have got a next page without a change of this one.
            return replace(kept, headers={**kept.headers, **answer.headers})
        self._kept.pop(key, None)
        if answer.status == 200 and "etag" in answer.headers:
            self._kept[key] = answer
            while self.kept_bytes > MOST_KEPT_BYTES:
                self._kept.popitem(last=False)
        return answer

    @property
    def kept_bytes(self) -> int:
        """What all answers take that are kept."""
        return sum(ENTRY_BYTES + answer.bytes for answer in self._kept.values())

    async def get_all(
        self, target: str, params: Mapping[str, str] | None = None, within: str = ""
    ) -> list[Any]:
        """All pages of a list, which may be a field `within` each answer. A full one may have a
        next one, whatever its `Link` says: that of a 304 may be missing, or old."""
        all_rows: list[Any] = []
        for page in range(1, MOST_PAGES + 1):
            query = {**(params or {}), "per_page": str(PAGE), "page": str(page)}
            answer = await self.get(target, query)
            rows = answer.json[within] if within else answer.json
            all_rows += rows
            is_last = 'rel="next"' not in answer.headers.get("link", "")
            if is_last and len(rows) < PAGE:
                return all_rows
        raise ActionError(f"{target} has more than {MOST_PAGES} pages", Verdict.HOPELESS)

    async def get_tail(self, target: str, most: int) -> str:
        """The end of a text, which the forge may keep elsewhere: asked for there without the token.
        Empty if it is not to be had."""
        url, headers = self._base + target, {**self._current_headers()}
        for _ in range(2):
            tail, is_cut = bytearray(), False
            async with self._asking("GET", url, headers) as response:
                if response.is_redirect:
                    url, headers = self._elsewhere(response), {}
                    continue
                if not response.is_success:
                    message = _message(await self._read("GET", target, response))
                    failure = self._failure("GET", target, response, message)
                    if response.status_code not in NO_LOG or isinstance(failure, LimitError):
                        raise failure
                    return ""
                async for piece in response.aiter_bytes(CHUNK_BYTES):
                    tail += piece
                    is_cut |= len(tail) > most
                    del tail[:-most]
            text = tail.decode(errors="replace")
            return f"…{text}" if is_cut else text
        return ""

    def _elsewhere(self, response: httpx.Response) -> str:
        """Where the forge leads. Encrypted, or the forge itself: nobody else is to write logs."""
        url = str(response.url.join(response.headers.get("location", "")))
        if url.startswith(("https://", f"{self._base}/")):
            return url
        raise ActionError(f"{self._forge} leads to {url[:100]}, without TLS", Verdict.HOPELESS)

    async def send(
        self, method: str, target: str, body: object, accept: tuple[int, ...] = ()
    ) -> Answer:
        """Change something."""
        return await self._ask(method, target, self._current_headers(), body=body, accept=accept)

    def _current_headers(self) -> Mapping[str, str]:
        headers = self._headers()
        if headers != self._used:
            self._used = headers
            self._kept.clear()
        return headers

    async def _ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        accept: tuple[int, ...] = (),
    ) -> Answer:
        url = self._base + target
        async with self._asking(method, url, headers, params=params, body=body) as response:
            content = await self._read(method, target, response)
        if response.is_success or response.status_code in accept:
            value = _json(response, content)
            return Answer(response.status_code, value, response.headers, len(content))
        raise self._failure(method, target, response, _message(content))

    @contextlib.asynccontextmanager
    async def _asking(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with (
                httpx.AsyncClient(verify=self._tls, timeout=SECONDS) as client,
                client.stream(
                    method,
                    url,
                    headers={"User-Agent": "bullpen", **headers},
                    params=dict(params) if params else None,
                    json=body,
                ) as response,
            ):
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ActionError(
                f"{self._forge} cannot be reached at {self._base}: {type(error).__name__}:"
                f" {str(error)[:200]}",
                Verdict.LATER,
            ) from error

    async def _read(self, method: str, target: str, response: httpx.Response) -> bytes:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > MOST_BYTES:
                raise ActionError(
                    f"{self._forge} answers more than {MOST_BYTES >> 20} MiB to {method} {target}",
                    Verdict.HOPELESS,
                )
        return bytes(content)

    def _failure(
        self, method: str, target: str, response: httpx.Response, reason: str
    ) -> ActionError:
        status = response.status_code
        message = f"{self._forge} answers {status} to {method} {target}: {reason}"
        seconds = _limit_seconds(response, reason)
        if seconds is not None:
            until = clock.local_time(time.time() + seconds)
            return LimitError(f"the rate limit of {self._forge} is reached until {until}", seconds)
        if status in (401, 403):
            hint = f"bullpen auth set {self._credential} < FILE, with one that may write there"
            return ActionError(message, Verdict.PERSON, hint=hint)
        if status >= 500:
            return ActionError(message, Verdict.LATER)
        if 300 <= status < 400:
            return ActionError(message, Verdict.PERSON, hint="has the repository been renamed?")
        return ActionError(message, Verdict.HOPELESS)


def _limit_seconds(response: httpx.Response, reason: str) -> float | None:
    """How long a limit lasts; None if this is none. GitHub answers 403 or 429, GitLab 429."""
    if response.status_code not in (403, 429):
        return None
    headers = response.headers
    after = headers.get("retry-after", "")
    if after.isdecimal():
        return max(1.0, float(after))
    for prefix in ("x-ratelimit", "ratelimit"):
        reset = headers.get(f"{prefix}-reset", "")
        if headers.get(f"{prefix}-remaining") == "0" and reset.isdecimal():
            return max(1.0, float(reset) - time.time())
    is_limit = response.status_code == 429 or "rate limit" in reason.lower()
    return LIMIT_SECONDS if is_limit else None


def _json(response: httpx.Response, content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError as error:
        raise ActionError(f"{response.url} answers no JSON", Verdict.LATER) from error


def _message(content: bytes) -> str:
    try:
        body = json.loads(content)
    except ValueError:
        return "no JSON"
    return str(body.get("message", ""))[:200] if isinstance(body, dict) else ""
