"""Derives the tables of several work units in parallel processes."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from vmsonar_archive.system.children import can_start, python
from vmsonar_archive.system.progress import Progress

from vmsonar_inspect.tables.work_units import SegmentUnit, WorkUnit, no_progress

# Below this a process takes longer to start than it saves.
_WORTH_BYTES = 3 * 1024 * 1024


def derive_in_parallel(units: Sequence[WorkUnit], tables: Sequence[str], wait: Progress) -> None:
    """Derives the missing tables of segment units, if that is worth more than one process.

    Whatever a helper leaves undone is derived, or fails, when its files are requested.
    """
    waiting = [unit for unit in units if isinstance(unit, SegmentUnit) and unit.missing(tables)]
    count = min(len(os.sched_getaffinity(0)), len(waiting))
    if count < 2 or sum(unit.size for unit in waiting) < _WORTH_BYTES or not can_start():
        return
    wait.expect(sum(unit.steps for unit in waiting))
    own, *others = _shares(waiting, count)
    helpers = [(share, _start(share, tables)) for share in others]
    try:
        for unit in own:
            unit.advance = wait.advance
            unit.derive(tables)
        for share, helper in helpers:
            _finish(share, helper)
            wait.advance(sum(unit.steps for unit in share))
    finally:
        for _, helper in helpers:
            helper.kill()
            with helper:
                pass


def _shares(units: Sequence[SegmentUnit], count: int) -> list[list[SegmentUnit]]:
    """Shares of about the same size in bytes."""
    shares: list[list[SegmentUnit]] = [[] for _ in range(count)]
    sizes = [0] * count
    for unit in sorted(units, key=lambda unit: -unit.size):
        least = sizes.index(min(sizes))
        shares[least].append(unit)
        sizes[least] += unit.size
    return shares


def _start(share: Sequence[SegmentUnit], tables: Sequence[str]) -> "subprocess.Popen[bytes]":
    # Not by multiprocessing, which would run the caller's script once more.
    helper = subprocess.Popen(
        python("-m", "vmsonar_inspect.tables.derive"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert helper.stdin is not None
    for unit in share:
        unit.advance = no_progress
    try:
        with helper.stdin as stream:
            pickle.dump((share, tables), stream)
    except BrokenPipeError:
        pass
    return helper


def _finish(share: Sequence[SegmentUnit], helper: "subprocess.Popen[bytes]") -> None:
    assert helper.stdout is not None
    told = helper.stdout.read()
    if helper.wait() == 0:
        # What it wrote is what it found: it is a process of ours.
        for unit, findings in zip(share, pickle.loads(told), strict=True):  # noqa: S301
            unit.findings = findings


def main() -> None:
    # What comes in was written by the process that started this one.
    units, tables = pickle.load(sys.stdin.buffer)  # noqa: S301
    import pyarrow

    # There is a process for every core already.
    pyarrow.set_cpu_count(1)
    for unit in units:
        unit.derive(tables)
    pickle.dump([unit.findings for unit in units], sys.stdout.buffer)


if __name__ == "__main__":
    main()
