"""What counts in an agent's telemetry: which figures and entries, as what, and how much. Pure.

All engines' names are together here and not with each engine: whose telemetry it is follows from
a token, and an agent may run another engine's program than its own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bullpen.hub.usage.otlp import LARGEST, Attributes, LogEntry, Metrics, number, text

# By the metric, what the kinds of tokens count as.
TOKENS = {
    "claude_code.token.usage": {
        "input": "input",
        "output": "output",
        "cacheRead": "cache_read",
        "cacheCreation": "cache_write",
    },
    # Its thoughts are beside its output, what tools of the API brought in beside its input; what
    # came from the cache is within its input, and two totals cannot be told apart afterwards.
    "gemini_cli.token.usage": {
        "input": "input",
        "tool": "input",
        "output": "output",
        "thought": "output",
        "cache": "cache_read",
    },
}
MODEL_CHARACTERS = 80
MOST_USD = 1e6
MOST_TOOL_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class UsageAmount:
    """Something to add, once: `key` says what it is, a total also how much it is by now."""

    field: str
    model: str
    amount: float
    key: bytes
    is_total: bool = False


def usage_of_metrics(metrics: Metrics) -> tuple[list[UsageAmount], int]:
    """What of an export counts, and how many of its figures cannot be."""
    counts: list[UsageAmount] = []
    rejected = 0
    for point in metrics.points:
        field = _field_of(point.metric, point.attributes)
        if not field:
            continue
        is_whole = point.value.is_integer() if field != "usd" else point.value <= MOST_USD
        if not is_whole:
            rejected += 1
            continue
        key = point.series if point.is_cumulative else point.key
        model = _model(point.attributes)
        counts.append(UsageAmount(field, model, point.value, key, is_total=point.is_cumulative))
    return counts, rejected


def _field_of(metric: str, attributes: Attributes) -> str:
    match metric:
        case "claude_code.cost.usage":
            return "usd"
        # Refusals are in it as well, each of them twice.
        case "gemini_cli.api.request.count" if number(attributes.get("status_code")) == 200:
            return "requests"
        case _ if metric in TOKENS:
            return TOKENS[metric].get(text(attributes.get("type")), "")
        case _:
            return ""


def usage_of_logs(records: Iterable[LogEntry]) -> list[UsageAmount]:
    """What of a log counts: each request that was answered, each tool with its time."""
    counts = []
    for record in records:
        match record.name:
            case "api_request":
                counts.append(UsageAmount("requests", _model(record.attributes), 1, record.key))
            case "codex.sse_event":
                counts += _codex_response(record)
            case "tool_result" | "codex.tool_result" | "gemini_cli.tool_call":
                seconds = number(record.attributes.get("duration_ms")) / 1000
                if not (math.isfinite(seconds) and 0 <= seconds <= MOST_TOOL_SECONDS):
                    seconds = 0.0
                counts.append(UsageAmount("tool_calls", "", 1, record.key))
                counts.append(UsageAmount("tool_seconds", "", seconds, record.key))
    return counts


def _codex_response(record: LogEntry) -> list[UsageAmount]:
    """A request that was answered. The end of one is told twice, once with what it used; what
    came from the cache is within its input, and its thoughts within its output."""
    attributes = record.attributes
    if (
        attributes.get("event.kind") != "response.completed"
        or "input_token_count" not in attributes
    ):
        return []
    names = ("input_token_count", "cached_token_count", "output_token_count")
    whole, cached, output = (number(attributes.get(name, 0)) for name in names)
    amounts = {"requests": 1.0, "input": whole - cached, "cache_read": cached, "output": output}
    model = _model(attributes)
    return [
        UsageAmount(field, model, amount, record.key)
        for field, amount in amounts.items()
        if 0 <= amount <= LARGEST and amount.is_integer()
    ]


def _model(attributes: Attributes) -> str:
    return text(attributes.get("model"))[:MODEL_CHARACTERS]
