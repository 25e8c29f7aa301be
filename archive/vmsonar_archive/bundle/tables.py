"""Parquet tables made for a bundle, of the days in it that have none."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path

import msgspec

from vmsonar_archive.bundle.plan import BundlePlan, PayloadFile
from vmsonar_archive.format import layout
from vmsonar_archive.format.bag import DERIVE, BundledFile
from vmsonar_archive.format.frames import read_frames
from vmsonar_archive.format.layout import SAMPLE, SYSINFO, SegmentName
from vmsonar_archive.format.lines import BadLine, decode_sysinfo
from vmsonar_archive.parquet.schema import arrow
from vmsonar_archive.system.files import sha256_at

_CHUNK = 1024 * 1024
_USUAL_TICKS = 100.0


def load_tables() -> None:
    """Loads all that making tables needs, now: a process that gives up its rights may not find it later."""
    arrow()
    for name in ("pyarrow.compute", "pyarrow.parquet", "vmsonar_archive.parquet.derive"):
        import_module(name)


def add_tables(plan: BundlePlan, folder: Path) -> BundlePlan:
    """The same plan with tables, which lie in a folder until the bundle is written."""
    days: dict[str, list[tuple[SegmentName, PayloadFile]]] = defaultdict(list)
    for item in plan.items:
        name = SegmentName.parse(item.path)
        if name is not None:
            days[layout.day_path(name.day)].append((name, item))
    has_tables = {item.path.rpartition("/")[0] for item in plan.items if layout.is_parquet(item.path)}
    ticks = _ticks(days)
    made = [
        described
        for day, segments in sorted(days.items())
        if day not in has_tables
        for described in _derive(plan, day, sorted(segments, key=lambda one: one[0]), folder / day, ticks)
    ]
    items = [
        PayloadFile(one.path, one.bytes, partial(_content, folder / one.path), one.sha256) for one in made
    ]
    record = msgspec.structs.replace(
        plan.record, files=sorted([*plan.record.files, *made], key=lambda one: one.path)
    )
    rest = sorted([*plan.items[2:], *items], key=lambda item: item.path)
    return BundlePlan(plan.folder, record, [*plan.items[:2], *rest], plan.findings)


def _derive(
    plan: BundlePlan, day: str, segments: list[tuple[SegmentName, PayloadFile]], folder: Path, ticks: float
) -> Iterator[BundledFile]:
    from vmsonar_archive.parquet.derive import Derivation
    from vmsonar_archive.parquet.files import SourceSegment

    if not any(name.kind == SAMPLE for name, _ in segments):
        return
    folder.mkdir(parents=True)
    derivation = Derivation(
        plan.record.archive, day.replace("/", "-"), folder, ticks_per_second=ticks, durable=False
    )
    for kind, add in ((SAMPLE, derivation.add_samples), (SYSINFO, derivation.add_sysinfos)):
        for name, item in segments:
            if name.kind == kind:
                add(_lines(item))
    sources = [SourceSegment(path=item.path, sha256=item.sha256) for _, item in segments]
    for path in sorted(derivation.finish(sources).files.values()):
        size, sha256 = sha256_at(path)
        yield BundledFile(path=f"{day}/{path.name}", operations=[DERIVE], bytes=size, sha256=sha256)


def _lines(item: PayloadFile) -> Iterator[bytes]:
    for found in read_frames(BytesIO(b"".join(item.content()))):
        yield from found.lines


def _ticks(days: dict[str, list[tuple[SegmentName, PayloadFile]]]) -> float:
    """The length of a tick, which the first description of the machine tells."""
    for _, segments in sorted(days.items()):
        for name, item in segments:
            for line in _lines(item) if name.kind == SYSINFO else ():
                try:
                    return float(decode_sysinfo(line).ticks_per_second or _USUAL_TICKS)
                except BadLine:
                    continue
    return _USUAL_TICKS


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(partial(file.read, _CHUNK), b"")
