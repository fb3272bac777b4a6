"""Logging in and out: the form, `?token=`, the cookie. Served without any script.

The answer to a right token is a page that goes on by itself, not a redirect: after a link on
another site the redirect would be that site's navigation, too, and come without the cookie.
"""

import html
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from bullpen.errors import BullpenError
from bullpen.web.ended import EndedSessions
from bullpen.web.files import COMMON
from bullpen.web.guard import client_of, is_page, refuse_hasty
from bullpen.web.session import NAME_CHARACTERS, Session, check_name, set_cookie, sign
from bullpen.web.token import VARIABLE, CurrentToken
from bullpen.web.tries import Tries

POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { display: grid; place-items: center; min-height: 100vh; margin: 0;
  background: light-dark(#f6f7f9, #15181d); color: light-dark(#1d2430, #e6e9ef) }
main { width: min(22rem, calc(100vw - 3rem)) }
h1 { font-size: 1.4rem; margin: 0 0 1rem }
label { display: block; margin: 0 0 1rem }
input { box-sizing: border-box; width: 100%; padding: .6rem .7rem; font: inherit; color: inherit;
  border: 1px solid light-dark(#8a93a3, #79839a); border-radius: 6px;
  background: light-dark(#fff, #1d222b) }
button { width: 100%; padding: .7rem; font: inherit; font-weight: 600; border: 0;
  border-radius: 6px; background: light-dark(#1f5fbf, #8ab4f8); color: light-dark(#fff, #10151d) }
p { margin: 0 0 1rem } .wrong { color: light-dark(#a3201d, #ff9a94) }
"""
FORM = """
<h1>Bullpen</h1>
{problem}
<form method="post" action="/login">
<label>Your name <input name="name" value="{name}" maxlength="40" autocomplete="nickname"></label>
<label>Token <input name="token" type="password" required autocomplete="current-password"></label>
<input type="hidden" name="next" value="{next}">
<button>Log in</button>
</form>
<p></p><p>The token is {variable} in the home's .env · bullpen web status</p>
"""


class Login:
    """The routes of one view."""

    def __init__(self, port: int, token: CurrentToken, tries: Tries, ended: EndedSessions) -> None:
        self._port = port
        self._token = token
        self._tries = tries
        self._ended = ended

    def ticket(self, session: Session) -> Callable[[], bool]:
        """For what lasts, a stream or a terminal: whether this log-in still counts."""
        token = self._token.value
        return lambda: self._token.value == token and not self._ended.has(session)

    def by_address(self, request: Request) -> Response:
        """`GET /?token=`: the one place where a token stands in an address."""
        name = request.query_params.get("name", "")
        return self._log_in(request, request.query_params["token"], name, "/")

    async def by_form(self, request: Request) -> Response:
        """`POST /login`."""
        body = (await request.body()).decode("utf-8", "replace")
        try:
            fields = parse_qs(body, max_num_fields=8)
        except ValueError as error:
            raise BullpenError("this is not the form for log-in") from error
        token, name, target = (fields.get(key, [""])[0] for key in ("token", "name", "next"))
        return self._log_in(request, token.strip(), name, target)

    def _log_in(self, request: Request, token: str, name: str, target: str) -> Response:
        address = client_of(request.scope)
        refuse_hasty(self._tries, address)
        if not self._token.matches(token):
            self._tries.failed(address, time.monotonic())
            return self.form("That is not the token.", target, name)
        self._tries.succeeded(address)
        before: Session | None = request.scope["state"]["session"]
        try:
            name = check_name(name)
        except BullpenError:  # asked for later
            name = before.name if before else ""
        return self._with_cookie(going_on(target), Session(name, secrets.token_urlsafe(16)))

    def renamed(self, session: Session, name: str, answer: Response) -> Response:
        """The answer with the cookie of somebody who has said another name."""
        return self._with_cookie(answer, replace(session, name=name)) if session.id else answer

    def log_out(self, session: Session) -> Response:
        """Every copy of the cookie is worthless from now on."""
        self._ended.end(session, time.time())
        return Response(status_code=204, headers={"Set-Cookie": set_cookie(self._port, "", 0)})

    def form(self, problem: str = "", target: str = "/", name: str = "") -> Response:
        """What everybody gets who is not logged in."""
        shown = f'<p class="wrong" role="alert">{html.escape(problem)}</p>' if problem else ""
        after, known = html.escape(_page_of(target)), html.escape(name[:NAME_CHARACTERS])
        body = FORM.format(problem=shown, next=after, name=known, variable=VARIABLE)
        answer = _html(body, 401)
        # Without any referrer browsers call the origin of a form `null`. This one says no path.
        answer.headers["Referrer-Policy"] = "strict-origin"
        return answer

    def _with_cookie(self, answer: Response, session: Session) -> Response:
        value = sign(session, self._token.value, time.time())
        answer.headers["Set-Cookie"] = set_cookie(self._port, value)
        return answer


def going_on(target: str, status: int = 200) -> Response:
    """A page that leads to that place by itself."""
    page = html.escape(_page_of(target))
    refresh = f'<meta http-equiv="refresh" content="0;url={page}">'
    return _html(f'<p>One moment … <a href="{page}">go on</a></p>', status, refresh)


def comes_from_elsewhere(request: Request) -> bool:
    """Whether a link on another site led here: then browsers keep our cookie back, once."""
    headers = request.headers
    is_cross = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    return is_cross and headers.get("sec-fetch-mode") == "navigate"


def asked_for(request: Request) -> str:
    """The place in the page that was asked for, with its filter, and never with a token."""
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
    return quote(request.scope["path"]) + (f"?{urlencode(query)}" if query else "")


def _page_of(target: str) -> str:
    """A place in the page, and never another site."""
    path = target.partition("?")[0]
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and is_page(path)
    return target if is_ours and target.isprintable() else "/"


def _html(body: str, status: int, head: str = "") -> Response:
    nonce = secrets.token_urlsafe(16)
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Bullpen</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'{head}<style nonce="{nonce}">{STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
    )
    policy = {"Content-Security-Policy": POLICY.format(nonce=nonce), "Cache-Control": "no-store"}
    return HTMLResponse(text, status, {**COMMON, **policy})


def message_page(title: str, text: str, status: int) -> Response:
    """A page with nothing but that."""
    return _html(f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>", status)
