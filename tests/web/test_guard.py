"""Who gets in: every route of the view, without a log-in, with a wrong one, from another site,
under another name, by another method (V2, V3)."""

import pytest
from starlette.routing import Route, WebSocketRoute

from bullpen.web import guard
from bullpen.web.guard import host_of, is_page
from tests.web.inside import HOST, ORIGIN, InsideView


def all_routes(view: InsideView) -> list[tuple[str, str]]:
    """Method and target, the parts of the path filled in."""
    routes = view.layers.app.routes  # type: ignore[attr-defined]
    found = []
    for route in routes:
        if isinstance(route, WebSocketRoute):
            continue
        assert isinstance(route, Route)
        path = route.path.replace("{name:path}", "x.js").replace("{rest:path}", "")
        for part in ("name", "agent", "entry", "id"):
            path = path.replace(f"{{{part}}}", "7")
        found += [(method, path) for method in sorted((route.methods or set()) - {"HEAD"})]
    return found


def let_in(status: int) -> bool:
    """There is no hub: what has passed the guard meets that, or what needs none."""
    return status not in (401, 403, 405, 429)


def test_v3_the_view_has_the_routes_that_it_should_have(view: InsideView) -> None:
    targets = all_routes(view)
    assert len(targets) > 55
    for wanted in (
        ("GET", "/"),
        ("GET", "/status"),
        ("GET", "/api/status"),
        ("GET", "/api/agents"),
        ("GET", "/api/start"),
        ("GET", "/api/directors"),
        ("POST", "/api/directors/7/schedule/7/run"),
        ("GET", "/api/tree"),
        ("POST", "/api/task"),
        ("GET", "/api/task/7"),
        ("GET", "/api/history"),
        ("GET", "/api/approvals"),
        ("GET", "/api/agents/7/messages"),
    ):
        assert wanted in targets


def test_v2_whoever_is_logged_in_gets_through_everywhere(view: InsideView) -> None:
    for method, target in all_routes(view):
        if target == "/login":
            continue  # which has a token of its own
        assert let_in(view.ask(method, target).status_code), (method, target)


@pytest.mark.parametrize("cookie", ["", "__Host-bullpen-8443=x.y", "__Host-bullpen-8443=%C3%A9.A"])
def test_v2_without_a_cookie_of_ours_every_route_is_a_401(view: InsideView, cookie: str) -> None:
    for method, target in all_routes(view):
        answer = view.ask(method, target, headers={"cookie": cookie}, logged_in=False)
        assert answer.status_code == 401, (method, target)


def test_v2_a_cookie_that_an_agents_page_has_set_in_front_of_ours_locks_nobody_out(
    view: InsideView,
) -> None:
    for cookie in ("__Host-bullpen-8443=x.y", "__Host-bullpen-8443=", "a=b"):
        headers = {"cookie": f"{cookie}; {view.cookie}; {cookie}"}
        assert view.ask("GET", "/api/me", headers=headers, logged_in=False).status_code == 200


def test_v2_the_cookie_of_another_token_or_another_port_is_worth_nothing(view: InsideView) -> None:
    name, _, value = view.cookie.partition("=")
    payload, _, mac = value.partition(".")
    for cookie in (
        f"__Host-bullpen-9443={value}",
        f"{name}={payload}.{mac[:-2]}AA",
        f"{name}={payload[:-2]}AA.{mac}",
        f"{name}={payload}",
        f"{name}=.{mac}",
    ):
        answer = view.ask("GET", "/api/me", headers={"cookie": cookie}, logged_in=False)
        assert answer.status_code == 401, cookie


@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:8443"},
        {"origin": "https://localhost:8444"},
        {"origin": "null"},
        {"origin": "", "sec-fetch-site": "cross-site"},
        {"origin": "", "sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_v2_what_another_site_asks_for_is_refused_everywhere(
    view: InsideView, foreign: dict[str, str]
) -> None:
    for method, target in all_routes(view):
        answer = view.ask(method, target, headers=foreign)
        is_link = method == "GET" and is_page(target) and not foreign["origin"]
        assert answer.status_code == (503 if is_link else 403) or (
            is_link and answer.status_code == 200
        ), (method, target)


