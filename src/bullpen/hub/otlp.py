"""OTLP, the format in which programs send their telemetry: JSON or protobuf, perhaps packed.

Pure: bytes to values, the same values from both forms. What is not understood (unknown fields,
histograms, spans) is passed over; what is no OTLP at all is refused as a whole. Figures that
cannot be (no number, negative, beyond all reason) are left out and counted, as the format
provides for. What the figures mean is `hub/usage.py`'s business.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

from bullpen.errors import BullpenError
from bullpen.hub.guard import BODY_BYTES, RefusedError

Form = Literal["json", "protobuf"]
FORMS: dict[str, Form] = {"application/json": "json", "application/x-protobuf": "protobuf"}
TEXT_CHARACTERS = 200
DIGITS = 20  # of a 64-bit number
LARGEST = 1e12  # tokens, dollars, milliseconds: nobody has used that many
GZIP = zlib.MAX_WBITS | 16
DELTA = (1, "AGGREGATION_TEMPORALITY_DELTA")
CUMULATIVE = (2, "AGGREGATION_TEMPORALITY_CUMULATIVE")

Scalar = str | int | float | bool | None
Attributes = Mapping[str, Scalar]


@dataclass(frozen=True)
class Point:
    """One figure of a sum: since `start` up to `end` if it is cumulative, else only what came
    between the two. Times are nanoseconds."""

    metric: str
    attributes: Attributes
    start: int
    end: int
    value: float
    is_cumulative: bool

    @property
    def series(self) -> bytes:
        """The same for every export of one counter of one process. One that begins anew has
        another start."""
        return _digest(self.metric, self.start, self.attributes)

    @property
    def key(self) -> bytes:
        """The same only for the same export."""
        return _digest(self.metric, self.start, self.attributes, self.end)


@dataclass(frozen=True)
class Record:
    """One entry of a log."""

    name: str
    attributes: Attributes
    at: int

    @property
    def key(self) -> bytes:
        """The same only for the same entry sent again. Claude Code numbers them per process, and
        a resumed session begins at 0 again: so the time is part of it."""
        return _digest(self.name, self.at, self.attributes)


@dataclass(frozen=True)
class Metrics:
    """The sums of one export, and how many figures were left out."""

    points: tuple[Point, ...]
    rejected: int


def form_of(content_type: str) -> Form:
    """The form that the header names."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in FORMS:
        raise BullpenError(
            f"telemetry of type {kind[:80]!r} is not understood", hint=f"send {', '.join(FORMS)}"
        )
    return FORMS[kind]


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body, which may be no larger unpacked than any other."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _unzipped(body)
    raise BullpenError(f"content-encoding {encoding[:40]!r} is not understood", hint="send gzip")


def _unzipped(body: bytes) -> bytes:
    found, rest = b"", body
    while rest:  # one file of gzip may follow another
        reader = zlib.decompressobj(GZIP)
        try:
            found += reader.decompress(rest, BODY_BYTES + 1 - len(found))
        except zlib.error as error:
            raise BullpenError(f"the body is not gzip: {error}") from error
        if len(found) > BODY_BYTES:
            raise RefusedError(413, "too_large", f"a body has at most {BODY_BYTES} bytes unpacked")
        if not reader.eof:
            raise BullpenError("the body is not gzip: it ends too early")
        rest = reader.unused_data
    return found


def read_metrics(body: bytes, form: Form) -> Metrics:
    """The sums of an export."""
    found = _metrics_in(body) if form == "protobuf" else _metrics_in_json(body)
    sound, rejected = [], 0
    for point in found:
        if point is None or not (math.isfinite(point.value) and 0 <= point.value <= LARGEST):
            rejected += 1
        else:
            sound.append(point)
    return Metrics(tuple(sound), rejected)


def read_logs(body: bytes, form: Form) -> tuple[Record, ...]:
    """The entries of an export."""
    return tuple(_logs_in(body) if form == "protobuf" else _logs_in_json(body))


def refuse_bad_traces(body: bytes, form: Form) -> None:
    """Traces are not kept, but what is none is refused like the others."""
    if form == "protobuf":
        _parsed(trace_service.ExportTraceServiceRequest, body)
    else:
        _loaded(body)


def answer(form: Form, rejected: int = 0) -> bytes:
    """What the exporter is told: all taken, or how many figures were left out."""
    message = "figures that are negative, too large or no numbers were left out"
    if form == "protobuf":
        whole = metrics_service.ExportMetricsServiceResponse()
        if rejected:
            whole.partial_success.rejected_data_points = rejected
            whole.partial_success.error_message = message
        return whole.SerializeToString()
    partial = {"rejectedDataPoints": str(rejected), "errorMessage": message}
    return json.dumps({"partialSuccess": partial} if rejected else {}).encode()


