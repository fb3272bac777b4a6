"""Usage, budgets and rate limits with the real Claude Code: what it reports is what the model
said that it cost, and what it is told by its hooks stops it."""

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bullpen.engines.hooks import refusal
from bullpen.hub.usage.rate_limits import GO_ON
from tests.engines.cli import KEY, Claude
from tests.engines.fake_anthropic import FakeAnthropic, Writer
from tests.engines.fake_model import ModelRequest, Wire
from tests.engines.programs import bare_claude
from tests.engines.team import Agent, Team, made_team
from tests.hub.pen import made_pen
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ALLOWED = {"allow": ["Bash"]}
SOON = {"OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_LOGS_EXPORT_INTERVAL": "100"}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    """Of the real Claude Code."""
    with made_team(tmp_path, "real") as made:
        yield made


def used(team: Team, name: str = "amy") -> dict[str, Any]:
    rows = team.pen.client().get("usage")["rows"]
    return next((row["used"] for row in rows if row["name"] == name), {})


def wait_counted(team: Team) -> dict[str, Any]:
    """Until all that the model said it cost is counted."""

    def is_counted() -> bool:
        found = used(team)
        spent = (found.get("input", 0), found.get("output", 0))
        answered = [asked for asked in team.claude.model.requests if asked.usage != (0, 0)]
        return spent == team.claude.model.usage and found.get("requests") == len(answered)

    try:
        wait_until(is_counted)
    except AssertionError as error:
        raise AssertionError(f"{used(team)} is not {team.claude.model.usage}") from error
    return used(team)


@pytest.mark.storm
@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
def test_o1_what_it_reports_is_what_the_model_counted(team: Team, protocol: str) -> None:
    env = {**SOON, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    team.role("worker", model="haiku", permissions=ALLOWED, env=env)
    amy = team.run()
    amy.submit('[[tool Bash {"command":"sleep 0.5"} ; say done]]')
    amy.wait_said("done")
    found = wait_counted(team)
    assert found["tool_calls"] == 1
    assert 0.5 <= found["tool_seconds"] < 60
    assert 0 < found["usd"] < 0.01
    assert 0.5 < found["work_seconds"] < 120
    # As totals: a lost export would be made good by the next.
    with contextlib.closing(sqlite3.connect(team.pen.root / "state.db")) as database:
        series = database.execute("SELECT count(*) FROM usage_series").fetchone()[0]
        models = {row[0] for row in database.execute("SELECT DISTINCT model FROM usage")}
    assert series >= 3
    assert models == {"", "claude-haiku-5-5"}
    text = team.cli("list").out
    assert "TOKENS" in text
    assert "<$0.01" in text


@pytest.mark.storm
def test_o1_nothing_is_lost_or_doubled_by_a_hub_that_is_killed_or_an_agent_started_again(
    team: Team,
) -> None:
    team.role("worker", permissions=ALLOWED, env=SOON)
    amy = team.run()
    amy.submit("[[say one]]")
    amy.wait_said("one")
    wait_counted(team)
    amy.submit("[[hold a ; say two]]")
    team.claude.wait_held("a")
    kill(team.pen.pid)
    team.claude.release("a")  # this turn ends, and its exports fail, while there is no hub
    wait_until(lambda: team.claude.model.turns[-1].outcome == "answered")
    wait_until(lambda: [state["status"] for state in team.claude.states()] == ["idle"])
    team.pen.start()
    amy.wait("idle")
    # What its log told in those seconds may be lost; tokens and cost come with the next totals.
    wait_until(lambda: (used(team)["input"], used(team)["output"]) == team.claude.model.usage)
    before = used(team)
    assert team.cli("restart", "amy").code == 0
    amy.wait("idle")
    amy.submit("[[say three]]")
    amy.wait_said("three")
    wait_until(lambda: (used(team)["input"], used(team)["output"]) == team.claude.model.usage)
    assert used(team)["usd"] > before["usd"]
    wait_until(lambda: used(team)["requests"] > before["requests"])


# ── budgets ──


class HookServer:
    """Answers every hook of one event like a hub whose agent has used up its budget."""

    def __init__(self, event: str) -> None:
        reply = refusal(event, "your budget is used up: 5 of 4 tokens").encode()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/plain; charset=utf-8")  # as the hub does
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_port}/"
        self.settings = {"hooks": {event: [{"hooks": [{"type": "http", "url": url}]}]}}

    def __enter__(self) -> dict[str, Any]:
        return self.settings

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.storm
def test_o2_the_program_obeys_the_answer_to_a_tool(tmp_path: Path) -> None:
    with FakeAnthropic() as model, HookServer("PreToolUse") as settings:
        claude = bare_claude(Claude(tmp_path, model))
        claude.settings(**settings, permissions=ALLOWED)
        ran = claude.run_headless('[[tool Bash {"command":"touch made"} ; say so be it]]')
        assert not (claude.work / "made").exists()
        assert ran.result["result"] == "so be it"
        assert "your budget is used up: 5 of 4 tokens" in json.dumps(model.turns[-1].body)


