"""What `bullpen explain`, `status` and `inbox` say of agents, as text; made without a hub."""

from dataclasses import replace
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import LiveAgent
from bullpen.hub.http.messages import _takes_messages, _with_why
from bullpen.hub.render.agents import agent_text, explain_text, list_text, status_text
from bullpen.hub.render.messages import inbox_text, sent_when
from bullpen.hub.render.prometheus import prometheus_text
from bullpen.hub.render.words import age, moment, waiting_text
from bullpen.model.message import TEXT_BYTES, Message, check_sender, check_text
from bullpen.model.state import Evidence, Exited, Idle, Lost, Unknown, View, Working
from bullpen.model.usage import Totals
from bullpen.text import width
from tests.hub.live_agents import NOW, live

KEY = "\x1b[2J"  # clears the screen of whoever looks
SHOWN = r"\x1b[2J"


def changed(one: LiveAgent, **fields: Any) -> LiveAgent:
    """The same agent with other fields of its record."""
    return replace(one, agent=one.agent.model_copy(update=fields))


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (86400 * 400, "400d"),
    ],
)
def test_ages_are_in_the_largest_unit_that_is_full(seconds: float, says: str) -> None:
    assert age(seconds) == says


@pytest.mark.parametrize(
    ("count", "why", "says"),
    [(1, "", "1 message waits"), (2, f"it{KEY}", f"2 messages wait: it{SHOWN}")],
)
def test_g1_how_many_wait_and_why(count: int, why: str, says: str) -> None:
    assert waiting_text(count, why) == says


def test_s1_evidence_is_explained_with_the_newest_first_and_the_one_that_decides() -> None:
    evidence = (
        Evidence(source="process", says="runs", at=NOW - 30),
        Evidence(source="hook Stop", says=f"x{KEY}", at=NOW),
        Evidence(source=f"z{KEY}", says="", at=NOW - 10),
    )
    amy = live("amy", Idle())
    view = View(
        run=amy.agent.run, state=Idle(), since=NOW, decided_by="hook Stop", evidence=evidence
    )
    head, *rows = explain_text(replace(amy, view=view), 2, f"busy{KEY}").splitlines()
    assert head.startswith("idle, since ")
    assert [row.split()[0] for row in rows] == ["hook", f"z{SHOWN}", "process", "2"]
    assert ["← decides" in row for row in rows] == [True, False, False, False]
    assert f"x{SHOWN}" in rows[0]
    assert rows[-1] == f"  2 messages wait: busy{SHOWN}"
    narrow = explain_text(replace(amy, view=view), columns=40).splitlines()
    assert max(map(width, narrow)) <= 40
    assert all(moment(piece.at) in "\n".join(narrow) for piece in evidence)
    long = Evidence(source="process", says="alive, its program reads keys one by one", at=NOW)
    whole = explain_text(replace(amy, view=view), evidence=(long,), columns=40).splitlines()
    assert whole[1:] == [
        f"  process  {moment(NOW)}",
        "    alive, its program reads keys one by",
        "    one",
    ]
    unknown = explain_text(live("amy", Unknown(missing=f"it said nothing{KEY}")))
    assert unknown.splitlines()[-1] == f"  missing: it said nothing{SHOWN}"


def test_p7_a_record_shows_what_is_there_and_drives_no_terminal() -> None:
    word = "i" * 200
    amy = changed(
        live("amy", Working(), role=f"r{KEY}", branch=f"b{KEY}", model=f"m{KEY}"),
        cwd=f"/work{KEY}",
        command=("claude", word, f"{KEY}"),
        overrides=(f"model={KEY}",),
    )
    text = agent_text(amy, Totals(input=1500, usd=0.5, work_seconds=90), 1, f"why{KEY}")
    assert KEY not in text
    fields = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert fields["command"] == f"claude {'i' * 99}… {SHOWN}"
    assert fields["directory"] == f"/work{SHOWN}"
    assert (fields["tokens"], fields["cost"]) == ("1.5k", "$0.50")
    assert fields["messages"] == f"1 message waits: why{SHOWN}"
    assert fields["created"] == "2026-01-01T00:00:00Z"
    assert "pod" not in fields
    assert "worktree" not in fields
    plain = agent_text(live("amy", Idle()))
    assert {"tokens", "cost", "worked", "messages"}.isdisjoint(plain.split())


def test_p7_nothing_in_the_list_drives_the_terminal() -> None:
    agents = [
        live(f"a{KEY}", Lost(reason=KEY), pod=f"p{KEY}", role=KEY, branch=KEY, model=KEY),
        live("idle", Idle(), ago=90),
        live("over", Exited(code=0), ago=90),
    ]
    text = list_text(agents, {f"bad{KEY}": f"torn{KEY}", "also": "x"}, colour=False, now=NOW)
    assert KEY not in text
    lines = text.splitlines()
    assert lines[-3:-1] == ["also: x", f"bad{SHOWN}: torn{SHOWN}"]
    # How long it has been idle is said of those who are.
    assert [line.split()[-1] for line in lines if line.split()[0] == "idle"] == ["1m"]
    assert [line.split()[-1] for line in lines if line.split()[0] == "over"] == ["(0)"]


