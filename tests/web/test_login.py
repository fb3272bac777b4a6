"""Logging in: by address, by form, by header; wrong tokens; another token (V2)."""

import contextlib
import errno
import json
import re
import shutil
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from bullpen.errors import BullpenError
from bullpen.home.paths import Home
from bullpen.web import guard, login
from bullpen.web.ended import EndedSessions
from bullpen.web.session import SECONDS, Session, check_name, cookie_name, sign, verify
from bullpen.web.token import VARIABLE, CurrentToken, ensure_token, env_file
from bullpen.web.tries import FREE, LONGEST_SECONDS, MOST_ADDRESSES, Tries
from tests.web.inside import InsideView, made_view

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def own(tmp_path: Path):
    """A view of its own, for tests that change its token or try wrong ones."""
    with made_view(tmp_path / "home") as made:
        yield made


def cookie_of(answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def name_in(answer, view: InsideView) -> str | None:
    session = verify(cookie_of(answer).partition("=")[2], view.token, time.time())
    return session and session.name


def test_v2_the_address_with_the_token_logs_in_and_goes_on_by_itself(view: InsideView) -> None:
    answer = view.ask("GET", f"/?token={view.token}&name=Ann", logged_in=False)
    assert answer.status_code == 200
    assert '<meta http-equiv="refresh" content="0;url=/">' in answer.text
    assert view.token not in answer.text
    attributes = answer.headers["set-cookie"].split("; ")
    assert attributes[0].startswith("__Host-bullpen-8443=")
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Partitioned"} <= set(attributes)
    assert view.token not in answer.headers["set-cookie"]
    headers = {"cookie": cookie_of(answer)}
    assert view.ask("GET", "/api/me", headers=headers, logged_in=False).json()["name"] == "Ann"


def test_v2_a_link_on_another_site_logs_in_as_well(view: InsideView) -> None:
    foreign = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = view.ask("GET", f"/?token={view.token}", headers=foreign, logged_in=False)
    assert answer.status_code == 200
    assert "set-cookie" in answer.headers


def test_v2_a_link_to_a_page_is_followed_again_with_the_cookie(view: InsideView) -> None:
    foreign = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = view.ask("GET", "/agents/main.csv", headers=foreign, logged_in=False)
    assert answer.status_code == 401
    assert 'content="0;url=/agents/main.csv"' in answer.text
    again = view.ask("GET", "/agents/main.csv", logged_in=False)
    assert "refresh" not in again.text
    assert "<form" in again.text


@pytest.mark.parametrize("target", ["/api/me?token={}", "/agents?token={}", "/status?token={}"])
def test_v2_a_token_in_any_other_address_counts_for_nothing(view: InsideView, target: str) -> None:
    answer = view.ask("GET", target.format(view.token), logged_in=False)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_v2_the_form_logs_in_and_leads_to_the_page_that_was_asked_for(view: InsideView) -> None:
    shown = view.ask("GET", "/agents/amy", logged_in=False)
    assert shown.status_code == 401
    assert re.search(r'name="next" value="/agents/amy"', shown.text)
    body = urlencode({"token": view.token, "name": "Bob", "next": "/agents/amy"}).encode()
    answer = view.ask("POST", "/login", body, FORM, logged_in=False)
    assert answer.status_code == 200
    assert "url=/agents/amy" in answer.text
    assert name_in(answer, view) == "Bob"


@pytest.mark.parametrize("is_followed", [False, True], ids=["typed", "followed"])
def test_v2_v4_the_filter_of_an_address_is_there_after_the_log_in_and_no_token(
    view: InsideView, is_followed: bool
) -> None:
    foreign = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    headers = foreign if is_followed else {}
    target = "/terminals?agents=main.csv%2Cb&filter=a+%22b&token=bullpen_web_of-somebody"
    text = view.ask("GET", target, headers=headers, logged_in=False).text
    assert "/terminals?agents=main.csv%2Cb&amp;filter=a+%22b" in text
    assert "of-somebody" not in text
    body = urlencode({"token": view.token, "next": "/?filter=main.csv&by=tree"}).encode()
    answer = view.ask("POST", "/login", body, FORM, logged_in=False)
    assert 'content="0;url=/?filter=main.csv&amp;by=tree"' in answer.text


def test_v2_after_a_wrong_token_the_name_need_not_be_typed_again(view: InsideView) -> None:
    body = urlencode({"token": "wrong", "name": 'Ann"><b>'}).encode()
    answer = view.ask("POST", "/login", body, FORM, logged_in=False)
    assert 'name="name" value="Ann&quot;&gt;&lt;b&gt;"' in answer.text


@pytest.mark.parametrize("body", [b"a=1&" * 20, b"token=" + b"x" * 1000, b"\xff\0", b""])
def test_v2_what_is_no_form_of_ours_is_refused_and_not_a_failure(
    own: InsideView, body: bytes
) -> None:
    assert own.ask("POST", "/login", body, FORM, logged_in=False).status_code in (400, 401)


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:x",
        "",
        "?x",
        "//e?x",
    ],
)
def test_v2_the_form_leads_to_no_other_site(view: InsideView, target: str) -> None:
    body = urlencode({"token": view.token, "next": target}).encode()
    answer = view.ask("POST", "/login", body, FORM, logged_in=False)
    assert 'content="0;url=/"' in answer.text