def test_o2_the_program_obeys_the_answer_to_a_prompt(tmp_path: Path) -> None:
    with FakeAnthropic() as model, HookServer("UserPromptSubmit") as settings:
        claude = bare_claude(Claude(tmp_path, model))
        claude.settings(**settings)
        ran = claude.run_headless("[[say never]]")
        assert model.turns == []
        assert "your budget is used up" in json.dumps(ran.lines) + ran.err


def budget_events(team: Team, kind: str) -> list[dict[str, Any]]:
    return team.pen.events("amy", f"budget.{kind}")


@pytest.mark.storm
def test_o2_near_the_end_of_its_budget_there_is_a_warning_and_it_goes_on(team: Team) -> None:
    team.role("worker", permissions=ALLOWED, env=SOON, budget={"tokens": 250})
    amy = team.run()
    amy.submit("[[say one]]")
    amy.wait_said("one")
    wait_counted(team)
    assert budget_events(team, "warned") == []  # 110 of 250
    amy.submit("[[say two]]")
    amy.wait_said("two")
    wait_until(lambda: bool(budget_events(team, "warned")))
    # Tokens come as totals, requests one by one in another export, which may be lost with a hub.
    wait_counted(team)
    kill(team.pen.pid)
    team.pen.start()
    wait_counted(team)
    (warned,) = budget_events(team, "warned")
    assert (warned["what"], warned["used"], warned["limit"]) == ("tokens", 220, 250)
    assert warned["text"] == "your budget: 220 of 250 tokens"
    assert budget_events(team, "reached") == []


@pytest.mark.storm
def test_o2_at_the_end_of_its_budget_an_agent_is_stopped_and_told_why(team: Team) -> None:
    team.role("worker", permissions=ALLOWED, env=SOON, budget={"tokens": 200})
    amy = team.run(rows=60)
    amy.submit('[[tool Bash {"command":"true"} ; tool Bash {"command":"sleep 500"} ; say no]]')
    wait_until(lambda: bool(budget_events(team, "reached")))
    # The tool was interrupted, or denied if it was counted before it began.
    amy.wait("idle")
    turns = len(team.claude.model.turns)
    for times in (1, 2):
        amy.submit("[[say never said]]")
        wait_until(lambda times=times: amy.screen().count("your budget is used up: ") == times)
        amy.wait("idle")
        # The next hub knows it as well, and does not say it twice.
        kill(team.pen.pid)
        team.pen.start()
        amy.wait("idle")
    assert len(team.claude.model.turns) == turns
    (reached,) = budget_events(team, "reached")
    assert (reached["what"], reached["limit"], reached["of"]) == ("tokens", 200, "agent")
    assert reached["used"] in (220, 330)
    # Raised, it is lifted.
    team.pen.stop("amy", 5)
    amy = team.run(resume=True, overrides=["budget.tokens=100000"])
    amy.wait("idle")
    amy.submit("[[say thanks]]")
    amy.wait_said("thanks")


def work_longer(team: Team, seconds: int) -> None:
    """As if those who work had worked for so many seconds more."""
    kill(team.pen.pid)
    with contextlib.closing(sqlite3.connect(team.pen.root / "state.db")) as database:
        database.execute(f"UPDATE events SET time = time - {seconds} WHERE kind = 'agent.state'")
        database.execute(f"UPDATE usage_clocks SET at = at - {seconds}")
        database.commit()
    team.pen.start()


@pytest.mark.storm
def test_o2_minutes_are_counted_while_it_works(team: Team) -> None:
    team.role("worker", permissions=ALLOWED, budget={"minutes": 10})
    amy = team.run()
    amy.submit("[[hold a ; say done]]")
    team.claude.wait_held("a")
    amy.wait("working (thinking)")
    work_longer(team, 490)
    wait_until(lambda: bool(budget_events(team, "warned")))
    assert budget_events(team, "reached") == []
    work_longer(team, 100)
    wait_until(lambda: bool(budget_events(team, "reached")))
    amy.wait("idle")
    assert budget_events(team, "reached")[0]["what"] == "minutes"


