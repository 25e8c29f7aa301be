"""A disk that refuses single calls costs the records it refused, and never one that was written."""

import errno
import os
import random
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from vmsonar_archive.system import files
from vmsonar_archive.write.losses import AppendFailed
from vmsonar_archive.write.segment import SegmentWriter

from tests.archive.write.storms import Told, after_repair, check_read, start
from tests.faults.shim import Faults
from tests.making.archives import BOOT, START, check, make_archive, open_writer, read_seqs, record, rows

pytestmark = pytest.mark.slow


def test_a_segment_begun_again_is_not_repaired_while_it_is_written(tmp_path, monkeypatch):
    """Its name is that of the one before, which failed at its first record and is still being put away."""
    writer = open_writer(tmp_path / "a", fault=lambda point: points.get(point, lambda: None)())
    close, closing, go_on = SegmentWriter.close, threading.Event(), threading.Event()

    kept: list[int] = []

    def append(number: int) -> None:
        kept.append(writer.append(START, BOOT, number, rows(number)))

    def slow_close(segment: SegmentWriter) -> None:
        closing.set()
        assert go_on.wait(60)
        close(segment)

    def refuse(_descriptor: int, _data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    # While a repair has read what it takes for a leftover and not put it in place, records go on.
    points = {"repair.before_rename": lambda: [append(number) for number in (10, 11, 12)]}
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", refuse)
        patch.setattr(SegmentWriter, "close", slow_close)
        with pytest.raises(AppendFailed):
            append(1)
        assert closing.wait(60)
    with suppress(AppendFailed):
        append(1)
    go_on.set()
    while not writer._house.sync_thread.idle:
        pass
    append(1)
    for _ in range(25):
        writer.maintain()
        while not writer._house.sync_thread.idle:
            pass
    assert len(kept) >= 1
    assert read_seqs(tmp_path / "a") == kept
    assert writer.close()


def test_a_torn_journal_that_cannot_be_cut_yet_is_cut_before_the_next_line(tmp_path, monkeypatch):
    root = make_archive(tmp_path / "a")
    journal = root / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op":"sea')

    def refuse(_descriptor: int, _size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        writer = open_writer(root)
    record(writer, 3)
    assert writer.close()
    assert check(root).ok
    assert journal.read_bytes().startswith(whole)
    assert read_seqs(root) == list(range(2, 25))


def annoy(faults: Faults, chance: random.Random) -> None:
    """Lets writes fail, stop short and not be undone, for a while."""
    for _ in range(chance.randrange(1, 5)):
        likely = f"chance={chance.choice([0.05, 0.2, 0.5, 1])}"
        rules = []
        for operation in chance.sample(["write", "ftruncate"], chance.choice([1, 2, 2])):
            count = chance.choice(["1", "3", "*"])
            if operation == "write" and chance.random() < 0.5:
                rules.append(f"write SHORT={chance.randrange(400)} {count} {likely}")
            rules.append(f"{operation} EIO {count} {likely}")
        faults.set(*rules)
        time.sleep(chance.random() * 0.2)
        if chance.random() < 0.6:
            faults.clear()
            time.sleep(chance.random() * 0.1)
    faults.clear()


def storm(folder: Path, seed: int) -> int:
    """Three writers, one after the other, each annoyed and then killed or ended; returns the number of faults."""
    chance, told = random.Random(seed), Told()
    root = folder / "a"
    open_writer(root).close()
    faults = Faults(root, folder / "rules", seed)
    for _ in range(3):
        with start(root, 0.004, 30, env=faults.environment()) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            annoy(faults, chance)
            told.take(first + end(writer, kill=chance.random() < 0.5))
        check_read(root, told)
    after_repair(root, told)
    return faults.happened().total()


def end(writer: subprocess.Popen[bytes], *, kill: bool) -> bytes:
    if kill:
        writer.kill()
    return writer.communicate(None if kill else b"end\n", timeout=60)[0]


def test_writes_that_fail_and_cannot_be_undone_cost_nothing_else(tmp_path):
    assert sum(storm(tmp_path / str(seed), seed) for seed in (1, 2)) > 0


@pytest.mark.chaos
def test_very_many_writes_that_fail_and_cannot_be_undone(tmp_path, capsys):
    began = time.monotonic()
    happened = sum(storm(tmp_path / str(seed), seed) for seed in range(100, 200))
    with capsys.disabled():
        print(f"\n100 schedules, {happened} faults, 0 records lost, {time.monotonic() - began:.0f} s")
