"""Time of each CPU, from /proc/stat (proc_stat(5))."""

from collections.abc import Iterable

from vmsonar_archive.records import CpuRow

from vmsonar.collectors.base import LineCollector, Setup


class CpuCollector(LineCollector):
    """One row per CPU; one that is offline has no line."""

    name = "cpu"
    kinds = ("cpu",)
    item = "time of each CPU"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.proc_stat)

    def lines(self, content: bytes) -> Iterable[bytes]:
        return [line for line in content.partition(b"\nintr ")[0].split(b"\n")[1:] if line.startswith(b"cpu")]

    def parse(self, line: bytes) -> CpuRow:
        """One line; the columns that an older kernel lacks stay unknown."""
        name, *columns = line.split()
        times: list[int | None] = [int(column) for column in columns]
        times += [None] * (10 - len(times))
        # Written out: a machine may have hundreds of CPUs, and this is twice as fast as by names.
        return CpuRow(
            cpu_index=int(name[3:]),
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
