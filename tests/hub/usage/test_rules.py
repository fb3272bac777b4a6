"""Usage without a hub: reading OTLP, what counts, budgets, rate limits, and how it is shown."""

import gzip
import json
import random
import tracemalloc
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from bullpen.engines.claude.limits import find_reset
from bullpen.engines.hooks import refusal
from bullpen.errors import BullpenError
from bullpen.hub.http.guard import BODY_BYTES, RefusedError
from bullpen.hub.render.prometheus import prometheus_text
from bullpen.hub.render.usage import usage_text
from bullpen.hub.usage import otlp
from bullpen.hub.usage.budgets import BudgetFamily
from bullpen.hub.usage.metrics import usage_of_logs, usage_of_metrics
from bullpen.hub.usage.otlp import Form
from bullpen.hub.usage.rate_limits import RateLimit, is_parked, plan
from bullpen.hub.usage.rows import Key
from bullpen.model.agent import Agent
from bullpen.model.role import Budget
from bullpen.model.state import Evidence, Idle, State, View, Working
from bullpen.model.usage import (
    NOTHING,
    Totals,
    UsageReport,
    UsageRow,
    added_up,
    check,
    short_count,
    short_seconds,
    short_usd,
)
from tests.otlp import END, FORMS, START, encoded, logs, metrics, point, record
from tests.prometheus import read_prometheus

each_form = pytest.mark.parametrize("form", FORMS)


# ── OTLP ──


def test_o1_both_forms_give_the_same_values() -> None:
    body = metrics(
        token=[point(100, type="input"), point(7, type="cacheRead", is__x=True, n=5, part=0.5)],
        cost=[point(0.25)],
    )
    first, second = (otlp.read_metrics(encoded(body, form), form) for form in FORMS)
    assert first == second
    assert [one.value for one in first.points] == [100, 7, 0.25]
    assert first.points[1].attributes["part"] == 0.5
    assert [a.series == b.series for a, b in zip(first.points, second.points, strict=True)]
    entries = logs(record("tool_result", duration_ms="43"), record("api_request", 3, model="m"))
    assert otlp.read_logs(encoded(entries, "json"), "json") == otlp.read_logs(
        encoded(entries, "protobuf"), "protobuf"
    )


def test_o1_json_is_read_whatever_else_it_holds() -> None:
    body = metrics(token=[point(5, type="input")])
    body["later"] = {"x": 1}
    metric = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    metric["exemplars"] = [{"traceId": "5b8efff798038103d269b633813fc60c"}]
    metric["sum"]["aggregationTemporality"] = "AGGREGATION_TEMPORALITY_CUMULATIVE"
    others = [{"name": "h", "histogram": {"dataPoints": [{"count": "3"}]}}, {"name": "g"}]
    body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"] += others
    found = otlp.read_metrics(json.dumps(body).encode(), "json")
    assert [(one.value, one.is_cumulative) for one in found.points] == [(5, True)]
    assert found.points[0].attributes["type"] == "input"
    as_text = otlp.read_logs(
        json.dumps(logs(record("api_request") | {"traceId": "00ff", "spanId": "ab"})).encode(),
        "json",
    )
    assert [one.name for one in as_text] == ["api_request"]


@pytest.mark.parametrize("id", ["5b8efff798038103d269b633813fc60c", "00f067aa0ba902b7", "abcde", 7])
def test_o1_ids_are_hex_in_json_and_never_in_the_way(id: Any) -> None:
    """Read as base64, as protobuf's JSON has it, one of odd length would be an error."""
    ids = {"traceId": id, "spanId": id}
    body = metrics(token=[point(5, type="input") | {"exemplars": [{**ids, "asInt": "5"}]}])
    assert otlp.read_metrics(json.dumps(body).encode(), "json").rejected == 0
    entries = logs(record("api_request") | ids)
    found = otlp.read_logs(json.dumps(entries).encode(), "json")
    assert [one.name for one in found] == ["api_request"]
    assert found == otlp.read_logs(json.dumps(logs(record("api_request"))).encode(), "json")


