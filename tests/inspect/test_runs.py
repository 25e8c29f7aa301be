"""What the record of one command amounts to: its memory, its CPU time, its programs."""

from datetime import timedelta

import pytest
from vmsonar_archive.records import CommandRunRow, JobRow, NodeRow, ProcessInfoRow, ProcessRow
from vmsonar_archive.system.errors import UsageError
from vmsonar_inspect.facts.runs import read_run
from vmsonar_inspect.show.card import card_lines

from tests.making.archives import START, append_samples, encoded, make_archive, open_writer

_MB = 2**20
_TOTALS = {"elapsed": 10 * 10**9, "exit_code": 0, "user_time": 9 * 10**9, "system_time": 0}


def _recorded(root, *jobs, processes=(), **run):
    """A command of ten seconds, with those process groups; its last sample tells all."""
    run = CommandRunRow(pid=7, command="make", started=START, ended=START + timedelta(seconds=10), **run)
    named = [
        ProcessInfoRow(series_id="", pid=row.pid, start_ticks=row.start_ticks, program="cc1")
        for row in processes
    ]
    rows = {"node": [NodeRow(memory_total=2**33)], "command_run": [run], "job": jobs}
    writer = open_writer(root)
    append_samples(writer, 2, lambda *_: encoded({**rows, "process": processes, "process_info": named}))
    writer.close()
    use = read_run(root)
    return use, "\n".join(card_lines(use, 200))


def test_a_sampled_peak_is_a_lower_bound_and_the_largest_process_is_told(tmp_path):
    """A child of 300 MiB that lived between two samples is known to wait4 alone."""
    sampled = JobRow(pgid=7, start_ticks=1, processes=1, memory_peak=4096, memory_peak_source="sampled")
    use, card = _recorded(tmp_path, sampled, resident_peak=308 * _MB, **_TOTALS)
    assert (use.memory_peak_source, use.memory_peak_high_bytes) == ("sampled", None)
    assert "memory      peak ≥4.0 KiB, largest process 308 MiB, of 8.0 GiB" in card


def test_of_one_that_grew_after_its_last_sample_the_largest_process_is_told_too(tmp_path):
    grown = JobRow(
        pgid=7, start_ticks=1, processes=1, memory_peak=17 * _MB, memory_peak_low=17 * _MB,
        memory_peak_high=102 * _MB, memory_peak_source="high_water",
    )  # fmt: skip
    use, card = _recorded(tmp_path, grown, resident_peak=108 * _MB, **_TOTALS)
    assert (use.memory_peak_low_bytes, use.memory_peak_high_bytes) == (17 * _MB, 102 * _MB)
    assert "peak ≥17 MiB, largest process 108 MiB, of 8.0 GiB" in card


def test_a_peak_is_as_sure_as_the_least_sure_group(tmp_path):
    sure = JobRow(pgid=7, start_ticks=1, processes=1, memory_peak=50 * _MB, memory_peak_source="high_water")
    unread = JobRow(pgid=8, start_ticks=2, memory_peak_source="sampled")
    assert "peak 50 MiB of 8.0 GiB" in _recorded(tmp_path / "a", sure, resident_peak=60 * _MB, **_TOTALS)[1]
    assert "peak ≥50 MiB of 8.0 GiB" in _recorded(tmp_path / "b", sure, unread, resident_peak=9 * _MB)[1]


def test_a_peak_of_which_only_the_most_is_known_is_at_most_so_much(tmp_path):
    """That of a command that every sample missed; beside another group it raises the upper bound."""
    unread = JobRow(pgid=8, start_ticks=2, memory_peak_high=300 * _MB, memory_peak_source="accounts")
    seen = JobRow(pgid=7, start_ticks=1, processes=1, memory_peak=50 * _MB, memory_peak_source="high_water")
    use, card = _recorded(tmp_path / "a", unread, **_TOTALS)
    assert (use.memory_peak_low_bytes, use.memory_peak_bytes) == (0, 300 * _MB)
    assert "peak ≤300 MiB of 8.0 GiB" in card
    use, card = _recorded(tmp_path / "b", seen, unread, **_TOTALS)
    assert (use.memory_peak_low_bytes, use.memory_peak_high_bytes) == (50 * _MB, 350 * _MB)
    assert "peak ≥50 MiB of 8.0 GiB" in card


