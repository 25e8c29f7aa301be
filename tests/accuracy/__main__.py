"""Runs every workload in every mode and writes the page: `python -m tests.accuracy docs/accuracy.md --seeds 200`."""

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.accuracy import compare, containers
from tests.accuracy.compare import Cell
from tests.accuracy.mixtures import mixture
from tests.accuracy.modes import ALL, Mode
from tests.accuracy.page import MIXTURES, page
from tests.accuracy.stage import perform
from tests.accuracy.workloads import EVERY, NEIGHBOUR, Workload

#: Mixtures that run side by side.
BATCH = 20
LIMITS = {
    "job": compare.JOB_SHARE,
    "accounts": compare.ACCOUNTS_SHARE,
    "sums": compare.SUM_SHARE,
    "memory": compare.MEMORY_SHARE,
}


def performances(seeds: int, only: Sequence[str] = ()) -> list[list[Workload]]:
    """The workloads that share the stage: all with a name first, then mixtures, each time beside a hog."""
    first = [workload for workload in EVERY if not only or workload.name in only]
    batches = [
        [NEIGHBOUR, *map(mixture, range(begin, min(begin + BATCH, seeds)))]
        for begin in range(0, seeds, BATCH)
    ]
    return [first, *batches] if first else batches


def run(
    batches: list[list[Workload]], modes: Sequence[Mode], keep: Path | None = None
) -> tuple[list[Cell], bool]:
    """Every figure of every batch: of jobs, users and the machine; and whether every workload ran."""
    cells: list[Cell] = []
    is_whole = True
    named = sum(not any(one.name.startswith("seed-") for one in batch) for batch in batches)
    for number, workloads in enumerate(batches):
        try:
            result = perform(workloads, modes, keep=None if keep is None else keep / str(number))
        except Exception:
            traceback.print_exc()  # the others are worth an hour of work
            is_whole = False
            continue
        is_whole &= not result.failed
        wrong = [cell for cell in result.cells if not cell.is_right]
        print(
            f"{number + 1} of {len(batches)}: {result.seconds:.0f} s, {len(wrong)} of {len(result.cells)} wrong"
        )
        for name, fault in result.failed.items():
            print(f"failed: {name}: {fault}")
        print(*wrong, sep="\n", flush=True)
        # Of the hog and of the machine beside mixtures.
        cells += [
            cell if number < named or cell.workload.startswith("seed-") else replace(cell, workload=MIXTURES)
            for cell in result.cells
        ]
    return cells, is_whole


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument(
        "page", nargs="?", type=Path, help="the page to write; without it only what is wrong is printed"
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many random mixtures")
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        help="only this one; may be repeated; `none`: mixtures only",
    )
    parser.add_argument("--mode", default="", help="only modes whose name holds this")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--keep", type=Path, help="copy the archives and the actors' logs into this folder")
    options = parser.parse_args(arguments)
    modes = [mode for mode in ALL if options.mode in mode.name]
    cells, is_whole = run(performances(options.seeds, options.workload), modes, options.keep)
    if options.json:
        options.json.write_text(json.dumps([cell.plain() for cell in cells], indent=1))
    if options.page:
        options.page.write_text(page(cells, modes, options.seeds, LIMITS, containers.measure()))
    return 0 if is_whole and all(cell.is_right for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