def test_o1_half_a_surrogate_is_replaced() -> None:
    body = metrics(token=[point(5, type="a\ud800b")])
    (found,) = otlp.read_metrics(json.dumps(body).encode(), "json").points
    assert found.attributes["type"] == "a?b"


def test_o1_an_entry_that_is_none_is_left_out_and_the_rest_counts() -> None:
    strange = record("api_request") | {"timeUnixNano": "yesterday"}
    entries = logs(record("tool_result"), strange, record("tool_result", 2))
    found = otlp.read_logs(json.dumps(entries).encode(), "json")
    assert [one.name for one in found] == ["tool_result", "tool_result"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"resourceMetrics": {}}',
        b'{"resourceMetrics": [1]}',
        b'{"resourceMetrics": [{"scopeMetrics": "x"}]}',
        b"[" * 100_000,
        b'{"x": ' + b"9" * 5000 + b"}",
    ],
)
def test_o1_what_is_no_otlp_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(BullpenError, match="the body is no"):
        otlp.read_metrics(body, "json")


def test_o1_broken_protobuf_is_refused() -> None:
    whole = encoded(metrics(token=[point(5, type="input")]), "protobuf")
    for body in (whole[:-1], b"\xff" * 20, b"{}"):
        with pytest.raises(BullpenError, match="protobuf"):
            otlp.read_metrics(body, "protobuf")


@given(st.binary(max_size=300), st.sampled_from(FORMS))
def test_o1_random_bytes_are_read_or_refused(body: bytes, form: Form) -> None:
    for reader in (otlp.read_metrics, otlp.read_logs, otlp.refuse_bad_traces):
        try:
            reader(body, form)
        except BullpenError as error:
            assert error.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["dataPoints", "attributes", "key", "value", "intValue", "sum", "asInt", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_o1_any_json_in_place_of_metrics_is_read_or_refused(value: Any) -> None:
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [value]}]}]}).encode()
    try:
        usage_of_metrics(otlp.read_metrics(body, "json"))
    except BullpenError as error:
        assert "the body is no OTLP" in error.message


BAD = ["NaN", "Infinity", "-Infinity", -5.0, 1e300, -1, 2**62]
BAD_JSON = [*BAD, float("nan"), float("inf"), "x" * 50, None, [1], {}, "9" * 30, True, 10**400]


@pytest.mark.parametrize(
    ("bad", "form"),
    [*((each, form) for each in BAD for form in FORMS), *((x, "json") for x in BAD_JSON)],
)
def test_o1_a_figure_that_cannot_be_is_left_out_and_the_rest_counts(bad: Any, form: Form) -> None:
    body = metrics(
        token=[point(3, type="output"), point(bad, type="input"), point(7, type="input")]
    )
    found = otlp.read_metrics(encoded(body, form), form)
    assert [one.value for one in found.points] == [3, 7]
    assert found.rejected == 1


@pytest.mark.parametrize("temporality", [0, 3, None, "AGGREGATION_TEMPORALITY_UNSPECIFIED"])
def test_o1_a_figure_that_is_neither_a_total_nor_new_is_left_out(temporality: Any) -> None:
    body = metrics(token=[point(5, type="input")])
    (metric,) = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    metric["sum"]["aggregationTemporality"] = temporality
    found = otlp.read_metrics(json.dumps(body).encode(), "json")
    assert (found.points, found.rejected) == ((), 1)


@each_form
def test_o1_the_answer_says_what_was_left_out(form: Form) -> None:
    whole, part = otlp.answer(form), otlp.answer(form, 3)
    if form == "protobuf":
        assert whole == b""
        assert (
            ExportMetricsServiceResponse.FromString(part).partial_success.rejected_data_points == 3
        )
    else:
        assert json.loads(whole) == {}
        assert json.loads(part)["partialSuccess"]["rejectedDataPoints"] == "3"


