"""When there is nothing to attach to, or nobody who could: what is said, and with which code."""

import os
import signal

import pytest

from tests.holder.programs import HEXER, shell
from tests.terminal.stage import Stage

pytestmark = pytest.mark.slow


def test_a1_no_such_agent_names_those_that_run(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    stage.agent("bob", HEXER)
    (stage.root / "sockets" / "agent.dead.sock").write_text("")
    person = stage.person("attach", "nobody")
    assert person.wait() == 4
    assert "error: no agent called nobody · running: amy, bob".encode() in person.seen
    strange = stage.person("attach", "no/body")
    assert strange.wait() == 4
    assert b"no agent called no/body" in strange.seen


def test_a1_one_that_has_ended_is_told_from_one_that_never_was(stage: Stage) -> None:
    stage.agent("amy", shell("exit 0")).wait_gone()
    person = stage.person("attach", "amy")
    assert person.wait() == 4
    assert b"error: amy is not running\r\n" in person.seen
    assert b"bullpen logs amy" in person.seen
    assert b"no agent called bob" in stage.person("attach", "bob").wait_for(b"running")


def test_a1_without_a_terminal_the_alternatives_are_named(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    done = stage.run("attach", "amy")
    assert done.returncode == 2
    assert b"attach needs a terminal" in done.stderr
    assert b"bullpen peek amy" in done.stderr
    assert b"bullpen logs -f amy" in done.stderr


def test_a1_an_agent_cannot_attach_to_itself(stage: Stage) -> None:
    stage.agent("amy", HEXER)
    done = stage.run("attach", "amy", BULLPEN_ACTOR="amy")
    assert done.returncode == 2
    assert b"amy cannot attach to itself" in done.stderr
    other = stage.run("attach", "amy", BULLPEN_ACTOR="bob")
    assert b"attach needs a terminal" in other.stderr


def test_a1_an_agent_without_a_terminal_is_said_to_have_none(stage: Stage) -> None:
    stage.agent("amy", ["/bin/cat"], mode="pipe")
    person = stage.person("attach", "amy")
    assert person.wait() == 7
    assert b"amy has no terminal" in person.seen
    assert person.settings == person.before


def test_a1_a_holder_that_does_not_answer_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bullpen.client import holder as client
    from bullpen.errors import BullpenError, Kind
    from bullpen.home.paths import Home

    holder = stage.agent("amy", HEXER)
    monkeypatch.setattr(client, "GREETING_SECONDS", 0.2)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BullpenError, match="does not answer") as raised:
            client.connect(Home(stage.root), "amy")
        assert raised.value.kind is Kind.UNAVAILABLE
    finally:
        os.kill(holder.pid, signal.SIGCONT)
