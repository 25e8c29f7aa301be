"""The head of the first screen: the machine, the time, and how busy it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from vmsonar_inspect import units
from vmsonar_inspect.model import (
    ContainerUse,
    Coverage,
    EnergyUse,
    Gap,
    Happening,
    JobUse,
    Machine,
    Moment,
    NodeUse,
    Use,
)
from vmsonar_inspect.model_advice import Advice
from vmsonar_inspect.spark import sparkline
from vmsonar_inspect.text import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


@dataclass(frozen=True)
class Overview:
    """All that the first screen shows."""

    machine: Machine
    coverage: Coverage
    use: NodeUse
    timeline: Sequence[Moment]
    jobs: Sequence[JobUse]
    containers: Sequence[ContainerUse]
    wrong: Sequence[Happening]
    gaps: Sequence[Gap]
    advice: Sequence[Advice]
    energy: EnergyUse


def header(machine: Machine, coverage: Coverage, zone: tzinfo) -> "RenderableType":
    """What the machine is and what was covered."""
    first = Text(plain(machine.hostname or machine.archive), style="bold", no_wrap=True, overflow="ellipsis")
    for part in _hardware(machine):
        first.append(f"  {part}", style="")
    lines = [first]
    if system := " · ".join(
        plain(part) for part in (machine.os_name, machine.kernel_release, machine.cpu_model) if part
    ):
        lines.append(Text(system, style="dim", no_wrap=True, overflow="ellipsis"))
    lines.append(Text(covered(coverage, zone)))
    return Group(*lines)


def _hardware(machine: Machine) -> list[str]:
    place = " ".join(plain(part) for part in (machine.cloud_provider, machine.instance_type) if part)
    cards = f"{machine.gpus} {plain(', '.join(machine.gpu_models) or 'GPU')}" if machine.gpus else ""
    size = f"{units.count(machine.cpus)} cores, {units.size(machine.memory_bytes)}"
    return [part for part in (place, size if machine.cpus else "", cards) if part]


def covered(coverage: Coverage, zone: tzinfo) -> str:
    """The time and how complete it is, in a sentence."""
    if coverage.first is None or coverage.last is None:
        return "The archive holds no samples."
    first, last = coverage.first.astimezone(zone), coverage.last.astimezone(zone)
    if coverage.samples == 1:
        return f"One sample, at {first:%Y-%m-%d %H:%M:%S %Z}: rates need two."
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    text = f"{first:%Y-%m-%d %H:%M} to {end} {last:%Z} ({units.duration(coverage.span_seconds)}), "
    text += f"{units.count(coverage.samples)} samples, {_completeness(coverage)}"
    return text + (f", {coverage.boots} boots" if coverage.boots > 1 else "")


def _completeness(coverage: Coverage) -> str:
    share = coverage.coverage
    if share is None:
        return "coverage unknown"
    lost = coverage.span_seconds - coverage.covered_seconds
    if lost <= 0.5 * (coverage.interval_seconds or 1):
        return "complete"
    holes = f"{coverage.holes} gap" + ("" if coverage.holes == 1 else "s")
    # Hardly anything missing is still not all of it.
    return f"{min(share * 100, 99.9):.1f} % seen ({holes}, {units.duration(lost)})"


class Busy:
    """How busy each resource was, with its course over time in the space that is left."""

    def __init__(self, overview: Overview) -> None:
        self.overview = overview

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        rows = self._rows()
        widths = [max(len(row[place]) for row in rows) for place in range(5)]
        used = sum(widths) + 2 * 5
        for place, row in enumerate(rows):
            cells = [
                row[0].ljust(widths[0]),
                *(row[at].rjust(widths[at]) for at in (1, 2, 3)),
                row[4].ljust(widths[4]),
            ]
            line = Text("  ".join(cells), style="bold" if place == 0 else "", no_wrap=True)
            line.append(
                "  " + self._course(place, max(8, options.max_width - used)),
                style="" if place == 0 else "cyan",
            )
            yield line

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        use, machine = self.overview.use, self.overview.machine
        rows = [
            ("", "median", "95 %", "peak", "of"),
            _row("CPU", use.cores, units.cores, f"{units.count(use.cpus)} cores"),
            _row("memory", use.memory_bytes, units.size, units.size(use.memory_total_bytes)),
        ]
        if machine.gpus or use.gpu_util.peak is not None:
            rows.append(
                _row(
                    "GPU",
                    use.gpu_util,
                    units.percent,
                    f"{machine.gpus or 1} GPU" + ("s" if machine.gpus > 1 else ""),
                )
            )
        return [
            *rows,
            _row("disk read", use.disk_read_rate, units.rate, ""),
            _row("disk write", use.disk_write_rate, units.rate, ""),
            _row("received", use.received_rate, units.rate, ""),
            _row("sent", use.sent_rate, units.rate, ""),
        ]

    def _course(self, place: int, width: int) -> str:
        if place == 0:
            return "over time"
        name = self._rows()[place][0]
        use, moments = self.overview.use, self.overview.timeline
        values, top = {
            "CPU": ([at.cores for at in moments], use.cpus),
            "memory": ([at.memory_bytes for at in moments], use.memory_total_bytes),
            "GPU": ([at.gpu_util for at in moments], 100.0),
            "disk read": ([at.disk_read_rate for at in moments], None),
            "disk write": ([at.disk_write_rate for at in moments], None),
            "received": ([at.received_rate for at in moments], None),
            "sent": ([at.sent_rate for at in moments], None),
        }[name]
        return sparkline(values, top, width)


def _row(name: str, use: Use, write: "units.Writer", whole: str) -> tuple[str, str, str, str, str]:
    return name, write(use.median), write(use.p95), write(use.peak), whole


def energy_sentence(energy: EnergyUse) -> Text:
    """Energy and emissions in one line."""
    if energy.joules is None:
        return Text()
    mark = "~" if energy.source == "estimate" else ""
    used = f"{mark}{units.energy(energy.joules)}, of which {units.energy(energy.idle_joules)} idle"
    text = Text(f"Energy: {used}; {mark}{units.grams(energy.grams_co2e)} CO2e ")
    factor = " ".join(part for part in (energy.factor_country, energy.factor_year) if part)
    return text.append(f"({energy.source}, {factor}, PUE {energy.pue:g})", style="dim")