def test_v2_what_is_shown_of_a_path_cannot_become_markup(view: InsideView) -> None:
    answer = view.ask("GET", "/agents/%22%3E%3Cscript%3Ealert(1)%3C/script%3E", logged_in=False)
    assert "<script" not in answer.text


def test_v2_a_header_with_the_token_is_a_log_in_for_programs(view: InsideView) -> None:
    headers = {"authorization": f"Bearer {view.token}", "origin": "", "sec-fetch-site": ""}
    assert view.ask("GET", "/api/me", headers=headers, logged_in=False).status_code == 200
    # No browser sends it by itself: a write needs no origin.
    answer = view.ask("POST", "/api/me", {"name": "Ann"}, headers, logged_in=False)
    assert answer.status_code == 200


def test_v2_a_name_can_be_said_later(view: InsideView) -> None:
    answer = view.ask("POST", "/api/me", {"name": "  Ann   Lee "})
    assert answer.json()["name"] == "Ann Lee"
    headers = {"cookie": cookie_of(answer)}
    assert view.ask("GET", "/api/me", headers=headers, logged_in=False).json()["name"] == "Ann Lee"
    for bad in ("", "x" * 41, "a\u202eb", "\ud800", 7, None):
        assert view.ask("POST", "/api/me", {"name": bad}).status_code == 400


def test_v2_logging_in_again_keeps_the_name(view: InsideView) -> None:
    answer = view.ask("GET", f"/?token={view.token}")
    assert name_in(answer, view) == "Ann"


def logged_in(view: InsideView) -> dict[str, str]:
    answer = view.ask("GET", f"/?token={view.token}&name=Ann", logged_in=False)
    return {"cookie": cookie_of(answer)}


def is_in(view: InsideView, cookie: dict[str, str]) -> bool:
    return view.ask("GET", "/api/me", headers=cookie, logged_in=False).status_code == 200


def test_v2_logging_out_ends_every_copy_of_the_cookie_and_no_other(own: InsideView) -> None:
    ann, other = logged_in(own), logged_in(own)
    renamed = own.ask("POST", "/api/me", {"name": "Anna"}, ann)
    copies = [ann, {"cookie": cookie_of(renamed)}]
    assert all(is_in(own, each) for each in [*copies, other])
    answer = own.ask("POST", "/logout", headers=copies[1], logged_in=False)
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert [is_in(own, each) for each in [*copies, other]] == [False, False, True]
    # The next view knows it, too; without what it is written in they would count again.
    with contextlib.closing(InsideView(own.home, own.token)) as following:
        assert [is_in(following, each) for each in [*copies, other]] == [False, False, True]
    (own.home.root / "web" / "ended.json").unlink()
    with contextlib.closing(InsideView(own.home, own.token)) as forgetful:
        assert all(is_in(forgetful, each) for each in copies)


def test_v2_who_shows_the_token_itself_has_nothing_to_log_out_of(own: InsideView) -> None:
    bearer = {"authorization": f"Bearer {own.token}"}
    assert own.ask("POST", "/logout", headers=bearer, logged_in=False).status_code == 204
    assert own.ask("GET", "/api/me", headers=bearer, logged_in=False).status_code == 200
    assert "set-cookie" not in own.ask("POST", "/api/me", {"name": "Ann"}, bearer).headers


