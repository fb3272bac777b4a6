"""Who does not know a webhook's secret, and what they can hold or use up of it: D2."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from bullpen.component import budget, guard
from bullpen.directors.forge import webhook
from tests.forge.sender import GITHUB, SECRET, SENDERS, Sender, encoded, post, signature
from tests.forge.serving import Served, Stranger, serve
from tests.waiting import wait_until

BY_NAME = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.name)
FORGED = {"X-Hub-Signature-256": signature("guess", b""), "Content-Type": "application/json"}
SILENT = {**FORGED, "Content-Length": "100"}
CHUNKED = {**FORGED, "Transfer-Encoding": "chunked"}
LARGE = {**FORGED, "Content-Length": str(webhook.MOST_BYTES + 1)}
# With one more, the next has to wait.
MOST_STRANGERS = int(webhook.STOCK / webhook.REFUSED_COST) - 1
FOR_EVER = 3600.0
BUSY = "too many deliveries to the webhook: some are refused"


def send(served: Served, sender: Sender = GITHUB, size: int = 0) -> int:
    """A genuine delivery, with so many bytes more than it needs."""
    body = encoded({**sender.issue(3), "text": "x" * size})
    return post(served.port, body, sender.headers(SECRET, body)).status_code


def no_refill(monkeypatch: pytest.MonkeyPatch, stock: float) -> None:
    monkeypatch.setattr(webhook, "PER_SECOND", 0.001)
    monkeypatch.setattr(webhook, "STOCK", stock)


@BY_NAME
def test_d2_nothing_is_read_of_who_shows_no_secret(sender: Sender) -> None:
    """Without the check, 16 who send no body would be waited for."""
    right = signature("guess", b"")  # in its form
    signatures = ("", "sha256=", SECRET, right[:-1], f"{right}0", right.upper())
    shown = [{"X-Hub-Signature-256": each, "X-Gitlab-Token": f"{each}."} for each in signatures]
    heads = [{"Content-Length": "100", **each} for each in ({}, *shown)]
    with serve(sender.deliveries) as served:
        for number in range(16):
            with Stranger(served.port, heads[number % len(heads)]) as stranger:
                assert stranger.status() == 401
        assert send(served, sender) == 204
        assert len(served.notes) == 16
    gullible = replace(sender.deliveries, may_be_genuine=lambda *_: True)
    with serve(gullible) as served, Stranger(served.port, heads[0]) as stranger:
        assert stranger.status() == 100


@pytest.mark.parametrize(
    ("room", "status"), [(guard.SENDER_REQUESTS, 204), (16, 503)], ids=["defended", "too little"]
)
def test_d2_strangers_who_send_no_body_leave_room_for_the_forge(
    monkeypatch: pytest.MonkeyPatch, room: int, status: int
) -> None:
    monkeypatch.setattr(webhook, "READ_SECONDS", FOR_EVER)
    monkeypatch.setattr(guard, "SENDER_REQUESTS", room)
    with serve(GITHUB.deliveries) as served, contextlib.ExitStack() as held:
        for _ in range(min(room, MOST_STRANGERS)):
            assert held.enter_context(Stranger(served.port, SILENT)).status() == 100
        assert send(served) == status


@pytest.mark.parametrize(
    ("reserved", "room", "status"),
    [(guard.SENDER_BODY_BYTES, guard.SENDER_BYTES, 204), (8 << 20, 16 << 20, 503)],
    ids=["defended", "too little"],
)
def test_d2_strangers_whose_bodies_have_no_length_leave_room_for_the_forge(
    monkeypatch: pytest.MonkeyPatch, reserved: int, room: int, status: int
) -> None:
    monkeypatch.setattr(webhook, "READ_SECONDS", FOR_EVER)
    monkeypatch.setattr(guard, "SENDER_BODY_BYTES", reserved)
    monkeypatch.setattr(guard, "SENDER_BYTES", room)
    if status == 503:  # it waits for nothing
        monkeypatch.setattr(budget, "WAIT_SECONDS", 0.01)
    with serve(GITHUB.deliveries) as served, contextlib.ExitStack() as held:
        for _ in range(min(room // reserved, MOST_STRANGERS)):
            assert held.enter_context(Stranger(served.port, CHUNKED)).status() == 100
        assert send(served, size=2 * budget.SMALL_BYTES) == status


def test_d2_there_is_room_for_more_than_strangers_can_pay_for() -> None:
    paid = webhook.STOCK + webhook.READ_SECONDS * webhook.PER_SECOND
    strangers = paid / webhook.REFUSED_COST + 1  # the last one owes most of it
    assert strangers < guard.SENDER_REQUESTS
    assert strangers * guard.SENDER_BODY_BYTES < guard.SENDER_BYTES


def test_d2_what_strangers_hold_is_paid_for_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_refill(monkeypatch, 3 * webhook.REFUSED_COST)
    monkeypatch.setattr(webhook, "READ_SECONDS", FOR_EVER)
    with serve(GITHUB.deliveries) as served, contextlib.ExitStack() as held:
        strangers = [held.enter_context(Stranger(served.port, SILENT)) for _ in range(5)]
        assert sorted(each.status() for each in strangers) == [100, 100, 100, 429, 429]
        assert served.notes == [BUSY]


def say_nothing(served: Served) -> None:
    with Stranger(served.port, SILENT) as stranger:
        assert (stranger.status(), stranger.status()) == (100, 408)


def announce_too_much(served: Served) -> None:
    with Stranger(served.port, LARGE) as stranger:
        assert stranger.status() == 413


def leave(served: Served) -> None:
    before = len(served.notes)
    with Stranger(served.port, SILENT) as stranger:
        assert stranger.status() == 100
    wait_until(lambda: len(served.notes) > before)


@pytest.mark.parametrize(
    ("attack", "read_seconds", "note"),
    [
        (say_nothing, 0.01, "was refused: no whole body in 0.01 s"),
        (announce_too_much, FOR_EVER, "was refused: a delivery has at most 2097152 bytes"),
        (leave, FOR_EVER, "was cut off by its sender"),
    ],
)
@pytest.mark.parametrize(("cost", "status"), [(webhook.REFUSED_COST, 429), (0.0, 204)])
def test_d2_slow_large_and_broken_deliveries_are_noted_and_slowed_down(
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Served], None],
    read_seconds: float,
    note: str,
    cost: float,
    status: int,
) -> None:
    """If they cost nothing, they could go on for ever."""
    no_refill(monkeypatch, 3 * webhook.REFUSED_COST)
    monkeypatch.setattr(webhook, "REFUSED_COST", cost)
    monkeypatch.setattr(webhook, "READ_SECONDS", read_seconds)
    with serve(GITHUB.deliveries) as served:
        for _ in range(3):
            attack(served)
        noted = [f"a delivery to the webhook {note}"] * 3
        assert served.notes == noted
        monkeypatch.setattr(webhook, "READ_SECONDS", FOR_EVER)
        assert send(served) == status
        assert served.notes[3:] == ([BUSY] if status == 429 else [])


@BY_NAME
def test_d2_a_genuine_delivery_gets_back_what_it_did_not_use(
    monkeypatch: pytest.MonkeyPatch, sender: Sender
) -> None:
    no_refill(monkeypatch, 5)
    with serve(sender.deliveries) as served:
        assert [send(served, sender) for _ in range(6)] == [204] * 5 + [429]
