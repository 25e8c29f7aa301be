"""Samples as OTLP: metrics, and events as logs, in protobuf and in its JSON (opentelemetry-proto 1.x, encoding.dev).

The few messages that are needed are encoded by hand: see docs/decisions/0023-otlp-by-hand.md.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from vmsonar_archive.dialect.metrics import Labels, Metric, info_help, info_name, table
from vmsonar_archive.dialect.subjects import Observer, Subject, help_of, nanoseconds
from vmsonar_archive.records import EventRow, GapRow, Sample

_SCOPE = "vmsonar"
#: Of SeverityNumber.
_INFO, _WARN = 9, 13
_TROUBLE = ("oom_kill", "container_oom", "gpu_xid", "gpu_lost")
_CUMULATIVE = 2
#: Of the metrics or records of one resource, and of the points of one metric: a body can be divided between these.
_PART_BYTES = 64 * 1024
_PART_POINTS = 200
#: Of a request as a line of JSON: half of what a collector's file receiver reads as one line (`max_log_size`).
_LINE_BYTES = 512 * 1024

Values = list[tuple[str, "str | int | float | bool"]]


class Point(NamedTuple):
    """One number of one subject."""

    attributes: Labels
    start: int
    time: int
    value: float


class Series(NamedTuple):
    """One metric with its points. role: counter, amount or gauge, as in the table."""

    name: str
    role: str
    unit: str
    help: str
    points: list[Point]


class LogRecord(NamedTuple):
    """One event."""

    time: int
    severity: int
    name: str
    body: str
    attributes: Values


def resource(observer: Observer, archive: str, node: str) -> Labels:
    """What describes the machine, called by the name that was asked for; an archive is one instance of the service."""
    machine = Subject("sysinfo", observer.machine, None) if observer.machine is not None else None
    told = {"service.name": "vmsonar", "service.instance.id": archive, "host.name": node}
    return tuple((dict(machine.attributes(with_info=True) if machine else ()) | told).items())


def metrics_of(observer: Observer, ended: bool | None = None) -> list[Series]:
    """The present sample's numbers, metric by metric: all, or only of what ended, or only of what did not."""
    found: dict[str, Series] = {}
    attributes: dict[int, Labels] = {}
    for metric, subject, value in observer.readings(ended):
        series = found.get(metric.convention)
        if series is None:
            series = found[metric.convention] = _series(metric)
        own = attributes.get(id(subject))
        if own is None:
            own = attributes[id(subject)] = subject.attributes()
        time = subject.end or observer.time
        series.points.append(Point(own + metric.attributes, min(subject.start, time), time, value))
    return [*found.values(), *(() if ended else _infos(observer))]


def _series(metric: Metric) -> Series:
    role = "gauge" if metric.role == "start" else metric.role
    return Series(metric.convention, role, metric.ucum, _help(metric.convention), [])


@cache
def _help(convention: str) -> str:
    return help_of([one for one in table().metrics if one.convention == convention])


def _infos(observer: Observer) -> Iterator[Series]:
    for kind in table().infos:
        living = [one for one in observer.subjects.get(kind, ()) if one.end is None]
        if living and kind != "sysinfo":
            points = [Point(one.attributes(with_info=True), 0, observer.time, 1) for one in living]
            yield Series(info_name(kind).replace("_", "."), "gauge", "1", info_help(kind), points)


def logs_of(sample: Sample) -> list[LogRecord]:
    """The events and gaps of a sample."""
    records = []
    row: EventRow | GapRow
    for row in sample.event:
        severity = _WARN if row.event_type in _TROUBLE else _INFO
        time = row.happened or sample.time
        records.append(
            LogRecord(nanoseconds(time), severity, row.event_type, row.detail or row.event_type, _fields(row))
        )
    for row in sample.gap:
        body = ": ".join(filter(None, (row.collector, row.reason, row.detail)))
        records.append(LogRecord(nanoseconds(row.since or sample.time), _WARN, "gap", body, _fields(row)))
    return records


def _fields(row: EventRow | GapRow) -> Values:
    known = msgspec.to_builtins(row)
    return [(f"vmsonar.event.{name}", value) for name, value in known.items() if value is not None]


# Protobuf.


def _varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8", "replace"))


def _key_value(field: int, key: str, value: "str | int | float | bool") -> bytes:
    if isinstance(value, bool):
        said = b"\x10" + _varint(value)
    elif isinstance(value, int):
        said = b"\x18" + _varint(value)
    elif isinstance(value, float):
        said = b"\x21" + struct.pack("<d", value)
    else:
        said = _text(1, value)
    return _bytes(field, _text(1, key) + _bytes(2, said))


# Five times as fast; what it holds of jobs that are gone stays below 8 MB.
@lru_cache(maxsize=8_000)
def _attributes(labels: Labels) -> bytes:
    return b"".join(_key_value(7, key, value) for key, value in labels)


def _point(point: Point) -> bytes:
    start = struct.pack("<BQ", 0x11, point.start) if point.start else b""
    value = point.value
    number = struct.pack("<Bd", 0x21, value) if isinstance(value, float) else struct.pack("<Bq", 0x31, value)
    return _bytes(1, _attributes(point.attributes) + start + struct.pack("<BQ", 0x19, point.time) + number)


def _in_parts(metrics: Iterable[Series]) -> Iterator[Series]:
    """Every metric, and the same with further points where it has very many."""
    for series in metrics:
        for first in range(0, len(series.points), _PART_POINTS):
            yield series._replace(points=series.points[first : first + _PART_POINTS])


