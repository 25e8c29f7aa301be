"""SIGKILL at any moment: recording goes on, the archive verifies, and nothing that was durable is lost."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.making.archives import check, codes, open_writer, read_seqs, record
from tests.real.wait import let_pass

REPOSITORY = Path(__file__).resolve().parents[3]
FAULT_POINTS = [
    "journal.before",
    "journal.after",
    "seal.before_sync",
    "seal.before_journal",
    "rewrite.before_journal",
    "rewrite.before_rename",
    "rewrite.before_unlink",
    "drop.before_journal",
    "drop.before_unlink",
]


def start_victim(root: Path, point: str = "none", hits: int = 1) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.archive.write.victim", str(root), point, str(hits)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE)


def last_durable(victim: "subprocess.Popen[bytes]", already_read: bytes = b"") -> int:
    """Waits for a writer's end; returns the last sample it called durable."""
    try:
        output = already_read + victim.communicate(timeout=60)[0]
    finally:
        victim.kill()
    assert victim.returncode == -9
    return int((output.split(b"\n")[:-1] or [b"0"])[-1])


def run_victim(root: Path, point: str, hits: int = 1) -> int:
    """Lets a writer run until it dies at a fault point."""
    return last_durable(start_victim(root, point, hits))


def run_and_kill(root: Path, seconds: float) -> int:
    """Kills a writer some time after it wrote its first sample."""
    victim = start_victim(root)
    assert victim.stdout is not None
    first = victim.stdout.readline()
    let_pass(seconds)
    victim.kill()
    return last_durable(victim, first)


def goes_on_after(root: Path, durable: int, *, may_drop: bool = False) -> None:
    report = check(root)
    assert report.ok, report.findings
    seqs = read_seqs(root)
    if not may_drop:
        assert seqs == list(range(1, len(seqs) + 1))
    assert not seqs or seqs[-1] >= durable
    writer = open_writer(root)
    assert writer.last_seq >= durable
    assert writer.close()
    report = check(root)
    assert report.ok, report.findings
    assert not codes(report) & {"torn_tail", "unsealed", "pending"}
    assert read_seqs(root)[: len(seqs)] == seqs


def kill_at_random(root: Path, times: int, seed: int) -> None:
    rng = random.Random(seed)
    durable = 0
    for _ in range(times):
        durable = max(durable, run_and_kill(root, seconds=rng.random() * 0.3))
        goes_on_after(root, durable)
    assert durable > times


def test_killed_at_random_moments(tmp_path):
    kill_at_random(tmp_path / "a", times=25, seed=1)


@pytest.mark.chaos
def test_killed_at_many_random_moments(tmp_path):
    kill_at_random(tmp_path / "a", times=500, seed=2)


@pytest.mark.parametrize("point", FAULT_POINTS)
def test_killed_at_a_fault_point(tmp_path, point):
    root = tmp_path / "a"
    for hits in (1, 2):
        durable = run_victim(root, point, hits)
        goes_on_after(root, durable, may_drop=point.startswith("drop"))


@pytest.mark.parametrize("point", ["repair.before_journal", "repair.before_rename"])
def test_killed_while_repairing(tmp_path, point):
    """A copy of a live archive is what a power cut leaves; the next start is killed while it seals that."""
    writer = open_writer(tmp_path / "live")
    record(writer, 50)
    shutil.copytree(tmp_path / "live", tmp_path / "a")
    writer.close()
    run_victim(tmp_path / "a", point, 1)
    goes_on_after(tmp_path / "a", durable=50)


def test_a_torn_journal_line_is_cut_off(tmp_path):
    root = tmp_path / "a"
    durable = run_victim(root, "seal.before_journal", 3)
    journal = root / "journal.jsonl"
    content = journal.read_bytes()
    for length in range(len(content) - 150, len(content)):
        journal.write_bytes(content[:length])
        assert check(root).ok, length
    goes_on_after(root, durable)
