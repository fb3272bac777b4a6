"""OTLP, the format in which programs send their telemetry: JSON or protobuf, perhaps packed.

Called by `http/otlp`. Pure: bytes to values, the same from both forms. What is not understood
(unknown fields, histograms, spans) is passed over. What is no OTLP is refused as a whole. Figures
that cannot be (no number, negative, too large) are left out and counted, as the format provides
for. What the figures mean is said by `metrics`.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service
from opentelemetry.proto.logs.v1 import logs_pb2 as logs
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics

from bullpen.component.answers import RefusedError
from bullpen.component.guard import BODY_BYTES
from bullpen.errors import BullpenError

Form = Literal["json", "protobuf"]
FORMS: dict[str, Form] = {"application/json": "json", "application/x-protobuf": "protobuf"}
TEXT_CHARACTERS = 200
DIGITS = 20  # of a 64-bit number
LARGEST = 1e12  # tokens, dollars, milliseconds: nobody has used that many
GZIP = zlib.MAX_WBITS | 16
IDS = frozenset({"traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id"})
DELTA = metrics.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = metrics.AGGREGATION_TEMPORALITY_CUMULATIVE

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
class LogEntry:
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
    whole, rest = b"", body
    while rest:  # one file of gzip may follow another
        reader = zlib.decompressobj(GZIP)
        try:
            whole += reader.decompress(rest, BODY_BYTES + 1 - len(whole))
        except zlib.error as error:
            raise BullpenError(f"the body is not gzip: {error}") from error
        if len(whole) > BODY_BYTES:
            raise RefusedError(413, "too_large", f"a body has at most {BODY_BYTES} bytes unpacked")
        if not reader.eof:
            raise BullpenError("the body is not gzip: it ends too early")
        rest = reader.unused_data
    return whole


def read_metrics(body: bytes, form: Form) -> Metrics:
    """The sums of an export."""
    request, rejected = _parse(METRICS, body, form)
    sound = []
    for point in _points(request):
        if point is None or not (math.isfinite(point.value) and 0 <= point.value <= LARGEST):
            rejected += 1
        else:
            sound.append(point)
    return Metrics(tuple(sound), rejected)


def read_logs(body: bytes, form: Form) -> tuple[LogEntry, ...]:
    """The entries of an export."""
    return tuple(_records(_parse(LOGS, body, form)[0]))


def refuse_bad_traces(body: bytes, form: Form) -> None:
    """Traces are not kept, but what is none is refused like the others."""
    if form == "protobuf":
        _parse_protobuf(trace_service.ExportTraceServiceRequest, body)
    else:
        _load(body)


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


# ── parsing ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Export:
    """A kind of export: its request, and where in that the items are which may be left out."""

    request: Any
    item: Any
    path: tuple[str, ...]


METRICS = Export(
    metrics_service.ExportMetricsServiceRequest,
    metrics.NumberDataPoint,
    ("resourceMetrics", "scopeMetrics", "metrics", "sum", "dataPoints"),
)
LOGS = Export(
    logs_service.ExportLogsServiceRequest,
    logs.LogRecord,
    ("resourceLogs", "scopeLogs", "logRecords"),
)
# What the library raises for JSON that is no such message.
NO_MESSAGE = (ParseError, AttributeError, OverflowError, RecursionError, TypeError, ValueError)


def _parse(kind: Export, body: bytes, form: Form) -> tuple[Any, int]:
    """The request, and how many of its items were left out."""
    if form == "protobuf":
        return _parse_protobuf(kind.request, body), 0
    data = _load(body)
    try:
        return ParseDict(data, kind.request(), ignore_unknown_fields=True), 0
    except NO_MESSAGE:
        rejected = _drop_bad_items(kind, data)
    try:
        return ParseDict(data, kind.request(), ignore_unknown_fields=True), rejected
    except NO_MESSAGE as error:
        raise BullpenError("the body is no OTLP in JSON") from error


def _parse_protobuf(request: Any, body: bytes) -> Any:
    try:
        return request.FromString(body)
    except DecodeError as error:
        raise BullpenError("the body is no OTLP in protobuf") from error


def _load(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body, object_hook=_readable)
    except (ValueError, RecursionError) as error:
        raise BullpenError("the body is no JSON") from error
    if not isinstance(data, dict):
        raise BullpenError("the body is no OTLP in JSON")
    return data


def _readable(fields: dict[str, Any]) -> dict[str, Any]:
    """An object as the library can read it. OTLP writes ids in hex where protobuf's JSON has
    base64: nobody needs them here. Texts lose half surrogates, which JSON can hold and neither
    protobuf nor a database."""
    return {
        _sound(key): _sound(value) if isinstance(value, str) else value
        for key, value in fields.items()
        if key not in IDS
    }


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _drop_bad_items(kind: Export, data: dict[str, Any]) -> int:
    """Take out of the data what is no item; how many."""
    *path, last = kind.path
    owners: list[Any] = [data]
    for name in path:
        values = [owner.get(name) for owner in owners if isinstance(owner, dict)]
        owners = [
            each for value in values for each in (value if isinstance(value, list) else [value])
        ]
    dropped = 0
    for owner in owners:
        items = owner.get(last) if isinstance(owner, dict) else None
        if isinstance(items, list):
            owner[last] = [item for item in items if _is_item(kind, item)]
            dropped += len(items) - len(owner[last])
    return dropped


def _is_item(kind: Export, item: Any) -> bool:
    try:
        ParseDict(item, kind.item(), ignore_unknown_fields=True)
    except NO_MESSAGE:
        return False
    return True


# ── reading ──────────────────────────────────────────────────────────────────


def _points(request: Any) -> Iterator[Point | None]:
    """Every figure of a sum; None for one that is no figure."""
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.WhichOneof("data") != "sum":
                    continue
                temporality = metric.sum.aggregation_temporality
                for point in metric.sum.data_points:
                    kind = point.WhichOneof("value")
                    if kind is None or temporality not in (DELTA, CUMULATIVE):
                        yield None
                        continue
                    yield Point(
                        metric.name,
                        _attributes(point),
                        point.start_time_unix_nano,
                        point.time_unix_nano,
                        float(getattr(point, kind)),
                        temporality == CUMULATIVE,
                    )


def _records(request: Any) -> Iterator[LogEntry]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                attributes = _attributes(record)
                # Claude Code gives the name in the body as well, with a prefix.
                named = text(attributes.get("event.name"))
                name = named or text(_scalar(record.body)).rpartition(".")[2]
                yield LogEntry(name, attributes, record.time_unix_nano)


def _attributes(owner: Any) -> dict[str, Scalar]:
    return {pair.key: _scalar(pair.value) for pair in owner.attributes}


def _scalar(value: Any) -> Scalar:
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


def _digest(*parts: Any) -> bytes:
    form = json.dumps(parts, sort_keys=True, default=str).encode()
    return hashlib.blake2b(form, digest_size=16).digest()