def test_v2_a_log_out_that_cannot_be_written_counts_and_says_so(own: InsideView) -> None:
    ann = logged_in(own)
    shutil.rmtree(own.home.root / "web")
    answer = own.ask("POST", "/logout", headers=ann, logged_in=False)
    assert answer.status_code == 503
    assert "until this view is started again" in answer.json()["message"]
    assert not is_in(own, ann)


def test_v2_what_has_ended_is_forgotten_when_no_cookie_is_that_old(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "web").mkdir()
    ended, file = EndedSessions(home), tmp_path / "web" / "ended.json"
    for id, now in (("a", 0.0), ("b", SECONDS / 2), ("c", SECONDS + 1.0)):
        ended.end(Session("Ann", id), now)
    assert set(json.loads(file.read_text())) == {"b", "c"}
    assert file.stat().st_mode & 0o777 == 0o600
    for bad in ("", "[]", '{"a": "x"}', "{"):
        file.write_text(bad)
        with pytest.raises(BullpenError, match="cannot be read") as refused:
            EndedSessions(home)
        assert "remove it" in (refused.value.hint or "")


# ── another token ──


def test_v2_another_token_in_the_file_ends_every_log_in_at_once(own: InsideView) -> None:
    cookie = {"cookie": own.cookie}
    assert own.ask("GET", "/api/me", headers=cookie, logged_in=False).status_code == 200
    env_file(own.home).write_text(f"{VARIABLE}=another-token-of-24-chars\n")
    assert own.ask("GET", "/api/me", headers=cookie, logged_in=False).status_code == 401
    bearer = {"authorization": "Bearer another-token-of-24-chars"}
    assert own.ask("GET", "/api/me", headers=bearer, logged_in=False).status_code == 200


@pytest.mark.parametrize("change", ["gone", "open", "short", "link"])
def test_v2_without_a_token_to_be_trusted_nobody_gets_in(own: InsideView, change: str) -> None:
    path, cookie = env_file(own.home), {"cookie": own.cookie}
    if change == "gone":
        path.unlink()
    elif change == "open":
        path.chmod(0o644)
    elif change == "short":
        path.write_text(f"{VARIABLE}=abc\n")
    else:
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))
    assert own.ask("GET", "/api/me", headers=cookie, logged_in=False).status_code == 401
    assert own.ask("GET", f"/?token={own.token}", logged_in=False).status_code == 401
    assert own.ask("GET", "/?token=", logged_in=False).status_code == 401


