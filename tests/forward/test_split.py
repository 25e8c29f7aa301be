"""Splitting by job: nothing is lost, nothing is there twice, every part is a valid message."""

import msgspec
import pytest
from vmsonar_archive.dialect.sonar import Sonar, envelope
from vmsonar_archive.format.lines import checked, decode_sample, record_line
from vmsonar_archive.records import (
    BatchJobRow,
    GapRow,
    GpuProcessRow,
    JobRow,
    NodeRow,
    ProcessInfoRow,
    ProcessRow,
    Sample,
)

from tests.archive.dialect.sonar_rules import validate
from tests.making.archives import BOOT, START
from vmsonar.forward.translate import split_native, split_sonar


def sample() -> Sample:
    rows = [ProcessRow(pid=pid, start_ticks=1, pgid=pid // 4, user_ticks=pid) for pid in range(4, 404)]
    return Sample(
        time=START, seq=5, run="r", boot=BOOT, boottime=10**15, process=rows, node=[NodeRow(load1=1.0)],
        process_info=[ProcessInfoRow(series_id="s", pid=row.pid, start_ticks=1, program="p") for row in rows],
        job=[JobRow(pgid=pgid, start_ticks=1) for pgid in range(1, 101)],
        gap=[GapRow(collector="gpu", reason="timeout")], gpu_process=[GpuProcessRow(gpu_uuid="g", pid=77)],
    )  # fmt: skip


@pytest.mark.parametrize("limit", [600, 2000, 7000])
def test_sonar(limit: int) -> None:
    value = envelope("sample", Sonar("c", "n").sample(sample()))
    whole, parts = validate(value), [validate(part) for part in split_sonar(value, limit)]
    assert all(len(part) <= max(limit, 800) for part in split_sonar(value, limit))
    assert [job for part in parts for job in part["jobs"]] == whole["jobs"]
    assert {msgspec.json.encode(part["system"]) for part in parts} == {msgspec.json.encode(whole["system"])}
    assert [("errors" in part) for part in parts] == [True] + [False] * (len(parts) - 1)


@pytest.mark.parametrize("limit", [900, 3000, 20000])
def test_native(limit: int) -> None:
    values = split_native(record_line(sample())[:-1], limit)
    parts = [decode_sample(checked(value)) for value in values]
    whole = sample()
    assert len(values) > 2
    assert all(len(value) <= limit for value in values)
    for kind in ("process", "process_info", "job", "gpu_process", "node", "gap"):
        rows = [row for part in parts for row in getattr(part, kind)]
        assert sorted(map(repr, rows)) == sorted(map(repr, getattr(whole, kind))), kind
    assert {(part.seq, part.run, part.time) for part in parts} == {(5, "r", START)}


def batch(count: int) -> Sample:
    jobs = [BatchJobRow(batch_job=str(number), job_name="x" * 300) for number in range(count)]
    return Sample(time=START, seq=5, run="r", boot=BOOT, boottime=1, node=[NodeRow()], batch_job=jobs)


def test_what_slurm_tells_of_many_jobs() -> None:
    (told,) = (envelope(kind, told) for kind, told in Sonar("c", "n").batch(batch(100)))
    parts = split_sonar(told, 5000)
    assert all(len(part) <= 5000 for part in parts)
    lists = [msgspec.json.decode(part)["data"]["attributes"]["slurm_jobs"] for part in parts]
    assert [job["job_id"] for jobs in lists for job in jobs] == list(range(100))
    values = split_native(record_line(batch(100))[:-1], 5000)
    assert all(len(value) <= 5000 for value in values)
    samples = [decode_sample(checked(value)) for value in values]
    assert [job for part in samples for job in part.batch_job] == batch(100).batch_job
    assert [len(part.node) for part in samples] == [1] + [0] * (len(samples) - 1)


def test_one_job_cannot_be_divided() -> None:
    one = sample()
    one.process = [row for row in one.process if row.pgid == 7]
    value = envelope("sample", Sonar("c", "n").sample(one))
    assert split_sonar(value, 10) == [value]
    bare = record_line(Sample(time=START, seq=5, run="r", boot=BOOT, boottime=1, node=[NodeRow()]))[:-1]
    assert split_native(bare, 10) == [bare]
