"""Usage in a running hub: counted once whatever happens to it, shown to the owner alone."""

import asyncio
import contextlib
import gzip
import http.client
import json
import random
import re
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError
from bullpen.hub.agents.registry import Registry
from bullpen.hub.http.guard import BODY_BYTES
from bullpen.hub.store.store import Store
from bullpen.hub.usage import count as usage_count
from bullpen.hub.usage.budgets import Budgets
from bullpen.hub.usage.count import Usage
from bullpen.hub.usage.otlp import Form, read_metrics
from bullpen.model.agent import Agent
from bullpen.model.state import Idle
from tests.hub.http.agents import token_of
from tests.hub.http.http import Answer, ask
from tests.hub.live_agents import live
from tests.hub.pen import Pen, made_pen
from tests.hub.pods.support import asked, deadly_hub, launch, write_role, write_template
from tests.otlp import END, FORMS, START, attribute, encoded, logs, metrics, point, record
from tests.processes import kill
from tests.prometheus import read_prometheus
from tests.steps import Moment, after, before
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KINDS = {"json": "application/json", "protobuf": "application/x-protobuf"}


class Reporter:
    """An agent's program, as far as its telemetry goes."""

    def __init__(self, pen: Pen, name: str, *, start: bool = True, **fields: Any) -> None:
        self.pen = pen
        self.name = name
        if start:
            pen.run(name=name, **fields)
        self.token = token_of(pen.home, name)

    @property
    def port(self) -> int:
        return int(json.loads((self.pen.root / "hub.json").read_text())["port"])

    def send(
        self,
        body: dict[str, Any] | bytes,
        form: Form = "json",
        path: str = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One export."""
        data = body if isinstance(body, bytes) else encoded(body, form)
        is_log = isinstance(body, dict) and "resourceLogs" in body
        return ask(
            self.port,
            "POST",
            path or ("/v1/logs" if is_log else "/v1/metrics"),
            {"Content-Type": KINDS[form], **(headers or {})},
            data,
            token=self.token,
        )

    def send_until_taken(self, body: dict[str, Any]) -> None:
        """As an exporter does: again, until it is told that it was taken."""
        while True:
            with contextlib.suppress(OSError, ValueError, json.JSONDecodeError):
                if self.send(body).status == 200:
                    return
            self.pen.start()

    @property
    def used(self) -> dict[str, Any]:
        return used(self.pen)[self.name]


def used(pen: Pen, by: str = "agent", **query: Any) -> dict[str, dict[str, Any]]:
    report = pen.client().get("usage", by=by, **query)
    return {row["name"]: row["used"] for row in report["rows"]}


def tokens(total: int, kind: str = "input", **fields: Any) -> dict[str, Any]:
    return metrics(token=[point(total, type=kind, **fields)])


@pytest.fixture(scope="module")
def shared_pen() -> Iterator[Pen]:
    with made_pen() as made:
        made.start()
        yield made


@pytest.mark.parametrize("form", FORMS)
def test_o1_totals_that_come_again_and_late_count_once(shared_pen: Pen, form: Form) -> None:
    amy = Reporter(shared_pen, f"totals-{form}")
    for total in (100, 100, 250, 100, 250, 300, 250):
        assert amy.send(tokens(total), form).status == 200
    assert amy.used["input"] == 300
    # The program is started again: another start, from nothing.
    for total in (40, 40):
        amy.send(tokens(total, start=START + 5), form)
    amy.send(tokens(5, kind="output"), form)
    amy.send(metrics(cost=[point(0.25), point(0.5, model="haiku")]), form)
    amy.send(metrics(cost=[point(0.25), point(0.5, model="haiku")]), form)
    found = amy.used
    assert (found["input"], found["output"]) == (340, 5)
    assert found["usd"] == pytest.approx(0.75)


@pytest.mark.parametrize("form", FORMS)
def test_o1_amounts_count_once_each(shared_pen: Pen, form: Form) -> None:
    amy = Reporter(shared_pen, f"amounts-{form}")
    first = metrics(1, token=[point(100, type="input")])
    second = metrics(1, token=[point(100, START + 9, END + 9, type="input")])
    for body in (first, second, first, second):
        assert amy.send(body, form).status == 200
    assert amy.used["input"] == 200


@pytest.mark.parametrize("form", FORMS)
def test_o1_requests_and_tools_count_once_each(shared_pen: Pen, form: Form) -> None:
    amy = Reporter(shared_pen, f"logs-{form}")
    body = logs(
        record("api_request", 1, model="opus"),
        record("tool_result", 2, duration_ms="1500"),
        record("tool_result", 3, duration_ms=500),
        record("assistant_response", 4),
    )
    for _ in range(3):
        assert amy.send(body, form).status == 200
    # A session that is resumed numbers from 0 again.
    amy.send(logs(record("api_request", 1, at=END + 7, model="opus")), form)
    found = amy.used
    assert (found["requests"], found["tool_calls"]) == (2, 2)
    assert found["tool_seconds"] == pytest.approx(2.0)


def test_o1_packed_exports_and_traces_are_taken(shared_pen: Pen) -> None:
    amy = Reporter(shared_pen, "packed")
    packed = {"Content-Encoding": "gzip"}
    for form in FORMS:
        body = encoded(tokens(10, session__id=form), form)
        answer = amy.send(gzip.compress(body), form, headers=packed)
        assert (answer.status, answer.headers["content-type"]) == (200, KINDS[form])
    assert amy.used["input"] == 20
    assert amy.send(b'{"resourceSpans": []}', path="/v1/traces").status == 200
    assert amy.send(b"", "protobuf", "/v1/traces").status == 200
    bomb = gzip.compress(bytes(BODY_BYTES + 1))
    assert len(bomb) < BODY_BYTES
    for path in ("/v1/metrics", "/v1/logs", "/v1/traces"):
        assert amy.send(bomb, path=path, headers=packed).status == 413
        assert amy.send(b"x", path=path, headers=packed).status == 400
        assert amy.send(b"x", path=path, headers={"Content-Encoding": "br"}).status == 400
        assert amy.send(b"{", path=path).status == 400
        assert amy.send(b"\xff", "protobuf", path).status == 400
        assert amy.send(b"{}", path=path, headers={"Content-Type": "text/plain"}).status == 400
    assert amy.used["input"] == 20


def test_o1_of_a_body_that_is_half_wrong_nothing_is_counted(shared_pen: Pen) -> None:
    amy = Reporter(shared_pen, "half")
    body = tokens(10)
    body["resourceMetrics"].append({"scopeMetrics": "nonsense"})
    assert amy.send(body).status == 400
    assert "half" not in used(shared_pen)
    # A figure that cannot be is another matter: the rest counts, and the answer says so.
    strange = metrics(token=[point(10, type="input"), point(-1, type="output"), point("NaN")])
    answer = amy.send(strange)
    assert (answer.status, answer.json["partialSuccess"]["rejectedDataPoints"]) == (200, "2")
    assert amy.used["input"] == 10


def test_o1_whose_it_is_follows_from_the_token(shared_pen: Pen) -> None:
    amy, bob = Reporter(shared_pen, "amy"), Reporter(shared_pen, "bob")
    body = tokens(11, agent__name="bob", agent="bob")
    resource = {"attributes": [attribute("agent.name", "bob"), attribute("service.name", "bob")]}
    body["resourceMetrics"][0]["resource"] = resource
    assert amy.send(body).status == 200
    assert amy.used["input"] == 11
    assert "bob" not in used(shared_pen)
    # The same export is another's own.
    assert bob.send(body).status == 200
    assert (amy.used["input"], bob.used["input"]) == (11, 11)
    owner = (shared_pen.root / "credentials" / "api-token").read_text().strip()
    for path in ("/v1/metrics", "/v1/logs", "/v1/traces"):
        for answer in (
            ask(amy.port, "POST", path, body=body, token=owner),
            ask(shared_pen.home.socket("hub"), "POST", path, body=body),
        ):
            assert answer.status == 403
    for path in ("/usage", "/metrics"):
        assert ask(amy.port, "GET", path, token=amy.token).status == 403
        assert ask(amy.port, "GET", path, token=owner).status == 200
    assert (amy.used["input"], bob.used["input"]) == (11, 11)


def test_o1_an_agent_cannot_fill_the_disk_with_names(shared_pen: Pen) -> None:
    amy = Reporter(shared_pen, "liar")
    amy.send(metrics(token=[point(1, type="input", model=f"m{n}") for n in range(300)]))
    assert amy.used["input"] == 300
    with contextlib.closing(sqlite3.connect(shared_pen.root / "state.db")) as database:
        rows = database.execute("SELECT model FROM usage WHERE agent = 'liar'").fetchall()
    assert len(rows) < 50
    assert ("other",) in rows


async def take(usage: Usage, agent: Agent, *names: str, amount: int = 1) -> None:
    body = metrics(token=[point(amount, type="input", x=name) for name in names])
    await usage.take_metrics(agent, read_metrics(encoded(body, "json"), "json"))


def test_o1_counters_of_dead_processes_make_room_and_living_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_count, "MOST_SERIES", 4)
    registry, amy = Registry(), live("amy", Idle())
    registry.put(amy)
    store = Store.open(tmp_path / "state.db")

    async def work() -> None:
        counts = Usage(store, registry)
        await counts.load()
        await take(counts, amy.agent, "a", "b", "c", "d")
        with pytest.raises(BullpenError, match="more than 4 different counters"):
            await take(counts, amy.agent, "a", "e")
        assert counts.of(amy.agent).input == 4
        monkeypatch.setattr(usage_count, "STALE_SECONDS", 0.0)
        await take(counts, amy.agent, "a", "e")  # `a` lives: it has just come
        monkeypatch.setattr(usage_count, "STALE_SECONDS", 3600.0)
        await take(counts, amy.agent, "a", "e")
        assert counts.of(amy.agent).input == 5
        again = Usage(store, registry)
        await again.load()
        await take(again, amy.agent, "a", "e")
        assert again.of(amy.agent).input == 5

    try:
        asyncio.run(work())
    finally:
        store.close()


def test_o1_two_exports_at_the_same_moment_count_as_the_higher_one(tmp_path: Path) -> None:
    registry, amy = Registry(), live("amy", Idle())
    registry.put(amy)
    store = Store.open(tmp_path / "state.db")

    async def work() -> None:
        counts = Usage(store, registry)
        await counts.load()
        # Both are under way before either is stored; the late one comes last.
        await asyncio.gather(*(take(counts, amy.agent, "a", amount=n) for n in (300, 100, 200)))
        for each in (counts, again := Usage(store, registry)):
            await each.load()
            await take(each, amy.agent, "a", amount=300)
            assert each.of(amy.agent).input == 300
        await take(again, amy.agent, "a", amount=310)
        assert again.of(amy.agent).input == 310

    try:
        asyncio.run(work())
    finally:
        store.close()


def test_o1_hostile_names_in_reports_and_metrics(shared_pen: Pen) -> None:
    amy = Reporter(shared_pen, "hostile")
    names = ['a"b', "a\nb", "a\\", "\x1b[31mred", "x" * 5000, "é\u202e", "}\n# TYPE bullpen x"]
    amy.send(metrics(token=[point(2, type="output", model=name) for name in names]))
    half = encoded(tokens(3, model="HALF"), "json").replace(b"HALF", b"\\ud800")
    assert amy.send(half).status == 200
    events = len(shared_pen.events())
    found = ask(shared_pen.home.socket("hub"), "GET", "/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = read_prometheus(found.body.decode())
    mine = {
        labels["model"]: value
        for labels, value in samples["bullpen_tokens_total"]
        if labels["agent"] == "hostile"
    }
    assert mine == {**{name[:80]: 2.0 for name in names}, "?": 3.0}
    assert sum(value for _, value in samples["bullpen_agents"]) == len(shared_pen.agents())
    assert samples["bullpen_events_total"][0][1] >= events


@pytest.mark.storm
def test_o1_what_was_used_is_shown(pen: Pen) -> None:
    day = time.strftime("%Y-%m-%d")
    empty = pen.cli("usage")
    assert (empty.code, empty.out) == (
        0,
        "nothing was used · agents report it while they work\n",
    )
    amy, bob = Reporter(pen, "amy"), Reporter(pen, "bob", pod="team")
    amy.send(metrics(token=[point(41_234, type="input")], cost=[point(0.38)]))
    assert pen.cli("list").out.splitlines()[0].split() == [
        "AGENT",
        "ROLE",
        "STATE",
        "TOKENS",
        "COST",
    ]
    lines = pen.cli("list").out.splitlines()
    assert re.fullmatch(r"amy +command +unknown .*  41\.2k  \$0\.38", lines[1]), lines
    assert re.fullmatch(r"  bob +command +unknown .*      –      –", lines[3]), lines
    bob.send(logs(record("tool_result", duration_ms=2000), record("api_request", 1, model="m")))
    status = pen.cli("status", "amy").out
    assert "tokens     41.2k\n" in status
    assert "cost       $0.38\n" in status
    by_pod = pen.cli("usage", "--by", "pod")
    assert by_pod.code == 0, by_pod.err
    header, nobody, team, total = (line.split() for line in by_pod.out.splitlines())
    assert header[0] == "POD"
    assert nobody[:3] == ["no", "pod", "41.2k"]
    assert (team[0], team[-4:-1]) == ("team", ["1", "1", "2.0s"])
    assert (total[0], total[1], total[-4:-1]) == ("total", "41.2k", ["1", "1", "2.0s"])
    found = pen.cli("usage", "--by", "day", "--since", "1d", "--json").json
    days = {day, time.strftime("%Y-%m-%d")}  # two, if it was midnight meanwhile
    assert found["rows"] and {row["name"] for row in found["rows"]} <= days
    assert found["total"]["input"] == 41_234
    wrong = pen.cli("usage", "--since", "yesterday")
    assert (wrong.code, "is no duration" in wrong.err) == (2, True)


def test_o1_old_days_are_left_out_and_gone_agents_are_not(pen: Pen) -> None:
    amy = Reporter(pen, "amy")
    amy.send(tokens(70))
    pen.stop("amy")
    pen.cli("gc", "--older-than", "0s")
    assert pen.agents() == {}
    pen.kill_hub()
    with contextlib.closing(sqlite3.connect(pen.root / "state.db")) as database:
        database.execute("UPDATE usage SET day = '2020-01-01'")
        database.commit()
    pen.start()
    assert used(pen)["amy"]["input"] == 70
    assert used(pen, "day") == {"2020-01-01": used(pen)["amy"]}
    assert used(pen, since_seconds=7 * 86400) == {}
    # Another of that name begins with nothing in the list, and adds to the history.
    again = Reporter(pen, "amy")
    assert "TOKENS" not in pen.cli("list").out
    again.send(tokens(5, start=START + 1))
    assert "TOKENS" in pen.cli("list").out
    assert used(pen)["amy"]["input"] == 75
    assert used(pen, since_seconds=7 * 86400)["amy"]["input"] == 5


@pytest.mark.storm
def test_o1_killed_between_storing_and_answering_it_counts_once(pen: Pen) -> None:
    amy = Reporter(pen, "amy")
    body = metrics(token=[point(100, type="input")], cost=[point(0.5)])
    entries = logs(record("api_request", model="m"), record("tool_result", 1, duration_ms=100))
    deltas = metrics(1, token=[point(30, type="output")])

    def count(column: str) -> float:
        with contextlib.closing(sqlite3.connect(pen.root / "state.db")) as database:
            return database.execute(f"SELECT TOTAL({column}) FROM usage").fetchone()[0]

    for each, path, column in (
        (body, "/v1/metrics", "usd"),
        (entries, "/v1/logs", "tool_calls"),
        (deltas, "/v1/metrics", "output"),
    ):
        data = encoded(each, "json")
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {amy.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", amy.port)) as talk:
            talk.sendall(head.encode() + data)
            wait_until(lambda column=column: count(column) > 0)
            kill(pen.pid)  # the exporter has no answer, and sends it again
        pen.start()
        assert amy.send(each).status == 200
    found = amy.used
    assert (found["input"], found["output"], found["requests"]) == (100, 30, 1)
    assert (found["usd"], found["tool_calls"]) == (0.5, 1)
    assert found["tool_seconds"] == pytest.approx(0.1)


@pytest.mark.storm
@pytest.mark.parametrize("moment", [before, after])
@pytest.mark.parametrize("body", [tokens(100), logs(record("api_request", model="m"))])
def test_o1_dying_before_or_after_it_was_stored_it_counts_once(
    pen: Pen, moment: Moment, body: dict[str, Any]
) -> None:
    with deadly_hub(pen, moment(Usage._take)):
        amy = Reporter(pen, "amy")
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            amy.send(body)
    pen.start()
    assert ("amy" in used(pen)) == (moment is after)
    amy.send_until_taken(body)
    assert amy.used["input"] + amy.used["requests"] * 100 == 100


@pytest.mark.storm
def test_o1_a_storm_of_kills_loses_and_doubles_nothing(pen: Pen) -> None:
    amy = Reporter(pen, "amy")
    seed = random.Random(7)
    for number in range(1, 41):
        if seed.random() < 0.2:
            kill(pen.pid)
        amy.send_until_taken(tokens(number * 10))
        amy.send_until_taken(logs(record("tool_result", number, duration_ms=1000)))
        if seed.random() < 0.3:  # a late one, and one that was taken already
            amy.send_until_taken(tokens(max(1, number - 2) * 10))
            amy.send_until_taken(logs(record("tool_result", number, duration_ms=1000)))
    found = amy.used
    assert (found["input"], found["tool_calls"]) == (400, 40)
    assert found["tool_seconds"] == pytest.approx(40.0)
    assert "  400  " in pen.cli("list").out  # what is in memory is the same


def hook(pen: Pen, name: str, event: str) -> None:
    assert pen.ask("POST", f"/agents/{name}/hooks", {"hook_event_name": event})[0] == 200


@pytest.mark.storm
def test_o2_time_of_work_is_counted_once_across_kills(pen: Pen) -> None:
    Reporter(pen, "amy")
    began = time.time()
    least = most = 0.0  # a hook is counted at some moment between its question and its answer
    for number in range(4):
        asked = time.time()
        hook(pen, "amy", "UserPromptSubmit")
        before = time.time()
        if number % 2 == 0:
            kill(pen.pid)  # in the middle of work
            pen.start()
        wait_until(lambda before=before: time.time() - before > 0.3)
        least += time.time() - before
        hook(pen, "amy", "Stop")
        most += time.time() - asked
        if number == 2:
            kill(pen.pid)  # before it was stored, and after
            pen.start()
        else:
            used(pen)
    first = used(pen)["amy"]["work_seconds"]
    assert least - 0.01 < first < most + 0.01
    assert first < time.time() - began
    kill(pen.pid)
    pen.start()
    assert used(pen)["amy"]["work_seconds"] == pytest.approx(first)


# ── budgets ──

# Works until it is interrupted, any number of times, and says so.
INTERRUPTED = ["/bin/sh", "-c", "trap 'echo stopped' INT; echo ready; while :; do sleep 0.1; done"]


def reached(pen: Pen, name: str) -> list[tuple[str, str, float]]:
    events = pen.events(name, "budget.reached")
    return [(event["of"], event["name"], event["used"]) for event in events]


@pytest.mark.storm
def test_o2_a_pod_shares_its_budget_and_all_who_work_are_interrupted(pen: Pen) -> None:
    write_role(pen, "worker", INTERRUPTED)
    write_template(pen, "team", "role: worker, count: 3", budget="{tokens: 100}")
    pen.start()
    lines = launch(pen, asked(pen, "team", pen.root))
    names = sorted(pen.agents())
    assert len(names) == 3, lines
    first, second, third = (Reporter(pen, name, start=False) for name in names)
    for name in names:
        wait_until(lambda name=name: b"ready" in pen.log(name))
    for name in names[:2]:
        hook(pen, name, "UserPromptSubmit")
    first.send(tokens(60))
    second.send(tokens(25))
    wait_until(lambda: all(pen.events(name, "budget.warned") for name in names))
    assert reached(pen, first.name) == []
    third.send(tokens(15))
    wait_until(lambda: all(reached(pen, name) for name in names))
    assert {found for name in names for found in reached(pen, name)} == {("pod", "team", 100)}
    for name in names[:2]:
        wait_until(lambda name=name: b"stopped" in pen.log(name))
    # What interrupts a turn may do something else to one who waits.
    assert b"stopped" not in pen.log(names[2])
    kill(pen.pid)
    pen.start()
    first.send(tokens(61))
    wait_until(lambda: used(pen)[first.name]["input"] == 61)
    assert [len(pen.events(name, "budget.warned")) for name in names] == [1, 1, 1]
    assert [len(reached(pen, name)) for name in names] == [1, 1, 1]


@pytest.mark.storm
def test_o2_a_hub_that_dies_before_the_interrupt_leaves_it_to_the_next(pen: Pen) -> None:
    write_role(pen, "worker", INTERRUPTED, "budget: {tokens: 100}")
    with deadly_hub(pen, before(Budgets._interrupt)):
        amy = Reporter(pen, "amy", role="worker", words=[])
        wait_until(lambda: b"ready" in pen.log("amy"))
        hook(pen, "amy", "UserPromptSubmit")
        with contextlib.suppress(OSError, http.client.HTTPException):
            amy.send(tokens(100))
    assert b"stopped" not in pen.log("amy")
    pen.start()
    wait_until(lambda: b"stopped" in pen.log("amy"))
    assert reached(pen, "amy") == [("agent", "amy", 100)]
    # Started again it has spent all the same; with more to spend it may go on.
    pen.cli("restart", "amy")
    wait_until(lambda: len(reached(pen, "amy")) == 2)
    pen.stop("amy")
    pen.run(name="amy", role="worker", words=[], overrides=["budget.tokens=1000"])
    wait_until(lambda: pen.log("amy").count(b"ready") >= 1)
    hook(pen, "amy", "UserPromptSubmit")
    hook(pen, "amy", "Stop")
    assert len(reached(pen, "amy")) == 2