def test_v2_a_token_that_cannot_be_read_for_a_moment_is_not_forgotten(
    own: InsideView, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = CurrentToken(own.home)
    with monkeypatch.context() as patched:
        patched.setattr("bullpen.web.token.read_plain", too_many_files)
        assert token.value == ""
    assert token.matches(own.token)


def too_many_files(*_: object) -> bytes:
    raise OSError(errno.EMFILE, "too many open files")


def test_v2_the_token_is_made_once_and_other_lines_stay(tmp_path: Path) -> None:
    with made_view(tmp_path / "home") as made:
        path = env_file(made.home)
        assert path.stat().st_mode & 0o777 == 0o600
        path.write_text(f"# mine\nOTHER=1\n{VARIABLE}=\n")
        token = ensure_token(made.home)
        assert token != made.token
        assert path.read_text() == f"# mine\nOTHER=1\n\n{VARIABLE}={token}\n".replace("\n\n", "\n")
        assert ensure_token(made.home) == token
        path.chmod(0o640)
        with pytest.raises(BullpenError, match="open to others") as refused:
            ensure_token(made.home)
        assert token not in f"{refused.value.message}{refused.value.hint}"


@pytest.mark.parametrize("empty", [f"{VARIABLE}=", f"{VARIABLE}= ", f"export {VARIABLE} =\r"])
def test_v2_the_line_after_an_empty_value_is_no_token(own: InsideView, empty: str) -> None:
    guessable = "DATABASE=production"
    path = env_file(own.home)
    path.write_text(f"{empty}\n{guessable}\n")
    bearer = {"authorization": f"Bearer {guessable}"}
    assert own.ask("GET", "/api/me", headers=bearer, logged_in=False).status_code == 401
    token = ensure_token(own.home)
    assert token != guessable
    assert guessable in path.read_text().splitlines()
    # What was not let in would have been good enough for a token.
    path.write_text(f"{VARIABLE}={guessable}\n")
    assert own.ask("GET", "/api/me", headers=bearer, logged_in=False).status_code == 200


# ── the cookie ──


def test_v2_a_cookie_is_good_for_thirty_days_with_its_own_token() -> None:
    value = sign(Session("Ann"), "a-token-of-16-characters", 1000.0)
    assert verify(value, "a-token-of-16-characters", 1000.0 + SECONDS - 1) == Session("Ann")
    assert verify(value, "a-token-of-16-characters", 1000.0 + SECONDS + 1) is None
    assert verify(value, "another-of-16-characters", 1000.0) is None
    assert verify(value, "", 1000.0) is None
    assert cookie_name(8443) != cookie_name(8444)


def test_names_are_one_line_of_printable_text() -> None:
    assert check_name(" Ann\tLee ") == "Ann Lee"
    for bad in ("", " ", "x" * 41, "\x1b[31m", "a\u2066b"):
        with pytest.raises(BullpenError):
            check_name(bad)


# ── wrong ones ──


def test_v2_wrong_tokens_are_slowed_down_and_then_not_even_the_right_one_counts(
    own: InsideView,
) -> None:
    wrong = {"authorization": "Bearer wrong-wrong-wrong-wrong"}
    statuses = [
        own.ask("GET", "/api/me", headers=wrong, logged_in=False).status_code
        for _ in range(FREE + 1)
    ]
    assert statuses == [401] * FREE + [429]
    for answer in (
        own.ask("GET", f"/?token={own.token}", logged_in=False),
        own.ask("POST", "/login", urlencode({"token": own.token}).encode(), FORM, logged_in=False),
        own.ask("GET", "/api/me", headers={"authorization": f"Bearer {own.token}"}),
    ):
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "set-cookie" not in answer.headers
    # Whoever is logged in goes on, and other addresses may try.
    assert own.ask("GET", "/api/me").status_code == 200
    own.address = "192.0.2.8"
    assert own.ask("GET", f"/?token={own.token}", logged_in=False).status_code == 200


def test_v2_pictures_and_frames_of_other_sites_try_no_tokens(own: InsideView) -> None:
    """A page with such pictures would keep whoever looks at it from logging in."""
    foreign = {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    for dest in ("image", "script", "empty", "iframe"):
        headers = {**foreign, "sec-fetch-dest": dest}
        for _ in range(FREE + 1):
            answer = own.ask("GET", "/?token=wrong", headers=headers, logged_in=False)
            assert answer.status_code == 403
    assert own.ask("GET", f"/?token={own.token}", logged_in=False).status_code == 200
    link = {**foreign, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for _ in range(FREE):
        own.ask("GET", "/?token=wrong", headers=link, logged_in=False)
    assert own.ask("GET", f"/?token={own.token}", logged_in=False).status_code == 429


def test_v2_without_the_slowing_every_try_would_be_answered(
    own: InsideView, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (guard, login):
        monkeypatch.setattr(module, "refuse_hasty", lambda *_: None)
    statuses = {
        own.ask("GET", f"/?token=wrong{n}", logged_in=False).status_code for n in range(3 * FREE)
    }
    assert statuses == {401}
    assert own.ask("GET", f"/?token={own.token}", logged_in=False).status_code == 200


def test_v2_every_wrong_try_doubles_the_wait_up_to_five_minutes() -> None:
    tries = Tries()
    waits = []
    for _ in range(FREE + 12):
        tries.failed("192.0.2.7", 1000.0)
        waits.append(tries.wait_seconds("192.0.2.7", 1000.0))
    assert waits[: FREE - 1] == [0] * (FREE - 1)
    assert waits[FREE - 1 : FREE + 3] == [1, 2, 4, 8]
    assert waits[-1] == LONGEST_SECONDS
    assert tries.wait_seconds("192.0.2.7", 1000.0 + LONGEST_SECONDS) == 0
    tries.failed("192.0.2.7", 10_000.0)  # hours later it begins anew
    assert tries.wait_seconds("192.0.2.7", 10_000.0) == 0


def test_v2_one_network_of_ipv6_is_one_address_and_the_memory_is_bounded() -> None:
    tries = Tries()
    for number in range(FREE + 1):
        tries.failed(f"2001:db8::{number}", 0.0)
    assert tries.wait_seconds("2001:db8::ffff", 0.0) > 0
    assert tries.wait_seconds("2001:db8:0:1::1", 0.0) == 0
    for number in range(MOST_ADDRESSES + 10):
        tries.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(tries._wrong) == MOST_ADDRESSES
