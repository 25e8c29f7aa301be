"""OTLP by hand against OpenTelemetry's own messages: both forms of a request mean the same, to their last field."""

from collections import Counter

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from vmsonar_archive.dialect import otlp
from vmsonar_archive.dialect.subjects import Observer
from vmsonar_archive.records import EventRow, GapRow, Sample

from tests.making.metered import Crowded, observed, sample


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Observer, Sample]:
    """A machine with a number for every metric, and very many subjects."""
    return observed(Crowded(tmp_path_factory.mktemp("otlp") / "archive"))


def points_of(request: Message) -> Counter[tuple[bytes, ...]]:
    """Every point or record with all that is said of it, however the request is divided."""
    found: Counter[tuple[bytes, ...]] = Counter()
    for resource in getattr(request, "resource_metrics", ()):
        for metric in resource.scope_metrics[0].metrics:
            data = getattr(metric, metric.WhichOneof("data"))
            points = [one.SerializeToString(deterministic=True) for one in data.data_points]
            del data.data_points[:]
            said = (
                resource.resource.SerializeToString(),
                resource.scope_metrics[0].scope.SerializeToString(),
                metric.SerializeToString(),
            )
            found.update((*said, point) for point in points)
    for resource in getattr(request, "resource_logs", ()):
        records = resource.scope_logs[0].log_records
        found.update((resource.resource.SerializeToString(), one.SerializeToString()) for one in records)
    return found


def same(request: type[Message], body: bytes, lines: list[bytes]) -> Counter[tuple[bytes, ...]]:
    read = request.FromString(body)
    size = read.ByteSize()
    read.DiscardUnknownFields()
    assert read.ByteSize() == size, "a field that OpenTelemetry does not know"
    found = points_of(read)
    assert found == sum((points_of(json_format.Parse(line, request())) for line in lines), Counter())
    assert max(map(len, lines)) < 2**20, "a file receiver cuts the line in two"
    return found


def test_metrics_are_what_opentelemetry_reads(crowded: tuple[Observer, Sample]):
    observer, _ = crowded
    described, series = otlp.resource(observer, "an-archive", "vm"), otlp.metrics_of(observer)
    found = same(
        ExportMetricsServiceRequest,
        otlp.metrics_body(described, series, "1"),
        list(otlp.metrics_json(described, series, "1")),
    )
    assert found.total() == sum(len(one.points) for one in series) > 5000
    assert set(found.values()) == {1}, "a point twice"


@pytest.mark.parametrize("text", ["", 'a"b\n', "é\0\u2028", "x" * 5_000])
def test_events_are_what_opentelemetry_reads(crowded: tuple[Observer, Sample], text: str):
    rows = [EventRow(event_type="exit", program=text, exit_code=-1, amount=-(2**63), core_dumped=True)]
    told = sample(10, event=rows * 300, gap=[GapRow(collector="gpu", reason="timeout", detail=text)])
    described, logs = otlp.resource(crowded[0], "an-archive", text), otlp.logs_of(told)
    body, lines = otlp.logs_body(described, logs, 5, "1"), list(otlp.logs_json(described, logs, 5, "1"))
    assert same(ExportLogsServiceRequest, body, lines).total() == 301


def test_a_body_divides_into_its_parts():
    host = (("host.name", "vm"),)
    points = [otlp.Point((("vmsonar.job.id", "j" * 200),), 0, n, n) for n in range(5000)]
    series = [otlp.Series(f"m{n}", "gauge", "1", "h" * 1000, points[:1]) for n in range(300)]
    logs = [otlp.LogRecord(1, 9, "exit", "b" * 500, [])] * 1000
    for body in (
        otlp.metrics_body(host, series, "1"),
        otlp.metrics_body(host, [otlp.Series("m", "counter", "1", "h", points)], "1"),
        otlp.logs_body(host, logs, 1, "1"),
    ):
        found = otlp.parts(body)
        assert len(found) > 3
        assert max(map(len, found)) < 130_000
        assert b"".join(found) == body


def test_what_a_receiver_did_not_take():
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points, response.partial_success.error_message = 3, "no room"
    assert otlp.rejected(response.SerializeToString()) == (3, "no room")
    for answer in (b"", b"\xff" * 50, b"<html>", b"\x0a\xff\xff"):
        assert otlp.rejected(answer)[0] == 0