def test_o1_packed_bodies_are_held_to_the_same_size() -> None:
    assert otlp.unpacked(gzip.compress(b"abc") + gzip.compress(b"def"), "gzip") == b"abcdef"
    assert otlp.unpacked(b"abc", "") == otlp.unpacked(b"abc", "identity") == b"abc"
    exactly = gzip.compress(bytes(BODY_BYTES))
    assert len(otlp.unpacked(exactly, "GZIP")) == BODY_BYTES
    for bomb in (gzip.compress(bytes(BODY_BYTES + 1)), exactly + gzip.compress(b"x")):
        with pytest.raises(RefusedError) as caught:
            otlp.unpacked(bomb, "gzip")
        assert caught.value.status_code == 413
    for broken in (b"abc", gzip.compress(b"abc")[:-3], gzip.compress(b"abc") + b"x"):
        with pytest.raises(BullpenError, match="not gzip"):
            otlp.unpacked(broken, "gzip")
    with pytest.raises(BullpenError, match="br"):
        otlp.unpacked(b"abc", "br")


def test_o1_a_packed_body_is_unpacked_no_further_than_a_body_may_be_large() -> None:
    bomb = gzip.compress(bytes(6 * BODY_BYTES), 1)
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError):
            otlp.unpacked(bomb, "gzip")
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert largest < 4 * BODY_BYTES


def test_o1_a_type_that_is_neither_is_refused() -> None:
    assert otlp.form_of("application/json; charset=utf-8") == "json"
    assert otlp.form_of("Application/X-Protobuf") == "protobuf"
    for other in ("", "text/plain", "application/jsonx"):
        with pytest.raises(BullpenError, match="not understood"):
            otlp.form_of(other)


@each_form
def test_o1_what_counts(form: Form) -> None:
    body = metrics(
        token=[
            point(100, type="input"),
            point(10, type="output"),
            point(3, type="cacheRead"),
            point(4, type="cacheCreation"),
            point(5, type="imagined"),
            point(0.5, type="input", x="half a token"),
        ],
        cost=[point(0.5), point(1e9)],
        other=[point(1)],
    )
    found, rejected = usage_of_metrics(otlp.read_metrics(encoded(body, form), form))
    assert [(one.field, one.amount) for one in found] == [
        ("input", 100),
        ("output", 10),
        ("cache_read", 3),
        ("cache_write", 4),
        ("usd", 0.5),
    ]
    assert rejected == 2
    assert {one.model for one in found} == {"opus"}
    assert all(one.is_total for one in found)
    entries = logs(
        record("api_request", 1, model="haiku"),
        record("tool_result", 2, duration_ms="1258"),
        record("tool_result", 3, duration_ms=-4),
        record("tool_result", 4, duration_ms="9" * 400),
        record("tool_result", 5, duration_ms=8 * 86400 * 1000),  # no tool runs for eight days
        record("api_error", 6),
    )
    told = usage_of_logs(otlp.read_logs(encoded(entries, form), form))
    assert [(one.field, one.amount) for one in told] == [
        ("requests", 1),
        *[("tool_calls", 1), ("tool_seconds", 1.258)],
        *[("tool_calls", 1), ("tool_seconds", 0)] * 3,
    ]


