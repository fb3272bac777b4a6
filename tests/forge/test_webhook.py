"""The webhook of a forge director: D2, D4. Who is let in, and what a delivery can bring about."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bullpen.directors.forge import webhook
from bullpen.directors.forge.deliveries import Deliveries, Delivery, Wanted, plan_look
from bullpen.directors.forge.webhook import Stock
from bullpen.directors.forge.work import ForgeMemory, Work
from tests.forge.sender import (
    GITHUB,
    GITLAB,
    REPO,
    SECRET,
    SENDERS,
    Sender,
    encoded,
    post,
    signature,
)
from tests.forge.serving import serve
from tests.waiting import wait_until

BY_NAME = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.name)


# ── what a delivery names ──


@pytest.mark.parametrize(
    ("sender", "payload", "wanted"),
    [
        *((each, each.issue(3), Delivery(REPO, issues=(3,))) for each in SENDERS),
        *((each, each.comment(3), Delivery(REPO, issues=(3,))) for each in SENDERS),
        (GITHUB, GITHUB.pull_comment(3), Delivery(REPO, pulls=(3,))),
        (GITLAB, GITLAB.pull_comment(3), Delivery(REPO, pulls=(1003,))),
        *((each, each.check("c0"), Delivery(REPO, commits=("c0",))) for each in SENDERS),
        (
            GITHUB,
            {"pull_request": {"number": 3}, "repository": {"full_name": REPO}},
            Delivery(REPO, pulls=(3,)),
        ),
        (
            GITHUB,
            {"sha": "c0", "state": "failure", "repository": {"full_name": REPO}},
            Delivery(REPO, commits=("c0",)),
        ),
        (GITHUB, {"zen": "Keep it simple.", "hook_id": 1}, Delivery("")),
        (GITHUB, {"issue": [3], "pull_request": {"number": True}, "repository": 3}, Delivery("")),
        (
            GITLAB,
            {
                "object_kind": "merge_request",
                "object_attributes": {"iid": 3, "id": 99},
                "project": {"path_with_namespace": REPO},
            },
            Delivery(REPO, pulls=(3,)),
        ),
        (
            GITLAB,
            {
                "object_kind": "emoji",
                "object_attributes": {"name": "thumbsup"},
                "merge_request": {"iid": 3},
                "project": {"path_with_namespace": REPO},
            },
            Delivery(REPO, pulls=(3,)),
        ),
        (GITLAB, {"object_kind": ["issue"], "object_attributes": "x"}, Delivery("")),
    ],
)
def test_d2_a_delivery_names_issues_pulls_and_commits(
    sender: Sender, payload: dict[str, Any], wanted: Delivery
) -> None:
    assert sender.deliveries.parse(payload) == wanted


def work(number: int, **fields: Any) -> Work:
    return Work(number=number, title="t", body="", author="ann", **fields)


@pytest.mark.parametrize(
    ("delivery", "wanted"),
    [
        (Delivery(REPO, issues=(1,)), Wanted(frozenset({1}))),
        (Delivery("ACME/Shop", issues=(1,)), Wanted(frozenset({1}))),
        (Delivery(REPO, pulls=(7,)), Wanted(frozenset({1}))),
        (Delivery(REPO, commits=("c0",)), Wanted(frozenset({1}))),
        (Delivery(REPO, issues=(5,)), Wanted(is_new=True)),
        (Delivery(REPO, issues=(3, 9)), Wanted()),  # done with, and the status itself
        (Delivery(REPO, pulls=(8, 0), commits=("c1", "")), Wanted()),
        (Delivery(REPO), Wanted()),
        (Delivery("acme/other", issues=(1, 5), pulls=(7,), commits=("c0",)), Wanted()),
    ],
)
def test_d2_a_director_looks_where_a_delivery_concerns_it(
    delivery: Delivery, wanted: Wanted
) -> None:
    memory = ForgeMemory(
        works={1: work(1, pull=7, pushed="c0"), 2: work(2)}, over={3: "merged"}, status_issue=9
    )
    assert plan_look(delivery, REPO, memory) == wanted
    assert bool(wanted) is (wanted != Wanted())


def test_d2_a_stock_of_deliveries_is_used_up_and_fills_again() -> None:
    stock = Stock(3, 0.5)
    assert stock.wait_seconds(100) == 0
    for _ in range(3):
        stock.take(1)
    assert stock.wait_seconds(100) == 2
    assert stock.wait_seconds(102) == 0
    stock.take(20)
    assert stock.wait_seconds(102) == 40
    assert stock.wait_seconds(1e6) == 0
    for _ in range(3):
        stock.take(1)
    assert stock.wait_seconds(1e6) > 0, "it never has more than it had at first"


# ── who is let in: over HTTP ──


@BY_NAME
def test_d2_a_genuine_delivery_makes_the_director_look(sender: Sender) -> None:
    body = encoded(sender.issue(3))
    with serve(sender.deliveries) as served:
        tunnel = {**sender.headers(SECRET, body), "Host": "hooks.example.com"}
        assert post(served.port, body, tunnel).status_code == 204
        wait_until(lambda: len(served.woken) == 1, 30)
        assert served.heeded == [Delivery(REPO, issues=(3,))]
        about_nothing = encoded({"zen": "Keep it simple."})
        answer = post(served.port, about_nothing, sender.headers(SECRET, about_nothing))
        assert (answer.status_code, served.heeded[1:]) == (204, [Delivery("")])


def forgeries(sender: Sender, body: bytes) -> Iterator[dict[str, str]]:
    """Headers of who does not know the secret."""
    yield {}
    yield sender.headers("", body)
    yield sender.headers("another-secret", body)
    yield sender.headers(SECRET[:-1], body)
    if sender is GITHUB:
        right = signature(SECRET, body)
        name = "X-Hub-Signature-256"
        yield {name: signature(SECRET, body + b" ")}
        yield {name: signature(SECRET, b"")}
        yield {name: right.removeprefix("sha256=")}
        yield {name: right[:-1]}
        yield {name: f"{right}0"}
        yield {name: "sha256="}
        yield {name: right.replace("sha256", "sha1")}
        yield {"X-Hub-Signature": right}
        yield {name: "sha256=\xe9\xe9"}
        yield {name: SECRET}
        yield {"X-Gitlab-Token": SECRET}
    else:
        yield {"X-Gitlab-Token": ""}
        yield {"X-Gitlab-Token": f"{SECRET} {SECRET}"}
        yield {"X-Gitlab-Token": SECRET.upper()}
        yield {"X-Gitlab-Token": "\xe9\xe9"}
        yield {"X-Hub-Signature-256": signature(SECRET, body)}
    yield {"Authorization": "Bearer owner"}


def raw(headers: dict[str, str]) -> Any:
    """As bytes: some are no ASCII."""
    return {name.encode(): value.encode("latin-1") for name, value in headers.items()}


@pytest.mark.slow
@BY_NAME
@pytest.mark.few(1)
def test_d2_who_does_not_know_the_secret_is_refused(sender: Sender) -> None:
    """And would be let in without the check."""
    body = encoded(sender.issue(3))
    with serve(sender.deliveries) as served:
        for headers in forgeries(sender, body):
            answer = post(served.port, body, raw(headers))
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), headers
        assert (served.heeded, served.woken) == ([], [])
        assert set(served.notes) == {"a delivery to the webhook was refused: no right signature"}, (
            "nothing of what was sent is noted"
        )
    with serve(Deliveries(lambda *_: True, lambda *_: True, sender.deliveries.parse)) as served:
        for headers in forgeries(sender, body):
            assert post(served.port, body, raw(headers)).status_code == 204
        wait_until(lambda: bool(served.woken), 30)


@BY_NAME
def test_d2_without_a_secret_nobody_is_let_in(sender: Sender) -> None:
    body = encoded(sender.issue(3))
    with serve(sender.deliveries) as served:
        served.secret = ""
        for headers in (sender.headers("", body), {}):
            assert post(served.port, body, headers).status_code == 401
        assert served.heeded == []


def test_d2_a_webhook_that_is_not_asked_for_is_closed() -> None:
    body = encoded(GITHUB.issue(3))
    headers = GITHUB.headers(SECRET, body)
    with serve(GITHUB.deliveries, open_paths=()) as served:
        assert post(served.port, body, headers).status_code == 401
        tunnel = {**headers, "Host": "hooks.example.com"}
        assert post(served.port, body, tunnel).status_code == 403
        assert served.heeded == []


def test_d2_a_webhook_opens_nothing_else() -> None:
    body = encoded(GITHUB.issue(3))
    headers = GITHUB.headers(SECRET, body)
    with serve(GITHUB.deliveries) as served:
        url = f"http://127.0.0.1:{served.port}"
        for path in ("/status", "/shutdown", "/webhook/", "//webhook", "/webhook/../shutdown"):
            assert post(served.port, body, headers, path).status_code == 401, path
        assert httpx.get(f"{url}/webhook").status_code == 401
        named = httpx.get(f"{url}/status", headers={"Host": "hooks.example.com"})
        assert named.status_code == 403
        page = {**headers, "Origin": "https://evil.example.com"}
        assert post(served.port, body, page).status_code == 403
        assert served.heeded == []


@BY_NAME
def test_d2_a_delivery_that_is_too_large_or_no_json_is_refused(sender: Sender) -> None:
    large = b" " * (webhook.MOST_BYTES + 1)
    with serve(sender.deliveries) as served:
        assert post(served.port, large, sender.headers(SECRET, large)).status_code == 413
        signed = sender.headers(SECRET, large)
        pieces = (large[at : at + 65536] for at in range(0, len(large), 65536))
        url = f"http://127.0.0.1:{served.port}/webhook"
        with contextlib.suppress(httpx.WriteError):  # the rest of it is not read
            assert httpx.post(url, content=pieces, headers=signed, timeout=60).status_code == 413
        for wrong, status in ((b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b"", 400)):
            assert post(served.port, wrong, sender.headers(SECRET, wrong)).status_code == status
        body = encoded(sender.issue(3))
        form = {**sender.headers(SECRET, body), "Content-Type": "application/x-www-form-urlencoded"}
        assert post(served.port, body, form).status_code == 415
        assert served.heeded == []


@pytest.mark.slow
def test_d2_guessing_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many wrong ones all are refused for a while, before anything is read of them."""
    monkeypatch.setattr(webhook, "PER_SECOND", 0.001)
    monkeypatch.setattr(webhook, "STOCK", 5 * webhook.REFUSED_COST)
    body = encoded(GITLAB.issue(3))
    with serve(GITLAB.deliveries) as served:
        answers = [
            post(served.port, body, {"X-Gitlab-Token": f"guess {number}"}) for number in range(20)
        ]
        assert [each.status_code for each in answers] == [401] * 5 + [429] * 15
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert post(served.port, body, GITLAB.headers(SECRET, body)).status_code == 429
        assert len(served.notes) == 6, "it is noted once that some are refused"


@BY_NAME
def test_d2_a_flood_of_genuine_deliveries_causes_few_looks(sender: Sender) -> None:
    body = encoded(sender.issue(3))
    headers = sender.headers(SECRET, body)
    with serve(sender.deliveries) as served, httpx.Client() as client:
        began = time.monotonic()
        url = f"http://127.0.0.1:{served.port}/webhook"
        sent = {"Content-Type": "application/json", **headers}
        answers = [client.post(url, content=body, headers=sent) for _ in range(150)]
        spent = time.monotonic() - began
        assert {each.status_code for each in answers} == {204}
        assert len(served.heeded) == 150
        assert 1 <= len(served.woken) <= 2 + spent / webhook.LOOK_SECONDS
