"""Derives the tables of several units side by side, since decoding keeps one core busy."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from vmsonar_inspect.parcels import JsonUnit, Unit, nobody_waits
from vmsonar_inspect.waiting import Wait

# Below this a process takes longer to start than it saves.
_WORTH_BYTES = 3 * 1024 * 1024


def derive_together(units: Sequence[Unit], tables: Sequence[str], wait: Wait) -> None:
    """Derives what is missing of units that are segments, if that is worth more than one process.

    Whatever a helper leaves undone is derived, or fails, when its files are asked for.
    """
    waiting = [unit for unit in units if isinstance(unit, JsonUnit) and unit.missing(tables)]
    count = min(len(os.sched_getaffinity(0)), len(waiting))
    if count < 2 or sum(unit.size for unit in waiting) < _WORTH_BYTES or not sys.executable:
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


def _shares(units: Sequence[JsonUnit], count: int) -> list[list[JsonUnit]]:
    """Divided so that no share is much larger than another."""
    shares: list[list[JsonUnit]] = [[] for _ in range(count)]
    sizes = [0] * count
    for unit in sorted(units, key=lambda unit: -unit.size):
        least = sizes.index(min(sizes))
        shares[least].append(unit)
        sizes[least] += unit.size
    return shares


def _start(share: Sequence[JsonUnit], tables: Sequence[str]) -> "subprocess.Popen[bytes]":
    # Not by multiprocessing, which would run the caller's script once more; not from the current folder either.
    helper = subprocess.Popen(
        [sys.executable, "-P", "-m", "vmsonar_inspect.deriver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert helper.stdin is not None
    for unit in share:
        unit.advance = nobody_waits
    try:
        with helper.stdin as stream:
            pickle.dump((share, tables), stream)
    except BrokenPipeError:
        pass
    return helper


def _finish(share: Sequence[JsonUnit], helper: "subprocess.Popen[bytes]") -> None:
    assert helper.stdout is not None
    told = helper.stdout.read()
    if helper.wait() == 0:
        # What it wrote is what it found: it is a process of ours.
        for unit, findings in zip(share, pickle.loads(told), strict=True):  # noqa: S301
            unit.findings = findings
