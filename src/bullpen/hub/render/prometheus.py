"""What Prometheus reads. Pure."""

from collections.abc import Callable, Mapping, Sequence

from bullpen.model.usage import Labels, Totals

LABELS = ("agent", "role", "pod", "model")
TOKEN_TYPES = ("input", "output", "cache_read", "cache_write")
COUNTERS: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("bullpen_cost_usd_total", "Cost in USD, as the programs reckon it.", lambda t: t.usd),
    ("bullpen_requests_total", "Requests to models that were answered.", lambda t: t.requests),
    ("bullpen_tool_calls_total", "Tool calls.", lambda t: t.tool_calls),
    ("bullpen_tool_seconds_total", "Time that tools took.", lambda t: t.tool_seconds),
    ("bullpen_work_seconds_total", "Time spent working.", lambda t: t.work_seconds),
)


def prometheus_text(
    states: Mapping[str, int], approvals: int, events: int, used: Sequence[tuple[Labels, Totals]]
) -> str:
    """What Prometheus reads."""
    lines = _metric("bullpen_agents", "gauge", "Agents by their state.")
    lines += [_sample("bullpen_agents", {"state": name}, states[name]) for name in sorted(states)]
    lines += _metric("bullpen_approvals_waiting", "gauge", "Decisions that wait for a person.")
    lines.append(_sample("bullpen_approvals_waiting", {}, approvals))
    lines += _metric("bullpen_events_total", "counter", "Events that were ever recorded.")
    lines.append(_sample("bullpen_events_total", {}, events))
    lines += _metric("bullpen_tokens_total", "counter", "Tokens, by type.")
    for labels, totals in used:
        for kind in TOKEN_TYPES:
            if count := getattr(totals, kind):
                named = {**dict(zip(LABELS, labels, strict=True)), "type": kind}
                lines.append(_sample("bullpen_tokens_total", named, count))
    for name, text, value_of in COUNTERS:
        lines += _metric(name, "counter", text)
        for labels, totals in used:
            if value := value_of(totals):
                lines.append(_sample(name, dict(zip(LABELS, labels, strict=True)), value))
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items() if text)
    return f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
