"""Logging in with a real browser: the certificate, links of other sites, what the browser keeps
(V1, V2, V11). The page itself need not be built."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser import browser_env, browser_program
from tests.web.running import RunningView

pytestmark = pytest.mark.slow

ARGUMENTS = ["--disable-gpu", "--disable-dev-shm-usage"]
SECONDS = 90.0


@contextlib.contextmanager
def browser(home: Path, authority: Path | None = None) -> Iterator[Any]:
    """A browser of a person who trusts that CA, too."""
    program = browser_program()
    from playwright.sync_api import sync_playwright

    env = browser_env(home, authority)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=ARGUMENTS, env=env, timeout=SECONDS * 1000
        )
        try:
            context = started.new_context()
            context.set_default_timeout(SECONDS * 1000)
            yield context
        finally:
            started.close()


@contextlib.contextmanager
def foreign_site(link: str, cookies: list[str] | None = None) -> Iterator[str]:
    """Somebody's chat, with that link in it. `cookies`: what it was sent."""
    cookies = [] if cookies is None else cookies

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            body = f'<!doctype html><a id="link" href="{link}">look</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def name_of(context: Any, view: RunningView) -> str:
    """Who the view takes this browser for. Asked in a page of its own, typed into the address bar:
    a page that is not built may fetch nothing."""
    page = context.new_page()
    answer = page.goto(f"{view.origin}/api/me")
    name = str(answer.json()["name"])
    page.close()
    return name


@pytest.mark.storm
def test_v2_a_person_logs_in_by_address_by_form_and_by_a_link_of_another_site(
    served: RunningView, tmp_path: Path
) -> None:
    authority = served.pen.root / "web" / "ca.pem"
    with browser(tmp_path, authority) as context:
        page = context.new_page()
        # Not logged in: the form; a wrong token; the right one.
        page.goto(f"{served.origin}/agents/main.csv")
        page.get_by_label("Your name").fill("Ann")
        page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Your name").fill("Ann")
        page.get_by_label("Token").fill(served.token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{served.origin}/agents/main.csv")
        assert name_of(context, served) == "Ann"
        assert page.evaluate("() => document.cookie") == ""
        # A link elsewhere to a place in the page: the strict cookie counts all the same.
        with foreign_site(f"{served.origin}/agents/main.csv") as site:
            page.goto(site)
            page.locator("#link").click()
            page.wait_for_url(f"{served.origin}/agents/main.csv")
            page.wait_for_function("() => document.querySelector('input[type=password]') === null")
            assert name_of(context, served) == "Ann"
        # And one that logs in.
        context.clear_cookies()
        address = f"{served.origin}/?token={served.token}&amp;name=Bob"
        with foreign_site(address) as site:
            page.goto(site)
            page.locator("#link").click()
            page.wait_for_url(f"{served.origin}/")
            assert name_of(context, served) == "Bob"
        # Going back does not lead to the address with the token.
        page.go_back()
        assert served.token not in page.url


@pytest.mark.storm
def test_v2_the_token_is_in_no_referer_and_not_in_what_the_tab_remembers(
    served: RunningView, tmp_path: Path
) -> None:
    with browser(tmp_path, served.pen.root / "web" / "ca.pem") as context:
        page = context.new_page()
        sent: list[tuple[str, str]] = []
        context.on(
            "request",
            lambda request: sent.append((request.url, request.headers.get("referer", ""))),
        )
        address = f"{served.origin}/?token={served.token}&name=Ann"
        with foreign_site(address.replace("&", "&amp;")) as site:
            page.goto(site)
            page.locator("#link").click()
            page.wait_for_url(f"{served.origin}/")
            page.goto(f"{served.origin}/tasks")
            page.goto(site)
        with_token = [url for url, _ in sent if served.token in url]
        assert with_token == [address]
        assert not [referer for _, referer in sent if served.token in referer]
        session = context.new_cdp_session(page)
        entries = session.send("Page.getNavigationHistory")["entries"]
        assert len(entries) > 3
        assert not [one for one in entries if served.token in one["url"] + one["userTypedURL"]]


@pytest.mark.storm
def test_v2_what_an_agent_serves_at_another_port_does_not_get_the_cookie(
    served: RunningView, tmp_path: Path
) -> None:
    with browser(tmp_path, served.pen.root / "web" / "ca.pem") as context:
        page = context.new_page()
        page.goto(f"{served.origin}/?token={served.token}&name=Ann", wait_until="commit")
        page.wait_for_url(f"{served.origin}/")
        assert name_of(context, served) == "Ann"
        seen: list[str] = []
        with foreign_site("/", seen) as site:
            own_host = site.replace("127.0.0.1", "localhost")
            page.goto(own_host)
            page.reload()  # a request of that very page
            assert "bullpen" not in "".join(seen)
            # One that is not partitioned goes there, over plain HTTP, whatever `Secure` says.
            plain = {"name": "__Host-plain", "value": "x", "url": served.origin}
            context.add_cookies([{**plain, "secure": True, "sameSite": "Strict"}])
            page.goto(own_host)
            assert "__Host-plain" in "".join(seen)
        assert name_of(context, served) == "Ann"


def test_v1_a_browser_that_does_not_know_the_ca_refuses_the_certificate(
    served: RunningView, tmp_path: Path
) -> None:
    from playwright.sync_api import Error

    with browser(tmp_path) as context:
        page = context.new_page()
        with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
            page.goto(served.origin)