def test_v2_a_write_without_an_origin_is_no_browsers(view: InsideView) -> None:
    for method, target in all_routes(view):
        if method != "GET":
            status = view.ask(method, target, headers={"origin": ""}).status_code
            assert status == 403, (method, target)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8443", "localhost.evil.example", "localhost:x", "", "["]
)
def test_v2_under_a_foreign_name_every_route_is_refused(view: InsideView, host: str) -> None:
    for method, target in all_routes(view):
        headers = {"host": host or " ", "origin": f"https://{host}"}
        assert view.ask(method, target, headers=headers).status_code == 403, (method, target)


@pytest.mark.parametrize("host", ["shop.local", "192.168.1.5:8443", "[::1]:8443", "LOCALHOST"])
def test_v2_names_and_addresses_of_this_machine_are_served(view: InsideView, host: str) -> None:
    answer = view.ask("GET", "/api/me", headers={"host": host, "origin": f"https://{host}"})
    assert answer.status_code == 200


def test_v3_another_method_is_refused_and_does_nothing(view: InsideView) -> None:
    routes = all_routes(view)
    for target in {target for _, target in routes}:
        known = {method for method, each in routes if each == target}
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - known:
            status = view.ask(method, target).status_code
            assert status in (404, 405), (method, target)


def test_v2_the_websocket_wants_cookie_origin_and_host(view: InsideView) -> None:
    good = {"host": HOST, "origin": ORIGIN, "cookie": view.cookie}
    target = "/api/terminal?agent=amy"
    assert view.upgrade(target, good) == 503  # past the guard: there is no hub
    for name, values in {
        "cookie": ("", "__Host-bullpen-8443=x.y"),
        "origin": ("", "https://evil.example", "http://localhost:8443"),
        "host": ("evil.example",),
    }.items():
        for value in values:
            assert view.upgrade(target, {**good, name: value}) in (401, 403), (name, value)
    assert view.upgrade("/api/terminal", good) == 400
    assert view.upgrade("/api/terminal?agent=amy&cols=0", good) == 400


def test_v2_without_the_origin_check_another_site_would_reach_the_hub(
    view: InsideView, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    target = "/api/approvals/7"
    assert view.ask("POST", target, {"decision": "allow"}, attack).status_code == 403
    monkeypatch.setattr(guard, "_check_origin", lambda *_: None)
    assert view.ask("POST", target, {"decision": "allow"}, attack).status_code == 503


def test_v2_a_form_of_another_type_is_no_body(view: InsideView) -> None:
    headers = {"content-type": "text/plain"}
    answer = view.ask("POST", "/api/approvals/7", b'{"decision": "allow"}', headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("Shop.Local:8443", "shop.local"),
        ("[::1]:8443", "::1"),
        ("[::1]", "::1"),
        ("[::1]x", ""),
        ("a:b", ""),
        ("", ""),
    ],
)
def test_a_host_is_a_name_with_or_without_a_port(host: str, name: str) -> None:
    assert host_of(host) == name


def test_agents_with_dots_in_their_names_have_pages() -> None:
    assert is_page("/agents/main.csv")
    assert is_page("/")
    assert not is_page("/favicon.svg")
    assert not is_page("/api/agents")
    assert not is_page("/assets/x")


def test_v2_no_answer_lets_others_frame_or_store_it(view: InsideView) -> None:
    page = view.ask("GET", "/", logged_in=False)
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "strict-origin"  # says no path and no query
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in page.text
    api = view.ask("GET", "/api/me")
    assert api.headers["cache-control"] == "no-store"
    assert api.headers["x-content-type-options"] == "nosniff"


def test_x8_forms_that_never_end_keep_nobody_else_from_logging_in(
    view: InsideView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(address: str) -> int:
        return view.ask_beside(guard.NOBODY_REQUESTS, "GET", "/", address).status_code

    assert status("192.0.2.99") == 401  # the form
    assert status(view.address) == 503
    assert view.ask("GET", "/", logged_in=False).status_code == 401  # once they have ended
    # If all strangers shared what they may use, one could have it all.
    monkeypatch.setattr(guard, "network_of", lambda _: "")
    assert status("192.0.2.99") == 503


@pytest.mark.parametrize("target", ["/assets/%00", "/x%00.js", "/assets/../guard.py", "/assets//x"])
def test_v3_a_name_that_no_file_can_have_is_a_404(view: InsideView, target: str) -> None:
    assert view.ask("GET", target).status_code == 404