# ── rate limits ──


class LimitedAccount(FakeAnthropic):
    """Of a subscription: a refusal says when the limit is reset."""

    def __init__(self) -> None:
        super().__init__()
        self.reset = int(time.time()) + 7200

    def write(self, asked: ModelRequest, wire: Wire) -> Any:
        found = super().write(asked, wire)
        if isinstance(found, Writer):
            found.refuse = self._refusing(found.refuse)
        return found

    def _refusing(self, refuse: Any) -> Any:
        told = {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": str(self.reset),
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        }
        return lambda status, message, headers: refuse(status, message, {**headers, **told})


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Team]:
    """A team with a subscription."""
    with LimitedAccount() as model, made_pen() as pen:
        claude = bare_claude(Claude(tmp_path, model))
        del claude.env["ANTHROPIC_API_KEY"]
        claude.env["CLAUDE_CODE_OAUTH_TOKEN"] = f"sk-ant-oat01-{KEY}"
        yield Team(pen, claude)


def parked_until(amy: Agent) -> float | None:
    state = amy.shown["state"]
    found: float | None = state.get("limited_until") if state["state"] == "idle" else None
    return found


def move_limit(team: Team, until: float) -> None:
    """As if the limit had been for then: in the database, while there is no hub."""
    path = team.pen.root / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        last = "SELECT last FROM latest WHERE kind = 'agent.state' AND agent = 'amy'"
        number = database.execute(last).fetchone()[0]
        (data,) = database.execute("SELECT data FROM events WHERE id = ?", (number,)).fetchone()
        found = json.loads(data)
        for part in ("state", "told"):
            found[part]["limited_until"] = until
        database.execute("UPDATE events SET data = ? WHERE id = ?", (json.dumps(found), number))
        database.commit()


@pytest.mark.storm
def test_o3_an_agent_at_its_limit_is_parked_until_the_reset_and_goes_on_then(
    limited: Team,
) -> None:
    amy = limited.run()
    amy.submit("[[status 429 x1 ; say all is well]]")
    wait_until(lambda: parked_until(amy) is not None)
    reset = limited.claude.model.reset
    assert reset <= parked_until(amy) <= reset + 60
    clock = datetime.fromtimestamp(parked_until(amy)).strftime("%H:%M")
    assert amy.words == f"idle (rate-limited until {clock})"
    explained = {item["source"]: item["says"] for item in amy.explained()["evidence"]}
    assert explained["rate limit"] == "its reset was told"
    # The next hub waits on.
    kill(limited.pen.pid)
    limited.pen.start()
    assert reset <= parked_until(amy) <= reset + 60
    assert limited.pen.events("amy", "agent.resumed") == []
    kill(limited.pen.pid)
    move_limit(limited, time.time() + 1)
    limited.pen.start()
    amy.wait_said("all is well")
    assert GO_ON in json.dumps(limited.claude.model.turns[-1].body)
    assert len(limited.pen.events("amy", "agent.resumed")) == 1
    kill(limited.pen.pid)
    limited.pen.start()
    assert amy.words == "idle"
    assert len(limited.claude.model.turns) == 2


@pytest.mark.storm
def test_o3_a_prompt_of_the_person_ends_the_wait(limited: Team) -> None:
    amy = limited.run()
    amy.submit("[[status 429 x1 ; say all is well]]")
    wait_until(lambda: parked_until(amy) is not None)
    amy.submit("[[say at your service]]")
    amy.wait_said("at your service")
    assert parked_until(amy) is None
    kill(limited.pen.pid)
    limited.pen.start()
    assert amy.words == "idle"
    assert limited.pen.events("amy", "agent.resumed") == []


@pytest.mark.storm
def test_o3_without_a_reset_the_waits_grow(team: Team) -> None:
    amy = team.run()
    for attempt, minutes in ((1, 1), (2, 2)):
        amy.submit("[[status 429]]")
        wait_until(lambda attempt=attempt: len(parked(team)) == attempt)
        found = parked(team)[-1]
        assert found["attempt"] == attempt
        assert found["until"] - found["time"] == pytest.approx(60 * minutes, abs=20)
        wait_until(lambda: parked_until(amy) is not None)
    amy.submit("[[say fine]]")
    amy.wait_said("fine")
    amy.submit("[[status 429]]")
    wait_until(lambda: len(parked(team)) == 3)
    assert parked(team)[-1]["attempt"] == 1  # a turn went well in between


def parked(team: Team) -> list[dict[str, Any]]:
    return team.pen.events("amy", "agent.parked")
