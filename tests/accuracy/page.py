"""Writes docs/accuracy.md: where each figure comes from, when it is exact, and how far it was off when measured."""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.accuracy.compare import Cell
from tests.accuracy.containers import table
from tests.accuracy.modes import Mode
from tests.accuracy.workloads import EVERY

#: Figures with their titles, the unit of one, and below how much a share says nothing.
FIGURES: dict[str, tuple[str, str, float, float]] = {
    "cpu": ("CPU time of jobs", "s", 100.0, 100.0),
    "user_cpu": ("CPU time of users", "s", 1.0, 1.0),
    "machine_cpu": ("CPU time of all jobs together", "s", 1.0, 1.0),
    "write_bytes": ("Bytes that jobs wrote", "MiB", 2**20, 20.0 * 2**20),
    "read_bytes": ("Bytes that jobs read", "MiB", 2**20, 20.0 * 2**20),
    "memory_peak": ("Peak memory of jobs", "MiB", 2**20, 2**20),
    "runtime": ("Runtime of jobs", "s", 1.0, 5.0),
    "job": ("Jobs without a row", "s", 100.0, 100.0),
}

#: Stands for all of them in tables.
MIXTURES = "mixtures"
_HEAD = Path(__file__).with_suffix(".md")


def page(
    cells: Sequence[Cell],
    modes: Sequence[Mode],
    mixtures: int,
    limits: dict[str, float],
    containers: Sequence[dict[str, Any]] = (),
) -> str:
    """The whole page."""
    head = _HEAD.read_text().format(
        date=datetime.now(UTC).date(), kernel=platform.release().split("-")[0], cpus=os.cpu_count(), **limits
    )
    parts = [head, _workloads(mixtures)]
    drawn = [replace(cell, workload=MIXTURES) for cell in cells if _is_drawn(cell)]
    named = [cell for cell in cells if not _is_drawn(cell)]
    parts += [_summary("All workloads", named, modes)]
    if drawn:
        parts += [_summary(f"{mixtures} mixtures drawn by chance", drawn, modes)]
    for figure in FIGURES:
        parts += _figure(figure, named + drawn, modes)
    if containers:
        parts += ["\n## Containers that live between two samples\n", table(containers)]
    return "\n".join(parts).rstrip() + "\n"


def _is_drawn(cell: Cell) -> bool:
    return cell.workload == MIXTURES or cell.workload.startswith("seed-")


def _workloads(mixtures: int) -> str:
    lines = ["| Workload | What makes it hard |", "|---|---|"]
    lines += [f"| {workload.name} | {workload.about} |" for workload in EVERY]
    lines.append(
        f"| mixtures | {mixtures} trees of processes with lanes, lives, groups and parents drawn by chance |"
    )
    return "\n".join(lines)


def _summary(title: str, cells: list[Cell], modes: Sequence[Mode]) -> str:
    lines = [
        f"\n## {title}\n",
        "| Recorder | Figures | Right | Within bounds | Null | Wrong |",
        "|---|---|---|---|---|---|",
    ]
    for mode in modes:
        own = [cell for cell in cells if cell.mode == mode.name]
        counts = [sum(cell.verdict == verdict for cell in own) for verdict in ("right", "bounds", "null")]
        wrong = len(own) - sum(counts)
        shown = f"**{wrong}**" if wrong else "0"
        lines.append(f"| {title_of(mode)} | {len(own)} | {counts[0]} | {counts[1]} | {counts[2]} | {shown} |")
    return "\n".join(lines)


def _figure(figure: str, cells: list[Cell], modes: Sequence[Mode]) -> list[str]:
    own = [cell for cell in cells if cell.figure == figure]
    if not own:
        return []
    parts = [f"\n## {FIGURES[figure][0]}\n"]
    if silent := _silent(own):
        own = [cell for cell in own if cell.workload not in silent]
        parts += [f"Nothing to be found, and nothing recorded: {', '.join(silent)}.\n"]
    for steady in (True, False):
        columns = [mode for mode in modes if (mode.life == "steady") is steady]
        if columns:
            parts += [_table(figure, own, columns), ""]
    return parts


def _silent(cells: list[Cell]) -> list[str]:
    """Workloads whose figures are all 0, as they should be."""
    loud = {cell.workload for cell in cells if cell.truth or not cell.is_right}
    return [name for name in dict.fromkeys(cell.workload for cell in cells) if name not in loud]


def _table(figure: str, cells: list[Cell], modes: Sequence[Mode]) -> str:
    names = list(dict.fromkeys(cell.workload for cell in cells))
    lines = [
        "| Workload | " + " | ".join(title_of(mode) for mode in modes) + " |",
        "|---" * (len(modes) + 1) + "|",
    ]
    for name in names:
        texts = []
        for mode in modes:
            texts.append(
                _text(figure, [cell for cell in cells if (cell.workload, cell.mode) == (name, mode.name)])
            )
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def title_of(mode: Mode) -> str:
    """A mode as the head of a column: `10 s nobody lifeline`."""
    interval, *rest = mode.name.split("-")
    return " ".join([interval.replace("s", " s"), *rest])


def _text(figure: str, cells: list[Cell]) -> str:
    """The worst of some cells: what is wrong, else what is bounded, else the largest error."""
    wrong = [cell for cell in cells if not cell.is_right]
    if wrong:
        return f"**{_error(figure, _worst(wrong))}**"
    bounded = [cell for cell in cells if cell.verdict == "bounds"]
    told = [cell for cell in cells if cell.verdict == "right"]
    words = [_error(figure, _worst(told))] if told else []
    if bounded:
        words.append(_bounds(figure, _worst(bounded)))
    return ", ".join(words) or ("null" if cells else "")


def _worst(cells: Iterable[Cell]) -> Cell:
    return max(cells, key=lambda cell: abs((cell.value or 0.0) - cell.truth))


def _error(figure: str, cell: Cell) -> str:
    _, unit, one, least = FIGURES[figure]
    if cell.value is None:
        return f"{cell.of} missing"
    off = cell.value - cell.truth
    if cell.truth < least or not cell.truth:
        return "0" if abs(off) / one < 0.005 else f"{off / one:+.2f} {unit}"
    return f"{off / cell.truth:+.1%}"


def _bounds(figure: str, cell: Cell) -> str:
    _, unit, one, _ = FIGURES[figure]
    if cell.low is None and cell.high is None:
        return f"≤ {(cell.value or 0.0) / one:.1f} {unit}"
    low = "0" if cell.low is None else f"{cell.low / one:.3g}"
    return f"in {low} to {'∞' if cell.high is None else f'{cell.high / one:.3g}'} {unit}"