def _metric(series: Series) -> bytes:
    head = _text(1, series.name) + _text(2, series.help) + _text(3, series.unit)
    points = b"".join(map(_point, series.points))
    if series.role == "gauge":
        data = _bytes(5, points)
    else:
        data = _bytes(7, points + bytes((0x10, _CUMULATIVE, 0x18, series.role == "counter")))
    return _bytes(2, head + data)


def metrics_body(described: Labels, metrics: Iterable[Series], version: str) -> bytes:
    """An ExportMetricsServiceRequest; bodies joined end to end are one body too, and `parts` divides one."""
    return _body(described, map(_metric, _in_parts(metrics)), version)


def logs_body(described: Labels, records: Iterable[LogRecord], observed: int, version: str) -> bytes:
    """An ExportLogsServiceRequest, which can be joined and divided as well."""
    return _body(described, (_bytes(2, _log_record(one, observed)) for one in records), version)


def _body(described: Labels, told: Iterable[bytes], version: str) -> bytes:
    before = _bytes(1, b"".join(_key_value(1, key, value) for key, value in described))
    scope = _bytes(1, _text(1, _SCOPE) + _text(2, version))
    parts: list[bytes] = [b""]
    for one in told:
        if len(parts[-1]) > _PART_BYTES:
            parts.append(b"")
        parts[-1] += one
    return b"".join(_bytes(1, before + _bytes(2, scope + part)) for part in parts if part)


def _log_record(record: LogRecord, observed: int) -> bytes:
    attributes = b"".join(_key_value(6, key, value) for key, value in record.attributes)
    return (
        struct.pack("<BQ", 0x09, record.time)
        + bytes((0x10, record.severity))
        + _bytes(5, _text(1, record.body))
        + attributes
        + struct.pack("<BQ", 0x59, observed)
        + _text(12, record.name)
    )


def parts(body: bytes) -> list[bytes]:
    """A body divided into the smallest ones that it is made of."""
    found = []
    at = 0
    while at < len(body):
        size, after = _read_varint(body, at + 1)
        found.append(body[at : after + size])
        at = after + size
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128 or shift > 63:
            return number, at
        shift += 7


def rejected(answer: bytes) -> tuple[int, str]:
    """How many of what was sent a receiver did not take, and why: the partial_success of its answer."""
    count, words = 0, ""
    try:
        for number, content in _fields_of(answer):
            if number == 1 and isinstance(content, bytes):
                for inner, value in _fields_of(content):
                    if inner == 1 and isinstance(value, int):
                        count = value
                    elif inner == 2 and isinstance(value, bytes):
                        words = value.decode("utf-8", "replace")
    except IndexError:
        return 0, ""  # not protobuf: the status alone counts
    return min(count, 2**31), words


def _fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 == 0:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = _read_varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            return


# JSON: names in lowerCamelCase, 64-bit numbers as text.


def metrics_json(described: Labels, metrics: Iterable[Series], version: str) -> Iterator[bytes]:
    """The same as lines of JSON, a request each."""
    return _requests(("Metrics", "metrics"), described, map(_metric_json, _in_parts(metrics)), version)


def logs_json(
    described: Labels, records: Iterable[LogRecord], observed: int, version: str
) -> Iterator[bytes]:
    """The same as lines of JSON, a request each."""
    told = (
        {
            "timeUnixNano": str(one.time),
            "observedTimeUnixNano": str(observed),
            "severityNumber": one.severity,
            "eventName": one.name,
            "body": {"stringValue": one.body},
            "attributes": _attributes_json(one.attributes),
        }
        for one in records
    )
    return _requests(("Logs", "logRecords"), described, told, version)


def _requests(
    names: tuple[str, str], described: Labels, told: Iterable[dict[str, Any]], version: str
) -> Iterator[bytes]:
    size, held = 0, list[msgspec.Raw]()
    for one in map(msgspec.json.encode, told):
        if held and size + len(one) > _LINE_BYTES:
            yield _request(names, described, held, version)
            size, held = 0, []
        size += len(one)
        held.append(msgspec.Raw(one))
    if held:
        yield _request(names, described, held, version)


def _request(names: tuple[str, str], described: Labels, told: list[msgspec.Raw], version: str) -> bytes:
    kind, items = names
    scope = {"scope": {"name": _SCOPE, "version": version}, items: told}
    of = {"resource": {"attributes": _attributes_json(described)}, f"scope{kind}": [scope]}
    return msgspec.json.encode({f"resource{kind}": [of]})


def _metric_json(series: Series) -> dict[str, Any]:
    points = [
        {
            "attributes": _attributes_json(point.attributes),
            **({"startTimeUnixNano": str(point.start)} if point.start else {}),
            "timeUnixNano": str(point.time),
            **_number_json(point.value),
        }
        for point in series.points
    ]
    head: dict[str, Any] = {"name": series.name, "description": series.help, "unit": series.unit}
    if series.role == "gauge":
        return head | {"gauge": {"dataPoints": points}}
    is_monotonic = series.role == "counter"
    told = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": is_monotonic}
    return head | {"sum": told}


def _number_json(value: float) -> dict[str, Any]:
    return {"asDouble": value} if isinstance(value, float) else {"asInt": str(int(value))}


def _attributes_json(labels: Iterable[tuple[str, "str | int | float | bool"]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value_json(value)} for key, value in labels]


def _value_json(value: "str | int | float | bool") -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