def number(value: Scalar) -> float:
    """A number, also one that is written as text; NaN for anything else."""
    if isinstance(value, str):
        try:
            value = float(value) if len(value) <= 2 * DIGITS else math.nan
        except ValueError:
            return math.nan
    if value is None or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def text(value: Scalar) -> str:
    """A text of reasonable length; empty for anything else."""
    return value[:TEXT_CHARACTERS] if isinstance(value, str) else ""


# ── protobuf ─────────────────────────────────────────────────────────────────


def _metrics_in(body: bytes) -> Iterator[Point | None]:
    request = _parsed(metrics_service.ExportMetricsServiceRequest, body)
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.WhichOneof("data") != "sum":
                    continue
                temporality = metric.sum.aggregation_temporality
                for point in metric.sum.data_points:
                    kind = point.WhichOneof("value")
                    yield _point(
                        metric.name,
                        {pair.key: _plain(pair.value) for pair in point.attributes},
                        point.start_time_unix_nano,
                        point.time_unix_nano,
                        getattr(point, kind) if kind else None,
                        temporality,
                    )


def _logs_in(body: bytes) -> Iterator[Record]:
    request = _parsed(logs_service.ExportLogsServiceRequest, body)
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                found = {pair.key: _plain(pair.value) for pair in record.attributes}
                yield _record(_plain(record.body), found, record.time_unix_nano)


def _plain(value: Any) -> Scalar:
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return bool(value.bool_value)
        case "int_value":
            return int(value.int_value)
        case "double_value":
            return float(value.double_value)
        case _:
            return None


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise BullpenError("the body is no OTLP in protobuf") from error


# ── JSON ─────────────────────────────────────────────────────────────────────


def _metrics_in_json(body: bytes) -> Iterator[Point | None]:
    for metric in _leaves(_loaded(body), "resourceMetrics", "scopeMetrics", "metrics"):
        found = metric.get("sum")
        if not isinstance(found, dict):
            continue
        for point in _dicts(found.get("dataPoints")):
            yield _point(
                metric.get("name"),
                _attributes(point),
                _integer(point.get("startTimeUnixNano")),
                _integer(point.get("timeUnixNano")),
                point.get("asDouble", point.get("asInt")),
                found.get("aggregationTemporality"),
            )


def _logs_in_json(body: bytes) -> Iterator[Record]:
    for record in _leaves(_loaded(body), "resourceLogs", "scopeLogs", "logRecords"):
        yield _record(
            _scalar(record.get("body")), _attributes(record), _integer(record.get("timeUnixNano"))
        )


def _loaded(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BullpenError("the body is no JSON") from error
    if not isinstance(found, dict):
        raise BullpenError("the body is no OTLP in JSON")
    return found


def _leaves(found: dict[str, Any], *path: str) -> Iterable[dict[str, Any]]:
    level = [found]
    for name in path:
        level = [each for one in level for each in _dicts(one.get(name))]
    return level


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list that should hold nothing else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BullpenError("the body is no OTLP in JSON: a list of objects is missing")
    return value


def _attributes(owner: dict[str, Any]) -> dict[str, Scalar]:
    pairs = _dicts(owner.get("attributes"))
    return {
        _sound(pair["key"]): _scalar(pair.get("value"))
        for pair in pairs
        if isinstance(pair.get("key"), str)
    }


def _scalar(value: Any) -> Scalar:
    """A value of one of the kinds that both forms can hold, as the other form gives it."""
    match value:
        case {"stringValue": str(found)}:
            return _sound(found)
        case {"boolValue": bool(found)}:
            return found
        case {"intValue": found}:
            return _integer(found)
        case {"doubleValue": found}:
            return number(found) if isinstance(found, str | int | float) else None
        case _:
            return None


def _integer(value: Any) -> int:
    """64 bits are too many for a number of JavaScript: they come as text."""
    if isinstance(value, str) and len(value) <= DIGITS and value.isascii():
        digits = value.removeprefix("-")
        value = int(value) if digits.isdecimal() else 0
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1 << 64 else 0


def _sound(found: str) -> str:
    """Without half surrogates, which JSON can hold and neither protobuf nor a database."""
    return found.encode("utf-8", "replace").decode()


# ── both ─────────────────────────────────────────────────────────────────────


def _point(
    metric: Any, attributes: Attributes, start: int, end: int, value: Any, temporality: Any
) -> Point | None:
    """None for a figure that is no figure."""
    if not isinstance(metric, str) or not isinstance(value, str | int | float):
        return None
    if temporality not in (*DELTA, *CUMULATIVE):
        return None
    is_cumulative = temporality in CUMULATIVE
    return Point(_sound(metric), attributes, start, end, number(value), is_cumulative)


def _record(body: Scalar, attributes: Attributes, at: int) -> Record:
    """Named by its attribute; Claude Code gives it in the body as well, with a prefix."""
    name = text(attributes.get("event.name")) or text(body).rpartition(".")[2]
    return Record(name, attributes, at)


def _digest(*parts: Any) -> bytes:
    form = json.dumps(parts, sort_keys=True, default=str).encode()
    return hashlib.blake2b(form, digest_size=16).digest()