def renamed(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The metrics of another program."""
    for metric in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
        metric["name"] = name
    return body


@each_form
def test_o1_what_counts_of_gemini(form: Form) -> None:
    kinds = {"input": 100, "tool": 5, "output": 10, "thought": 7, "cache": 40, "imagined": 3}
    tokens = metrics(token=[point(count, type=kind) for kind, count in kinds.items()])
    requests = metrics(
        token=[
            point(6, status_code=200),
            point(1, status_code=401),
            point(1, status_code="401", error_type="ApiError"),
            point(1),
        ]
    )
    found = []
    for body, name in ((tokens, "token.usage"), (requests, "api.request.count")):
        data = encoded(renamed(body, f"gemini_cli.{name}"), form)
        found += usage_of_metrics(otlp.read_metrics(data, form))[0]
    assert [(one.field, one.amount) for one in found] == [
        ("input", 100),
        ("input", 5),
        ("output", 10),
        ("output", 7),
        ("cache_read", 40),
        ("requests", 6),
    ]
    assert len({one.key for one in found}) == len(found)
    entries = logs(
        record("gemini_cli.tool_call", duration_ms=991), record("gemini_cli.api_request")
    )
    told = usage_of_logs(otlp.read_logs(encoded(entries, form), form))
    assert [(one.field, one.amount) for one in told] == [("tool_calls", 1), ("tool_seconds", 0.991)]


def codex_response(at: int, kind: str = "response.completed", **counts: Any) -> dict[str, Any]:
    named = {"event.kind": kind, "event.timestamp": f"T{at}", "model": "gpt-5"}
    return record("codex.sse_event", at=0, **named, **counts)


@each_form
def test_o1_what_counts_of_codex(form: Form) -> None:
    entries = logs(
        codex_response(1, input_token_count="100", cached_token_count=64, output_token_count="10"),
        codex_response(1, duration_ms="0"),  # its end, told without what it used
        codex_response(2, kind="response.created", input_token_count="100"),
        codex_response(3, input_token_count="7", output_token_count="x"),
        codex_response(4, input_token_count="-7", output_token_count="9" * 20),
        codex_response(5, input_token_count="1", cached_token_count=2, output_token_count="0.5"),
        record("codex.api_request"),
        record("codex.tool_result", duration_ms="55"),
    )
    told = usage_of_logs(otlp.read_logs(encoded(entries, form), form))
    assert [(one.field, one.amount) for one in told] == [
        *[("requests", 1), ("input", 36), ("cache_read", 64), ("output", 10)],
        *[("requests", 1), ("input", 7), ("cache_read", 0)],
        *[("requests", 1), ("cache_read", 0)],
        *[("requests", 1), ("cache_read", 2)],
        *[("tool_calls", 1), ("tool_seconds", 0.055)],
    ]
    assert {one.model for one in told if one.field == "requests"} == {"gpt-5"}
    assert len({one.key for one in told}) == 5


def test_o1_the_same_again_has_the_same_key_and_nothing_else_has() -> None:
    def keys(*points: dict[str, Any], temporality: int = 2) -> list[bytes]:
        data = encoded(metrics(temporality, token=list(points)), "json")
        return [one.key for one in usage_of_metrics(otlp.read_metrics(data, "json"))[0]]

    first = point(100, type="input")
    later = point(200, end=END + 1, type="input")
    others = [
        point(100, start=START + 1, type="input"),  # the program was started again
        point(100, type="output"),
        point(100, type="input", model="other"),
        point(100, type="input", session__id="s2"),
    ]
    assert keys(first, later) == keys(later, first)[:1] * 2
    assert len(set(keys(first, *others))) == 5
    assert len(set(keys(first, later, temporality=1))) == 2
    assert keys(first, temporality=1) == keys(first, temporality=1)

    def told(**fields: Any) -> bytes:
        data = encoded(logs(record("api_request", **fields)), "json")
        return usage_of_logs(otlp.read_logs(data, "json"))[0].key

    # A session that is resumed numbers its entries from 0 again.
    assert len({told(sequence=5), told(sequence=6), told(sequence=5, at=END + 1)}) == 3
    assert told(sequence=5) == told(sequence=5)


# ── totals, budgets ──


def test_o1_totals_add_up() -> None:
    one = Totals(input=1, output=2, cache_read=1000, cache_write=4, usd=0.5, requests=1)
    assert added_up([one, one]) == Totals(
        input=2, output=4, cache_read=2000, cache_write=8, usd=1.0, requests=2
    )
    assert one.tokens == 7  # what is read from the cache is the same context again
    assert added_up([]) == NOTHING


@pytest.mark.parametrize(
    ("budget", "totals", "minutes", "level", "what"),
    [
        (Budget(), Totals(input=10**9, usd=1e5), 1e6, "ok", "tokens"),
        (Budget(tokens=100), Totals(input=79), 0, "ok", "tokens"),
        (Budget(tokens=100), Totals(input=70, output=10), 0, "warned", "tokens"),
        (Budget(tokens=100), Totals(input=99), 0, "warned", "tokens"),
        (Budget(tokens=100), Totals(input=100), 0, "reached", "tokens"),
        (Budget(tokens=100), Totals(cache_read=10**6), 0, "ok", "tokens"),
        (Budget(usd=0.3), Totals(usd=0.1 + 0.1 + 0.1), 0, "reached", "usd"),
        (Budget(usd=1.0), Totals(usd=sum([0.1] * 10)), 0, "reached", "usd"),
        (Budget(minutes=10), Totals(), 7.99, "ok", "minutes"),
        (Budget(minutes=10), Totals(), 8.0, "warned", "minutes"),
        (Budget(minutes=10), Totals(), 10.0, "reached", "minutes"),
        (Budget(tokens=100, usd=1.0, minutes=10), Totals(input=85, usd=0.9), 1, "warned", "usd"),
        (Budget(tokens=100, minutes=10), Totals(input=85), 12, "reached", "minutes"),
    ],
)
def test_o2_a_budget_is_warned_of_at_80_and_reached_at_100_percent(
    budget: Budget, totals: Totals, minutes: float, level: str, what: str
) -> None:
    verdict = check(budget, totals, minutes)
    assert (verdict.level, verdict.what) == (level, what)


def test_o2_a_verdict_in_words() -> None:
    assert check(Budget(tokens=40_000), Totals(input=41_234), 0).words() == "41.2k of 40k tokens"
    assert check(Budget(usd=10), Totals(usd=9.984), 0).words() == "$9.98 of $10.00"
    assert check(Budget(minutes=30), NOTHING, 31.7).words() == "31 of 30 minutes"


def agent(name: str, parent: str = "", pod: str = "", **fields: Any) -> Agent:
    return Agent(
        name=name,
        run=name,
        parent=parent,
        pod=pod,
        cwd="/",
        command=("x",),
        created="2026-01-01T00:00:00Z",
        **fields,
    )


def nobody_removed(_parent: Key) -> tuple[Key, ...]:
    return ()


def test_o2_an_agent_is_bound_by_its_own_its_ancestors_and_its_pods_budget() -> None:
    usd, tokens = Budget(usd=1), Budget(tokens=5)
    top = agent("top", budget=usd)
    family = BudgetFamily(
        [
            top,
            agent("mid", "top"),
            (low := agent("low", "mid", pod="p", budget=tokens, pod_budget=usd)),
            agent("beside", pod="p"),
            (free := agent("free")),
        ],
        nobody_removed,
    )

    def scopes(one: Agent) -> dict[str, set[str]]:
        return {
            f"{scope.kind} {scope.name}": {each.name for each in scope.members}
            for scope in family.scopes_of(one)
        }

    assert scopes(low) == {
        "agent low": {"low"},
        "agent top": {"top", "mid", "low"},
        "pod p": {"low", "beside"},
    }
    assert scopes(top) == {"agent top": {"top", "mid", "low"}}
    assert scopes(free) == {}


def test_o2_parents_in_a_ring_are_no_endless_family() -> None:
    ring = [agent("a", "b", budget=Budget(usd=1)), agent("b", "a"), agent("c", "c")]
    family = BudgetFamily(ring, nobody_removed)
    assert [len(scope.members) for scope in family.scopes_of(ring[1])] == [2]
    assert list(family.scopes_of(ring[2])) == []


def test_o2_hooks_are_answered_in_the_engines_form() -> None:
    assert json.loads(refusal("PreToolUse", 'no "more"')) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": 'no "more"',
        }
    }
    assert json.loads(refusal("UserPromptSubmit", "no")) == {"decision": "block", "reason": "no"}
    assert refusal("Stop", "no") == ""


# ── rate limits ──

NOW = datetime(2026, 11, 16, 4, 14, 28, tzinfo=ZoneInfo("UTC")).timestamp()


def at(zone: str, *moment: int) -> float:
    return datetime(*moment, tzinfo=ZoneInfo(zone)).timestamp()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "expected"),
    [  # as Claude Code 2.1.325 words them; each a minute later, since it rounds down
        ("5-hour limit · resets 7am (UTC)", at("UTC", 2026, 11, 16, 7, 1)),
        ("5-hour limit · resets 6:14am (UTC)", at("UTC", 2026, 11, 16, 6, 15)),
        ("weekly limit · resets Nov 19, 4:14am (UTC)", at("UTC", 2026, 11, 19, 4, 15)),
        ("weekly limit · resets 2:14am (UTC)", at("UTC", 2026, 11, 17, 2, 15)),
        (
            "weekly limit · resets Dec 24, 5am (Europe/Berlin)",
            at("Europe/Berlin", 2026, 12, 24, 5, 1),
        ),
        (
            "5-hour limit · resets 11:15pm (America/New_York)",
            at("America/New_York", 2026, 11, 15, 23, 16),
        ),
        ("limit · resets 4:14am (UTC)", at("UTC", 2026, 11, 16, 4, 15)),  # half a minute from now
        ("limit · resets 12am (UTC)", at("UTC", 2026, 11, 17, 0, 1)),
        ("limit · resets 12pm (UTC)", at("UTC", 2026, 11, 16, 12, 1)),
    ],
)
def test_o3_the_reset_is_read_from_what_the_program_says(words: str, expected: float) -> None:
    assert find_reset(f"You've hit your {words}", NOW) == expected


def test_o3_the_reset_may_be_next_year() -> None:
    now = at("UTC", 2026, 12, 30, 12)
    assert find_reset("resets Jan 2, 4am (UTC)", now) == at("UTC", 2027, 1, 2, 4, 1)
    assert find_reset("resets Jan 15, 2027, 9:44am (Asia/Kolkata)", now) == at(
        "Asia/Kolkata", 2027, 1, 15, 9, 45
    )


@pytest.mark.parametrize(
    "words",
    [
        "",
        "API Error: Request rejected (429)",
        "resets soon",
        "resets 4am",
        "resets 4am (Nowhere/Land)",
        "resets 4am (../../etc/passwd)",
        "resets 4am (/etc/passwd)",
        "resets Foo 19, 4am (UTC)",
        "resets Feb 31, 4am (UTC)",
        "resets 4:99am (UTC)",
        "resets Jan 15, 2099, 4am (UTC)",
        "resets Jan 15, 2020, 4am (UTC)",
        "resets Jan 15, 0000, 4am (UTC)",
    ],
)
def test_o3_other_words_name_no_reset(words: str) -> None:
    assert find_reset(words, NOW) is None


def test_o3_without_a_reset_the_waits_grow_to_half_an_hour() -> None:
    limit, now, waits = None, 1000.0, []
    for _ in range(8):
        limit = plan(now, None, limit)
        waits.append((limit.until - now) / 60)
        now = limit.until + 90
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert plan(now + 3600, None, limit) == RateLimit(now + 3660, 1)  # it has worked in between
    assert plan(now, now + 7200, limit).until == now + 7200
    assert plan(now, now - 5, None).until == now
    assert plan(0, None, RateLimit(1, 10**9)).until == 1800


def view(state: State, filed_at: float = 0.0) -> View:
    note = Evidence(source="x", says="", at=0)
    return View(run="r", state=state, since=0, decided_by="x", evidence=(note,), filed_at=filed_at)


def test_o3_only_who_still_waits_for_that_moment_is_woken_up() -> None:
    parked = view(Idle(limited_until=50.0), filed_at=10)
    assert is_parked(parked, 50.0)
    assert not is_parked(parked, 40.0)  # parked anew since
    assert not is_parked(view(Idle()), 50.0)
    assert not is_parked(view(Working()), 50.0)


# ── how it is shown ──


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (41_234, "41.2k"),
        (999_949, "999.9k"),
        (999_950, "1M"),
        (1_500_000, "1.5M"),
        (2e12, "2T"),
    ],
)
def test_o1_counts_are_short(count: float, shown: str) -> None:
    assert short_count(count) == shown


def test_o1_money_and_time_are_short() -> None:
    assert [short_usd(usd) for usd in (0, 0.001, 0.005, 0.38, 1234.5)] == [
        *("$0.00", "<$0.01", "$0.01", "$0.38", "$1,234.50")
    ]
    assert [short_seconds(found) for found in (0, 0.44, 9.96, 59.6, 200, 7500)] == [
        *("0.0s", "0.4s", "10s", "1m00s", "3m20s", "2h05m")
    ]


def test_o1_the_report_is_aligned_and_has_a_total() -> None:
    amy = Totals(input=41_200, output=950, usd=0.38, requests=12, tool_calls=3, tool_seconds=200)
    bob = Totals(input=100, cache_read=5_000_000, usd=0.001, work_seconds=65)
    rows = (UsageRow(name="", used=bob), UsageRow(name="amy\x1b[31m", used=amy))
    report = UsageReport(by="pod", since="", rows=rows, total=amy + bob)
    assert usage_text(report) == (
        "POD             IN  OUT  CACHE READ  CACHE WRITE    COST"
        "  REQUESTS  TOOLS  TOOL TIME  WORKED\n"
        "no pod         100    –          5M            –  <$0.01"
        "         –      –          –   1m05s\n"
        "amy\\x1b[31m  41.2k  950           –            –   $0.38"
        "        12      3      3m20s       –\n"
        "total        41.3k  950          5M            –   $0.38"
        "        12      3      3m20s   1m05s\n"
    )
    nothing = UsageReport(by="day", since="2026-11-09", rows=(), total=NOTHING)
    assert "nothing was used since 2026-11-09" in usage_text(nothing)


HOSTILE = ['a"b', "a\nb", "a\\b", 'x",agent="bob', "\\n", "}\n# TYPE x", "ünï", "\u2028"]


def test_o1_labels_cannot_break_out_of_prometheus_text() -> None:
    used = [
        ((name, "r", "", name), Totals(input=n + 1, usd=1e-5 * (n + 1), tool_seconds=0.5))
        for n, name in enumerate(HOSTILE)
    ]
    found = read_prometheus(prometheus_text({"idle": 2, "working": 1}, 3, 77, used))
    assert found["bullpen_agents"] == [({"state": "idle"}, 2), ({"state": "working"}, 1)]
    assert found["bullpen_approvals_waiting"] == [({}, 3)]
    assert found["bullpen_events_total"] == [({}, 77)]
    tokens = found["bullpen_tokens_total"]
    assert [labels["agent"] for labels, _ in tokens] == HOSTILE
    assert [labels["model"] for labels, _ in tokens] == HOSTILE
    assert [value for _, value in tokens] == list(range(1, len(HOSTILE) + 1))
    assert found["bullpen_cost_usd_total"][0][1] == 1e-5
    assert "bullpen_requests_total" not in found


def test_o1_random_amounts_survive_the_text() -> None:
    seed = random.Random(1)
    for _ in range(50):
        usd = seed.random() * 10 ** seed.randint(-8, 5)
        text = prometheus_text({}, 0, 0, [(("a", "", "", ""), Totals(usd=usd))])
        assert read_prometheus(text)["bullpen_cost_usd_total"] == [({"agent": "a"}, usd)]
