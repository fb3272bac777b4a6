"""The routes of the view: the page, the log-in, and below `/api` what `web/mirror` lists.

Called by `web/view`. Parses requests, asks the hub, passes on what it says. Who may ask is decided
by `web/guard` before. Nothing here connects to anything but the hub of this home, and by
`web/directors` to the sockets of its directors.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from bullpen import __version__
from bullpen.client import AsyncHub
from bullpen.client.async_hub import RawAnswer
from bullpen.client.events import stream_events
from bullpen.client.tasks import get_task, give_task, stream_task
from bullpen.component.answers import answer_error, answer_failure, answer_refused, error_response
from bullpen.component.process import ComponentProcess
from bullpen.errors import BullpenError
from bullpen.web import files
from bullpen.web.agent_url import agent_at
from bullpen.web.conflicts import Conflicts
from bullpen.web.directors import Directors
from bullpen.web.discovered import Discovered
from bullpen.web.first_load import first_load
from bullpen.web.guard import NO_PAGES
from bullpen.web.live import follow
from bullpen.web.login import Login, asked_for, comes_from_elsewhere, going_on, message_page
from bullpen.web.mirror import HUB_STATUS, TABLE, Row
from bullpen.web.session import Session, check_name
from bullpen.web.terminal import PageTerminal

Handler = Callable[[Request], Awaitable[Response]]

RUN_ENTRY = "/api/directors/{name}/schedule/{entry}/run"
GIVE_GOAL = "/api/directors/{name}/goals"
CANCEL_GOAL = "/api/directors/{name}/goals/{id}/cancel"


class ViewRoutes:
    """The routes of one view."""

    def __init__(
        self, component: ComponentProcess, hub: AsyncHub, login: Login, discovered: Discovered
    ) -> None:
        self._component = component
        self._hub = hub
        self._login = login
        self._discovered = discovered
        self._directors = Directors(hub, component.home)
        self._conflicts = Conflicts(hub)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/login", self._login.by_form, methods=["POST"]),
                Route("/logout", self._log_out, methods=["POST"]),
                Route("/status", self._get_status),
                Route("/api/status", self._get_status),
                Route("/api/me", self._get_me, methods=["GET"]),
                Route("/api/me", self._set_me, methods=["POST"]),
                Route("/api/hub", self._get_hub),
                Route("/api/start", self._get_first_load),
                Route("/api/conflicts", self._list_conflicts),
                Route("/api/directors", self._list_directors),
                Route(RUN_ENTRY, self._run_entry, methods=["POST"]),
                Route(GIVE_GOAL, self._give_goal, methods=["POST"]),
                Route(CANCEL_GOAL, self._cancel_goal, methods=["POST"]),
                Route("/api/discovered", self._list_discovered),
                Route("/api/task", self._give_task, methods=["POST"]),
                Route("/api/task/{id}", self._get_task),
                Route("/api/task/{id}/events", self._stream_task),
                Route("/api/agents/{agent}/task/{id}/events", self._stream_task),
                Route("/api/events/stream", self._stream_events),
                WebSocketRoute("/api/terminal", self._terminal),
                *self._mirrored(),
                Route("/assets/{name:path}", self._get_asset),
                Route("/{rest:path}", self._get_page),
            ],
            exception_handlers={
                BullpenError: _answer_error,
                HTTPException: _answer_refused,
                Exception: self._answer_failure,
            },
        )

    # ── the page ──

    async def _get_page(self, request: Request) -> Response:
        path = request.url.path
        if path.startswith(NO_PAGES):
            return error_response(404, "not_found", "there is nothing at this path")
        session = request.scope["state"]["session"]
        if path == "/" and "token" in request.query_params:
            return self._login.by_address(request)
        if session is None:
            target, is_again = asked_for(request), comes_from_elsewhere(request)
            return going_on(target, 401) if is_again else self._login.form(target=target)
        if path.count("/") == 1 and "." in path:
            return self._file(request, path[1:])
        page = files.page()
        if page is None:
            return message_page("The page is not built", files.HOW_TO_BUILD, 503)
        return page

    async def _get_asset(self, request: Request) -> Response:
        return self._file(request, f"assets/{request.path_params['name']}")

    def _file(self, request: Request, name: str) -> Response:
        file = files.find_file(name, "gzip" in request.headers.get("accept-encoding", ""))
        return file or error_response(404, "not_found", "there is no such file")

    async def _log_out(self, request: Request) -> Response:
        return self._login.log_out(_session(request))

    # ── who, and how it is ──

    async def _get_me(self, request: Request) -> Response:
        return JSONResponse(self._me(_session(request).name))

    async def _set_me(self, request: Request) -> Response:
        name = (await _body(request)).get("name")
        if not isinstance(name, str):
            raise BullpenError("name is required")
        name = check_name(name)
        return self._login.renamed(_session(request), name, JSONResponse(self._me(name)))

    def _me(self, name: str) -> dict[str, str]:
        home = self._component.home
        shown = home.root.parent.name if home.root.name == ".bullpen" else home.root.name
        return {
            "name": name,
            "home": shown,
            "home_id": self._component.home_id,
            "version": __version__,
            "view": self._component.name,
        }

    async def _get_status(self, _: Request) -> Response:
        return JSONResponse(self._component.status().model_dump(mode="json"))

    async def _get_hub(self, _: Request) -> Response:
        return _passed_on(await self._hub.fetch(HUB_STATUS()))

    async def _get_first_load(self, _: Request) -> Response:
        return _passed_on(await first_load(self._hub))

    async def _list_conflicts(self, request: Request) -> Response:
        event = _event_id(request.query_params.get("event") or "0", "event")
        return _passed_on(await self._conflicts.list(event))

    async def _list_directors(self, _: Request) -> Response:
        return JSONResponse(await self._directors.list())

    async def _run_entry(self, request: Request) -> Response:
        parts = request.path_params
        return JSONResponse(await self._directors.run_entry(parts["name"], parts["entry"]), 202)

    async def _give_goal(self, request: Request) -> Response:
        fields = await _body(request)
        prompt, key = fields.get("prompt"), fields.get("request")
        if not (isinstance(prompt, str) and (key is None or isinstance(key, str))):
            raise BullpenError("a goal has a prompt, and a request that names it once")
        name = request.path_params["name"]
        return JSONResponse(await self._directors.give_goal(name, prompt, key), 202)

    async def _cancel_goal(self, request: Request) -> Response:
        parts = request.path_params
        return JSONResponse(await self._directors.cancel_goal(parts["name"], parts["id"]), 202)

    async def _list_discovered(self, _: Request) -> Response:
        return JSONResponse(await self._discovered.look())

    # ── the hub's API ──

    def _mirrored(self) -> list[BaseRoute]:
        return [Route(f"/api{row.path}", self._handler(row), methods=[row.method]) for row in TABLE]

    def _handler(self, row: Row) -> Handler:
        async def handle(request: Request) -> Response:
            body = await _body(request) if row.has_body else {}
            name = _session(request).name
            call = row.request(request.path_params, dict(request.query_params), body, name)
            return _passed_on(await self._hub.fetch(call))

        return handle

    async def _give_task(self, request: Request) -> Response:
        fields = await _body(request)
        agent_url = fields.pop("agent_url", None)
        agent = await agent_at(self._hub, agent_url)
        call = give_task(agent, "")
        assert call.body is not None
        call.body = {"request": call.body["request"], **fields}
        answer = await self._hub.fetch(call)
        if answer.status >= 400:
            return _passed_on(answer)
        return JSONResponse({**json.loads(answer.body), "agent_url": agent_url}, answer.status)

    async def _get_task(self, request: Request) -> Response:
        agent_url = request.query_params.get("agent_url")
        agent = "" if agent_url is None else await agent_at(self._hub, agent_url)
        return _passed_on(await self._hub.fetch(get_task(request.path_params["id"], agent)))

    # ── what goes on ──

    async def _stream_events(self, request: Request) -> Response:
        after = request.query_params.get("after")
        start = None if after is None else _event_id(after, "after")
        stream = stream_events(start, request.query_params.get("agent") or None)
        last_id = request.headers.get("last-event-id", "")
        if last_id:
            _event_id(last_id, "Last-Event-ID")
        return await self._streamed(follow(self._hub, stream, last_id), request)

    async def _stream_task(self, request: Request) -> Response:
        names = request.path_params
        last_id = request.headers.get("last-event-id", "")
        if request.query_params.get("until_now") == "1":
            call = stream_task(
                names["id"], names.get("agent", ""), last_event_id=last_id, until_now=True
            )
            return _passed_on(await self._hub.fetch(call))
        stream = stream_task(names["id"], names.get("agent", ""))
        blocks = follow(self._hub, stream, last_id, last=b"end")
        return await self._streamed(blocks, request)

    async def _streamed(self, blocks: AsyncIterator[bytes], request: Request) -> Response:
        """Begun when its first block is there: before that it may still be refused. Ends with the
        log-in; a page that comes back hears why."""
        is_logged_in = self._login.ticket(_session(request))
        first = await anext(blocks)

        async def all_blocks() -> AsyncIterator[bytes]:
            yield first
            async for block in blocks:
                if not is_logged_in():
                    return
                yield block

        return StreamingResponse(
            all_blocks(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _terminal(self, page: WebSocket) -> None:
        query = page.query_params
        try:
            cols, rows = (_side(query.get(key, "")) for key in ("cols", "rows"))
            agent = query.get("agent") or ""
            if not agent:
                raise BullpenError("agent is required")
        except BullpenError as error:
            await page.send_denial_response(answer_error(error))
            return
        terminal = PageTerminal(
            self._hub, page, agent, cols or 80, rows or 24, self._login.ticket(_session(page))
        )
        await terminal.run()

    async def _answer_failure(self, _: Request, error: Exception) -> Response:
        """The guard gets the error afterwards all the same, and logs it."""
        return answer_failure(error, self._component.name)


def _session(connection: HTTPConnection) -> Session:
    """Whose request it is; `web/guard` has let nobody else in."""
    session: Session = connection.scope["state"]["session"]
    return session


def _passed_on(answer: RawAnswer) -> Response:
    return Response(answer.body, answer.status, media_type=answer.content_type)


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; nothing is one, too."""
    data = await request.body()
    if not data.strip():
        return {}
    # Forms of other sites cannot say this type.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BullpenError("a body has to be application/json")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BullpenError("the body is no JSON") from error
    if not isinstance(fields, dict):
        raise BullpenError("the body is no JSON object")
    return fields


def _event_id(text: str, name: str) -> int:
    if not (text.isdecimal() and len(text) < 19):
        raise BullpenError(f"{name} is the id of an event")
    return int(text)


def _side(text: str) -> int:
    if not text:
        return 0
    if not (text.isdecimal() and len(text) < 5 and 1 <= int(text) <= 4096):
        raise BullpenError("cols and rows are 1 to 4096")
    return int(text)


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BullpenError)
    return answer_error(error)


async def _answer_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer_refused(error)
