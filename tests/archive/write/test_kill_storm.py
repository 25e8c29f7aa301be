"""SIGKILL in any moment of a busy archive with large records: what was durable is read, before and after repair."""

import random
import time
from pathlib import Path

import pytest

from tests.archive.write.storms import Told, after_repair, check_read, start
from tests.making.archives import open_writer
from tests.real.wait import let_pass

pytestmark = pytest.mark.slow

# So that reading all of it after every kill stays quick.
KILLS_PER_ARCHIVE = 10


def kill_once(root: Path, told: Told, chance: random.Random, life: float) -> None:
    """Most are killed while they append, some while they start and repair what the one before left."""
    with start(root) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline() if chance.random() < 0.8 else b""
        let_pass(chance.random() * life)
        writer.kill()
        told.take(first + writer.communicate(timeout=60)[0])


def storm(folder: Path, kills: int, seed: int, life: float) -> tuple[int, int]:
    """Returns how many records were written, and how many of them had been called durable."""
    chance = random.Random(seed)
    records = durable = 0
    for begin in range(0, kills, KILLS_PER_ARCHIVE):
        root, told = folder / str(begin), Told()
        open_writer(root).close()
        for _ in range(min(KILLS_PER_ARCHIVE, kills - begin)):
            kill_once(root, told, chance, life)
            check_read(root, told)
            if chance.random() < 0.5:
                after_repair(root, told)
        records += after_repair(root, told)
        durable += told.durable
    return records, durable


def test_a_short_storm_of_kills(tmp_path):
    records, durable = storm(tmp_path, kills=20, seed=1, life=0.8)
    assert durable > 5
    assert records >= durable


@pytest.mark.chaos
def test_a_storm_of_500_kills(tmp_path, capsys):
    began = time.monotonic()
    records, durable = storm(tmp_path, kills=500, seed=2, life=1.6)
    with capsys.disabled():
        print(f"\n500 kills, {records} records, {durable} durable, 0 lost, {time.monotonic() - began:.0f} s")
    assert durable > 500
