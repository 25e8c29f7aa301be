"""Each logical CPU: the cpuN lines of /proc/stat (proc(5))."""

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import Capability, CpuRow

from vmsonar.collectors.base import Collector, RowCache, Rows, Setup, Tick, readable


def cpu_lines(content: bytes) -> list[bytes]:
    """The lines of the single CPUs; one that is offline has none."""
    end = content.find(b"\nintr ")
    return [line for line in content[:end].split(b"\n")[1:] if line.startswith(b"cpu")]


def parse_cpu(line: bytes) -> CpuRow:
    """One line; the columns that an older kernel lacks stay unknown."""
    fields = line.split()
    times = [int(field) for field in fields[1:11]]
    times += [None] * (10 - len(times))  # type: ignore[list-item]
    return CpuRow(
        cpu_index=int(fields[0][3:]),
        user_ticks=times[0],
        nice_ticks=times[1],
        system_ticks=times[2],
        idle_ticks=times[3],
        iowait_ticks=times[4],
        irq_ticks=times[5],
        softirq_ticks=times[6],
        steal_ticks=times[7],
        guest_ticks=times[8],
        guest_nice_ticks=times[9],
    )


class CpuCollector(Collector):
    """One row per CPU that is online."""

    name = "cpu"
    kinds = ("cpu",)

    def __init__(self, setup: Setup) -> None:
        self._stat = setup.proc_stat
        self._cache = RowCache(lambda line: encode_row(parse_cpu(line)))

    def collect(self, tick: Tick) -> Rows:
        rows = Rows()
        rows.extend("cpu", self._cache.rows(cpu_lines(self._stat.read(tick))))
        return rows

    def capabilities(self) -> list[Capability]:
        return [readable(self.name, "time of each CPU", self._stat.path)]


def make(setup: Setup) -> Collector:
    return CpuCollector(setup)
