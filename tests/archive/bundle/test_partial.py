"""Bundles of a part: cut by time, some kinds only, and what is new since the last confirmed upload."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.read.source import BundleSource
from vmsonar_archive.records import Sample
from vmsonar_archive.system.errors import AnswerIsNo, UsageError
from vmsonar_archive.verify.path import verify_path

from tests.archive.bundle.commands import vmsonar
from tests.making.bundles import BOOT, START, fill, make_archive, open_writer, rows_at

SINCE = datetime(2026, 11, 16, 13, 59, tzinfo=UTC)
UNTIL = datetime(2026, 11, 16, 14, 2, tzinfo=UTC)


def _samples(path: Path) -> list[Sample]:
    with open_archive(path) as archive:
        found = list(archive.samples())
        assert archive.findings == []
    return found


def _bundle(archive: Path, output: Path, **options: object) -> Path:
    bundled = bundle_to_file(archive, output, options=BundleOptions(**options))  # type: ignore[arg-type]
    assert bundled.findings == []
    report = verify_path(Path(bundled.output))
    assert report.ok, report.findings
    return Path(bundled.output)


def test_cut_by_time(archive: Path, tmp_path: Path) -> None:
    cut = _bundle(archive, tmp_path, since=SINCE, until=UNTIL)
    assert "_20261116T1401_" in cut.stem
    expected = [sample for sample in _samples(archive) if SINCE <= sample.time < UNTIL]
    found = _samples(cut)
    assert [sample.seq for sample in found] == [sample.seq for sample in expected]
    # Everything that is counted is as it was; only what describes it was added, once.
    assert [sample.process for sample in found] == [sample.process for sample in expected]
    assert {row.pid for row in found[0].process_info} == {100, 101, 102}
    assert {row.pgid for row in found[0].job_info} == {100, 101, 102}
    assert not any(sample.process_info for sample in found[1:6])
    report = verify_path(cut)
    assert [finding.code.value for finding in report.findings] == ["partial"]
    assert "since 2026-11-16T13:59:00Z; until 2026-11-16T14:02:00Z" in report.findings[0].detail


def test_cut_keeps_the_machine(archive: Path, tmp_path: Path) -> None:
    cut = _bundle(archive, tmp_path, since=datetime(2026, 11, 16, 14, 1, tzinfo=UTC))
    with open_archive(cut) as inside:
        assert [info.hostname_short for info in inside.sysinfos()] == ["web1"]


def test_cut_leaves_infos_of_the_gone_behind(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "archive")
    writer.append(START, BOOT, 10**12, rows_at(0, True, processes=5))
    writer.append(START + timedelta(seconds=10), BOOT, 10**12 + 10**10, rows_at(1, False, processes=2))
    writer.close()
    cut = _bundle(tmp_path / "archive", tmp_path, since=START + timedelta(seconds=5))
    (sample,) = _samples(cut)
    assert [row.pid for row in sample.process_info] == [100, 101]


def test_cut_says_what_it_was_made_from(archive: Path, tmp_path: Path) -> None:
    source = BundleSource(_bundle(archive, tmp_path, since=SINCE))
    record = source.record()
    source.close()
    journal = [json.loads(line) for line in (archive / "journal.jsonl").read_text().splitlines()]
    hashes = {entry["path"]: entry["sha256"] for entry in journal}
    (cut,) = record.files
    assert cut.operations == ["cut"]
    assert cut.path == "2026/11/16/sample-135900-8.jsonl.zst"
    assert cut.source_sha256 == hashes[cut.source or ""]
    assert record.left_out == [cut.source]


def test_live_segment_can_be_cut(tmp_path: Path) -> None:
    writer = open_writer(make_archive(tmp_path / "archive"))
    fill(writer, 9, START + timedelta(hours=3), first=100)
    cut = _bundle(tmp_path / "archive", tmp_path, since=START + timedelta(hours=3, seconds=30))
    writer.close()
    assert len(_samples(cut)) == 6


def test_a_cut_that_leaves_nothing_makes_no_bundle(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(AnswerIsNo, match="no samples"):
        _bundle(archive, tmp_path, since=START + timedelta(days=3))
    assert not list(tmp_path.glob("*.tar"))


def test_only_some_kinds(archive: Path, tmp_path: Path) -> None:
    chosen = _bundle(archive, tmp_path, only=("process",))
    for before, after in zip(_samples(archive), _samples(chosen), strict=True):
        kept = Sample(
            time=before.time,
            seq=before.seq,
            run=before.run,
            boot=before.boot,
            boottime=before.boottime,
            process=before.process,
            process_info=before.process_info,
        )
        assert after == kept
    with open_archive(chosen) as inside:
        assert len(list(inside.sysinfos())) == 1


def test_partial_bundles_are_deterministic(archive: Path, tmp_path: Path) -> None:
    first = _bundle(archive, tmp_path / "1.tar", since=SINCE, only=("node", "job"))
    again = _bundle(archive, tmp_path / "2.tar", since=SINCE, only=("node", "job"))
    assert first.read_bytes() == again.read_bytes()


def test_overlapping_bundles_count_once(archive: Path, tmp_path: Path) -> None:
    """Records are told apart by archive, run, boot and number: a union of overlapping bundles has each once."""
    middle = datetime(2026, 11, 16, 14, 1, tzinfo=UTC)
    parts = [
        _bundle(archive, tmp_path / "1.tar", until=middle + timedelta(seconds=40)),
        _bundle(archive, tmp_path / "2.tar", since=middle - timedelta(seconds=40)),
        _bundle(archive, tmp_path / "3.tar", since=SINCE, until=UNTIL),
    ]
    union = {
        (sample.run, sample.boot, sample.seq): msgspec.structs.replace(
            sample, process_info=[], job_info=[], container_info=[]
        )
        for part in parts
        for sample in _samples(part)
    }
    whole = _samples(archive)
    assert sum(len(_samples(part)) for part in parts) > len(whole)
    assert [union[key].process for key in sorted(union, key=lambda key: key[2])] == [
        one.process for one in whole
    ]
    assert sum(row.user_ticks or 0 for one in union.values() for row in one.job) == sum(
        row.user_ticks or 0 for one in whole for row in one.job
    )


def test_recover_takes_a_partial_bundle(archive: Path, tmp_path: Path) -> None:
    cut = _bundle(archive, tmp_path, since=SINCE)
    assert vmsonar("recover", cut, "-o", tmp_path / "saved").returncode == 0
    assert _samples(tmp_path / "saved") == _samples(cut)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--since", "soon"], b"not a time"),
        (["--since", "99999999d"], b"not a time"),
        (["--until", "0001-01-01T00:00+05:00"], b"not a time"),
        (["--increment", "--only", "node"], b"leave out --only"),
        (["--only", "cpu,gpus"], b"not gpus"),
        (["--redact", "everything"], b"not everything"),
        (["--increment", "--since", "2h"], b"leave out --since"),
        (["--redact-key", "/dev/null"], b"say what to hide"),
    ],
)
def test_usage(arguments: list[str], word: bytes, archive: Path, tmp_path: Path) -> None:
    done = vmsonar("bundle", "--archive", archive, "-o", tmp_path, *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_command_takes_times(archive: Path, tmp_path: Path) -> None:
    done = vmsonar(
        "bundle",
        "--archive",
        archive,
        "-o",
        tmp_path / "x.tar",
        "--since",
        "2026-11-16T13:59Z",
        "--until",
        "2026-11-16 14:02",
    )
    assert done.returncode == 0, done.stderr
    assert len(_samples(tmp_path / "x.tar")) == 18


def test_options_refuse_short_keys(archive: Path, tmp_path: Path) -> None:
    from vmsonar_archive.records.fields import Sensitivity

    with pytest.raises(UsageError, match="at least 16 bytes"):
        _bundle(archive, tmp_path, redact=frozenset({Sensitivity.USER}), redact_key=b"short")
