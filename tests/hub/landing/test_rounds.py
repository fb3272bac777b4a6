"""Rounds of landings in a hub of this process: what fails on the way, and with whose rights the
work of an author is verified."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullpen.hub.landing import queue, steps
from bullpen.hub.landing.book import LandingBook
from bullpen.model.landing import Landed, Landing, LandingRequest, Refused
from bullpen.model.rights import Rights
from tests.hub.http.inside import Inside, made_inside
from tests.hub.landing.yard import OPEN, TREE, Yard, made_yard
from tests.hub.pods.support import write_role
from tests.hub.programs import SLEEP
from tests.worktrees.repos import git

pytestmark = pytest.mark.slow


class Round:
    """Amy's work, and a hub that lands."""

    def __init__(self, yard: Yard, inside: Inside) -> None:
        self.yard, self.inside = yard, inside

    def land(self, name: str = "amy", **fields: Any) -> Landing:
        hub = self.inside.hub
        request = LandingRequest(names=(name,), **fields)
        (landing,) = self.inside.call(hub.landings.ask(request))
        found: Landing = self.inside.call(hub.landings.get(landing.id, 120.0))
        return found


@pytest.fixture
def a_round(monkeypatch: pytest.MonkeyPatch) -> Iterator[Round]:
    with made_yard() as yard:
        monkeypatch.setenv("HOME", yard.pen.env["HOME"])  # of the hub in this process
        with made_inside(yard.pen) as inside:
            yield Round(yard, inside)


def failing(work: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """As if there were a mistake of ours in it."""

    def fail(*words: Any, **fields: Any) -> Any:
        if after:
            work(*words, **fields)
        raise ZeroDivisionError("planted")

    return fail


def test_n5_an_entry_whose_round_fails_ends_with_the_reason(
    a_round: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_round.yard.agent("amy", a_txt="a\n")
    with monkeypatch.context() as patch:
        patch.setattr(steps, "build_chain", failing(steps.build_chain, after=False))
        refused = a_round.land().status
        assert isinstance(refused, Refused)
        assert "the hub failed (ZeroDivisionError)" in refused.message
    # What has landed is said to have landed, whatever failed afterwards.
    with monkeypatch.context() as patch:
        patch.setattr(steps, "move_target", failing(steps.move_target, after=True))
        assert isinstance(a_round.land().status, Landed)
    assert (a_round.yard.repo / "a.txt").read_text() == "a\n"
    assert git(a_round.yard.repo, "status", "--porcelain") == ""


def test_n5_an_entry_goes_on_when_it_can_be_written_again_what_became_of_it(
    a_round: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "FAILED_SECONDS", 0.1)
    a_round.yard.agent("amy", a_txt="a\n")
    keep, tries = LandingBook.keep, list[str]()

    async def full(self: LandingBook, *landings: Landing) -> None:
        if any(landing.status.state in ("landed", "refused") for landing in landings):
            tries.append("full")
            if len(tries) < 4:
                raise ZeroDivisionError("planted")
        await keep(self, *landings)

    monkeypatch.setattr(LandingBook, "keep", full)
    assert isinstance(a_round.land().status, Landed)
    assert len(tries) == 4
    assert git(a_round.yard.repo, "rev-list", "--count", "--merges", "main") == "1"
    assert (a_round.yard.repo / "a.txt").exists()


def test_n5_who_waits_for_a_landing_without_end_does_not_keep_a_hub_from_stopping(
    a_round: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_round.yard.agent("amy", a_txt="a\n")
    hub, go_on, build = a_round.inside.hub, threading.Event(), steps.build_chain
    monkeypatch.setattr(
        steps, "build_chain", lambda *words: build(*words) if go_on.wait(60) else None
    )

    async def leave() -> "asyncio.Task[Landing]":
        (landing,) = await hub.landings.ask(LandingRequest(names=("amy",)))
        waiting = asyncio.create_task(hub.landings.wait_resting(landing.id))
        await asyncio.sleep(0)  # it has looked
        hub.landings.leave()
        return waiting

    async def over(waiting: "asyncio.Task[Landing]") -> Landing:
        return await waiting

    try:
        waiting = a_round.inside.call(leave())
        a_round.inside.call(asyncio.sleep(0))  # the hub goes on with other things
        assert not waiting.done()
    finally:
        go_on.set()
    assert a_round.inside.call(over(waiting)).is_over


CONNECT = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'"


@contextlib.contextmanager
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


@pytest.mark.storm
def test_n3_verify_has_no_more_than_the_author_of_the_work(a_round: Round) -> None:
    secret = "env: {TOKEN: secret}"
    write_role(a_round.yard.pen, "rich", list(SLEEP), TREE, OPEN, secret)
    for name in ("amy", "bob", "cleo"):
        a_round.yard.agent(name, "rich", **{f"{name}_txt": "a\n"})
    hub = a_round.inside.hub
    with listener() as port:
        connect = f'{CONNECT.format(port=port)}; test "$TOKEN" = secret'
        # A person started it, and its role has a network and a variable.
        assert a_round.land("amy", verify=connect).status.state == "landed"
        # Another's role is the same, but its parent could grant neither.
        ceiling = Rights(sandboxed=True, network=False)
        for name in ("bob", "cleo"):
            live = hub.registry.get(name)
            live.agent = live.agent.model_copy(update={"ceiling": ceiling})
        back = a_round.land("bob", verify=connect)
        assert (back.status.state, back.network) == ("came_back", False)
        assert (
            a_round.land(
                "cleo", verify=f'! {CONNECT.format(port=port)} && test -z "$TOKEN"'
            ).status.state
            == "landed"
        )
    assert (a_round.yard.repo / "cleo.txt").exists()
