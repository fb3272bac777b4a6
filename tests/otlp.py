"""Telemetry as the engines send it."""

import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from bullpen.hub.usage.otlp import Form

START, END = 1_794_802_362_918_000_000, 1_794_802_363_119_000_000
FORMS: list[Form] = ["json", "protobuf"]


def attribute(key: str, value: Any) -> dict[str, Any]:
    kind = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
    # As JavaScript sends them; others send them as text.
    return {"key": key, "value": {kind[type(value)]: value}}


def point(value: Any, start: int = START, end: int = END, **attributes: Any) -> dict[str, Any]:
    how = {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}
    named = {"session.id": "s1", "model": "opus", **attributes}
    return {
        "attributes": [attribute(key.replace("__", "."), one) for key, one in named.items()],
        "startTimeUnixNano": str(start),
        "timeUnixNano": str(end),
        **how,
    }


def metrics(temporality: int = 2, **points: list[dict[str, Any]]) -> dict[str, Any]:
    found = [
        {
            "name": f"claude_code.{name}.usage",
            "sum": {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": each},
        }
        for name, each in points.items()
    ]
    return {"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "x"}, "metrics": found}]}]}


def logs(*records: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": list(records)}]}]}


def record(name: str, sequence: int = 0, at: int = END, **attributes: Any) -> dict[str, Any]:
    named = {"session.id": "s1", "event.name": name, "event.sequence": sequence, **attributes}
    return {
        "timeUnixNano": str(at),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [attribute(key, value) for key, value in named.items()],
    }


def encoded(body: dict[str, Any], form: Form) -> bytes:
    if form == "json":
        return json.dumps(body).encode()
    kind = ExportLogsServiceRequest if "resourceLogs" in body else ExportMetricsServiceRequest
    return json_format.ParseDict(body, kind()).SerializeToString()