def test_figures_by_the_record_have_its_bounds(tmp_path):
    """Of two groups one is not exact; what wait4 or a control group counted is."""
    exact = JobRow(pgid=8, start_ticks=2, user_ticks=1000, read_bytes=8 * _MB, write_bytes=0)
    unsure = {"cpu_ticks_low": 500, "cpu_ticks_high": 1500, "read_bytes_low": 1 * _MB, "io_partial": True}
    doubtful = JobRow(pgid=7, start_ticks=1, user_ticks=1000, read_bytes=2 * _MB, write_bytes=0, **unsure)
    use, card = _recorded(tmp_path / "a", exact, doubtful, **_TOTALS)
    assert (use.cpu_source, use.cpu_seconds_low, use.cpu_seconds_high) == ("record", 15, 25)
    assert (use.read_bytes_low, use.read_bytes_high, use.io_is_lower_bound) == (9 * _MB, None, True)
    assert "CPU         ~20 s" in card
    assert "read ~10 MiB" in card
    use, card = _recorded(tmp_path / "b", exact, doubtful, group_cpu_time=20 * 10**9, **_TOTALS)
    assert (use.cpu_source, use.cpu_seconds_low, use.cpu_seconds_high) == ("cgroup", None, None)
    assert "CPU         20 s" in card


def test_an_estimated_peak_without_an_upper_bound_is_at_least_its_lower_one(tmp_path):
    shared = {
        "memory": 15 * _MB,
        "memory_low": 12 * _MB,
        "memory_peak": 15 * _MB,
        "memory_peak_low": 12 * _MB,
    }
    job = JobRow(pgid=7, start_ticks=1, processes=2, memory_peak_source="sampled", **shared)
    use, card = _recorded(tmp_path, job, resident_peak=28 * _MB, **_TOTALS)
    assert (use.memory_peak_bytes, use.memory_peak_high_bytes) == (12 * _MB, None)
    assert "peak ≥12 MiB, largest process 28 MiB, of 8.0 GiB" in card


@pytest.mark.parametrize(("ticks", "told"), [(300, "≥33 %"), (880, "98 %")])
def test_a_share_of_a_program_is_at_least_so_much_where_samples_missed_some(tmp_path, ticks, told):
    process = ProcessRow(pid=9, start_ticks=5, user_ticks=ticks)
    card = _recorded(tmp_path, processes=[process], **_TOTALS)[1]
    assert f"inside      cc1 \u00d7 1, {told} of the CPU" in card


def test_at_least_less_than_a_hundredth_is_not_said(tmp_path):
    process = ProcessRow(pid=9, start_ticks=5, user_ticks=3)
    card = _recorded(tmp_path, processes=[process], **_TOTALS)[1]
    assert "inside      cc1 \u00d7 1\n" in card


def test_a_command_of_some_milliseconds_did_not_last_nothing(tmp_path):
    assert "\nelapsed     2.9 ms\n" in _recorded(tmp_path, elapsed=2_900_000, exit_code=0)[1]


def test_an_end_that_nobody_told_is_not_known_though_its_time_is(tmp_path):
    """vmsonar was killed, and the kernel tells the recorder of failures only."""
    ended = _recorded(tmp_path / "a", elapsed=10 * 10**9)[0]
    lost = _recorded(tmp_path / "b")[0]
    assert ended.ended_by == "not known: vmsonar ended before it"
    assert lost.ended_by == "not known: the record ends before it"


def test_what_wait4_has_is_told_where_the_record_has_more(tmp_path):
    job = JobRow(pgid=7, start_ticks=1, processes=1, user_ticks=1500, system_ticks=0)
    use, card = _recorded(tmp_path, job, **_TOTALS)
    assert (use.cpu_seconds, use.cpu_source, use.wait4_cpu_seconds) == (15.0, "record", 9.0)
    assert "by the record\n            wait4 has 9.0 s, of those that were waited for" in card


def test_an_archive_without_a_command_is_a_mistake_and_no_verdict(tmp_path):
    with pytest.raises(UsageError, match=r"compare takes jobs of it as .*#JOB"):
        read_run(make_archive(tmp_path / "archive"))
