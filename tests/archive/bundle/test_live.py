"""Bundling while a recorder writes, without asking it."""

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path

from tests.making.archives import open_writer
from tests.making.bundles import BOOT, NODE, make_archive, rows_at

pytestmark = pytest.mark.slow

INTERVAL = 0.1
RUNS = 50


class Recorder(threading.Thread):
    """Appends ten times a second; an hour passes every four seconds, so that sealing and rewriting happen too."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._begin = time.monotonic()
        self.ending = threading.Event()
        self.appended = 0

    def _now(self) -> datetime:
        return datetime(2026, 11, 17, tzinfo=UTC) + timedelta(seconds=900 * (time.monotonic() - self._begin))

    def run(self) -> None:
        writer = open_writer(self._root, node=NODE, now=self._now)
        number = 0
        while not self.ending.wait(INTERVAL):
            time_ = self._now()
            number += 1
            self.appended = writer.append(
                time_, BOOT, 10**13 + number * 10**8, rows_at(number, writer.begins_segment(time_), 50)
            )
            writer.maintain()
        writer.close()


def test_fifty_bundles_during_a_recording(tmp_path: Path) -> None:
    root = make_archive(tmp_path / "archive")
    recorder = Recorder(root)
    recorder.start()
    try:
        for number in range(RUNS):
            before = recorder.appended
            bundled = bundle_to_file(root, tmp_path / f"{number}.tar")
            assert bundled.findings == []
            report = verify_path(tmp_path / f"{number}.tar")
            assert report.ok, report.findings
            with open_archive(tmp_path / f"{number}.tar") as inside:
                numbers = [sample.seq for sample in inside.samples()]
            # Everything appended before is there, in order and once.
            assert numbers == list(range(2, numbers[-1] + 1))
            assert numbers[-1] >= before
            (tmp_path / f"{number}.tar").unlink()
            time.sleep(INTERVAL)
    finally:
        recorder.ending.set()
        recorder.join()
    journal = (root / "journal.jsonl").read_text()
    assert '"op":"recompress"' in journal or '"op":"merge"' in journal