def test_b5_the_status_is_the_hub_and_a_line_for_each_agent() -> None:
    fields: dict[str, object] = {"version": "1", "pid": 7, "port": 8, "uptime_seconds": 61.5}
    text = status_text(fields, [live("amy", Idle()), live(f"b{KEY}", Working())])
    assert text == f"hub 1 · pid 7 · port 8 · up 1m\n  amy       idle\n  b{SHOWN}  working\n"


# ── messages ──


def message(**fields: Any) -> Message:
    given = {"id": "m-0123456789ab", "sender": "bob", "to": "amy", "text": "x", "created": NOW}
    return Message(**{**given, "priority": "normal", **fields})


def test_g1_what_is_new_is_new_to_its_receiver_only() -> None:
    messages = [message(), message(sent=NOW), message(sent=NOW, delivered=NOW)]
    own = inbox_text(messages, is_own=True, for_owner=False, why="busy").splitlines()
    assert [line.split()[4] for line in own] == ["new", "new", "delivered"]
    others = inbox_text(messages, is_own=False, for_owner=True, why="busy").splitlines()
    assert [line.split()[4] for line in others[:3]] == ["queued", "sent", "delivered"]
    assert others[3:] == ["2 messages wait: busy"]
    done = inbox_text(messages[2:], is_own=False, for_owner=True, why="busy").splitlines()
    assert len(done) == 1


@pytest.mark.parametrize(("for_owner", "sender"), [(True, "you"), (False, "root")])
def test_g1_the_person_is_you_to_the_person_only(for_owner: bool, sender: str) -> None:
    text = inbox_text([message(sender="root")], is_own=False, for_owner=for_owner)
    assert text.split()[1] == sender


def test_g3_where_a_message_that_nobody_takes_waits() -> None:
    amy = live("amy", Idle())
    assert sent_when(message(), amy, False) == ": amy has to look into its inbox"
    assert sent_when(message(to="root"), None, False) == ": in the person's inbox"
    lines, others = changed(amy, deliver="lines"), changed(amy, deliver="lines-from-agents")
    assert sent_when(message(sender="root"), lines, True) == " (amy takes lines): at once"
    assert sent_when(message(sender="bob"), others, True) == " (amy takes lines): at once"
    why = " (amy takes lines of its owner only): amy has to look into its inbox"
    assert sent_when(message(sender="bob"), lines, True) == why
    gone = changed(live("amy", Lost(reason="x")), deliver="lines")
    assert "when it is started again" in sent_when(message(), gone, True)


@pytest.mark.parametrize(("status", "why"), [(None, "busy"), ("sent", "busy"), ("delivered", "")])
def test_g1_only_what_waits_has_a_reason_to(status: str | None, why: str) -> None:
    fields = {status: NOW} if status else {}
    assert _with_why(message(**fields), "busy").why == why


def test_g1_texts_that_are_none_or_too_long_are_refused() -> None:
    assert check_text("é" * (TEXT_BYTES // 2)) == "é" * (TEXT_BYTES // 2)
    for text in ("é" * (TEXT_BYTES // 2) + "x", "a\0b", "\ud800"):
        with pytest.raises(BullpenError):
            check_text(text)


@pytest.mark.parametrize("sender", ["amy", "root", "me@host:1+2", "main~a.b_c-d"])
def test_i2_senders_that_are_names(sender: str) -> None:
    assert check_sender(sender) == sender


@pytest.mark.parametrize("sender", ["", "a b", "amy\n", "-amy", "a]b", f"a{KEY}", "é", "a·b"])
def test_i2_a_sender_must_not_pass_for_more_than_a_name(sender: str) -> None:
    with pytest.raises(BullpenError, match="is no name of a sender"):
        check_sender(sender)


def test_g3_who_can_be_handed_a_message() -> None:
    amy = live("amy", Idle())
    assert not _takes_messages(amy)
    assert _takes_messages(changed(amy, deliver="lines"))
    assert _takes_messages(changed(amy, engine="codex"))
    assert _takes_messages(changed(amy, message_socket="/x"))
    assert not _takes_messages(changed(amy, engine="of another version", message_socket="/x"))


def test_o1_what_was_nothing_is_no_line_and_little_is_one() -> None:
    text = prometheus_text({"idle": 2}, 1, 9, [(("a\\b", "", "", "m"), Totals(usd=0.5, output=3))])
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == [
        'bullpen_agents{state="idle"} 2',
        "bullpen_approvals_waiting 1",
        "bullpen_events_total 9",
        'bullpen_tokens_total{agent="a\\\\b",model="m",type="output"} 3',
        'bullpen_cost_usd_total{agent="a\\\\b",model="m"} 0.5',
    ]
