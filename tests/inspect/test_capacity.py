"""No more cores are busy than there are, however late a sample's counters were read; no CPU time is lost by that."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.records import NodeRow, SysInfo
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened

from tests.making.archives import encoded, open_writer
from tests.making.machines import BOOT, START

#: How long after the sample's own time its counters were read: both cores are busy all the time.
DELAYS = (0.0, 0.6, 0.0, 0.0, 0.3, 0.0)


def record(root: Path, asleep: float = 0.0) -> Path:
    """Two cores, busy from end to end, sampled every second; between the last two the machine may sleep."""
    with closing(open_writer(root)) as writer:
        told = SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=10**12, cpus=2, ticks_per_second=100)
        writer.append_sysinfo(told)
        for number, delay in enumerate(DELAYS):
            moment = number + (asleep if number == len(DELAYS) - 1 else 0.0)
            ticks = round(200 * (number + delay))
            node = NodeRow(cpus_online=2, ticks_per_second=100, user_ticks=ticks, nice_ticks=0, system_ticks=0,
                           irq_ticks=0, softirq_ticks=0, idle_ticks=0, iowait_ticks=0, steal_ticks=0)  # fmt: skip
            time = START + timedelta(seconds=moment)
            writer.append(time, BOOT, 10**12 + round(moment * 1e9), encoded({"node": [node]}))
    return root


def cores_of(inspection: Inspection) -> list[float]:
    (archive,) = inspection.sources
    moments = inspection.timeline(archive, 100)
    return [peak for moment in moments if (peak := moment.cores_peak) is not None]


def test_a_late_sample_shows_no_more_cores_than_there_are(tmp_path: Path) -> None:
    with opened([record(tmp_path / "archive")], InspectionSettings()) as inspection:
        (use,) = inspection.node_use.values()
        assert cores_of(inspection) == pytest.approx([2.0] * 5)
    assert (use.cores.median, use.cores.peak) == pytest.approx((2.0, 2.0))
    assert use.cpu_seconds == pytest.approx(10.0)


def test_a_suspended_machine_was_not_busy_meanwhile(tmp_path: Path) -> None:
    with opened([record(tmp_path / "archive", asleep=9.7)], InspectionSettings()) as inspection:
        (use,) = inspection.node_use.values()
        assert cores_of(inspection)[-1] == pytest.approx(1.4 / 10.7)
    assert use.cpu_seconds == pytest.approx(10.0)
