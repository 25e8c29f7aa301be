"""No more cores are busy than there are, however late a sample's counters were read; no CPU time is lost by that."""

from contextlib import closing
from datetime import UTC, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from vmsonar_archive.records import JobInfoRow, JobRow, NodeRow, ProcessRow, SysInfo
from vmsonar_inspect.facts.programs import load_programs
from vmsonar_inspect.inspection import Inspection, InspectionSettings, opened
from vmsonar_inspect.show.answers import summary_of
from vmsonar_inspect.show.page.charts import machine_data
from vmsonar_inspect.show.page.details import job_details
from vmsonar_inspect.show.terminal.reel import Reel
from vmsonar_inspect.show.terminal.top import Instant

from tests.making.archives import encoded, open_writer
from tests.making.machines import BOOT, START

#: How long after the sample's own time its counters were read: both cores are busy all the time.
DELAYS = (0.0, 0.6, 0.0, 0.0, 0.3, 0.0)


def record(root: Path, asleep: float = 0.0) -> Path:
    """Two cores, each kept busy by a job from end to end, sampled every second; it may sleep before the last."""
    with closing(open_writer(root)) as writer:
        told = SysInfo(time=START, seq=0, run="", boot=BOOT, boottime=10**12, cpus=2, ticks_per_second=100)
        writer.append_sysinfo(told)
        for number, delay in enumerate(DELAYS):
            moment = number + (asleep if number == len(DELAYS) - 1 else 0.0)
            ticks = round(200 * (number + delay))
            node = NodeRow(cpus_online=2, ticks_per_second=100, user_ticks=ticks, nice_ticks=0, system_ticks=0,
                           irq_ticks=0, softirq_ticks=0, idle_ticks=0, iowait_ticks=0, steal_ticks=0)  # fmt: skip
            time = START + timedelta(seconds=moment)
            jobs = [JobRow(pgid=pgid, start_ticks=1, processes=1, user_ticks=ticks // 2, system_ticks=0, memory=2**20)
                    for pgid in (50, 60)]  # fmt: skip
            told = [JobInfoRow(series_id=f"j{pgid}", pgid=pgid, start_ticks=1) for pgid in (50, 60)]
            works = ProcessRow(pid=50, pgid=50, start_ticks=1, user_ticks=ticks // 2, system_ticks=0)
            rows = {"node": [node], "job": jobs, "job_info": told, "process": [works]}
            writer.append(time, BOOT, 10**12 + round(moment * 1e9), encoded(rows))
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


def test_a_job_on_one_core_is_shown_on_one_core_everywhere(tmp_path: Path) -> None:
    with opened([record(tmp_path / "archive")], InspectionSettings()) as inspection:
        (archive,) = inspection.sources
        found = summary_of(inspection, archive)
        for table in ("job_rates", "process_rates"):
            rows = inspection.queries.rows(f"SELECT cpu_cores FROM {table} WHERE cpu_cores IS NOT NULL")
            assert {round(row["cpu_cores"], 6) for row in rows} == {1.0}, table
        story = inspection.story(inspection.find_jobs("50")[0], 100)
        assert [moment.cores for moment in story.timeline if moment.cores is not None] == [1.0] * 5
        users = inspection.users(UTC)
        assert sum(user.cpu_seconds or 0.0 for user in users) <= found.use.cpu_seconds + 1e-6
        details = job_details(inspection, found.jobs, found.advice)
        assert {value for value in details[0]["course"]["cores"]["mean"] if value is not None} == {1.0}
        chart = machine_data(inspection, found, UTC)["charts"]["job-cores"]
    stacked = [
        sum(filter(None, values)) for values in zip(*(each["mean"] for each in chart["series"]), strict=True)
    ]
    assert [value for value in stacked if value] == [2.0] * 5
    assert {value for value in chart["peak"] if value} == {2.0}


def test_top_shows_no_more_cores_than_there_are(tmp_path: Path) -> None:
    reel = Reel(record(tmp_path / "archive"))
    samples = [sample for number in range(len(reel)) if (sample := reel.sample(reel.seq(number)))]
    instants = [
        Instant(infos, load_programs(), now, before) for (before, _), (now, infos) in pairwise(samples)
    ]
    reel.close()
    assert {instant.machine().split(",")[0] for instant in instants} == {"2.0 of 2 cores"}
    assert [row.cores for instant in instants for row in (*instant.jobs, *instant.processes)] == [1.0] * 15
