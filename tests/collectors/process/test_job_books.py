"""The books of jobs: what cannot be told apart, what a restart of the daemon must not lose, filters."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.format.identity import NodeIdentity

from tests.collectors.process import work
from tests.collectors.process.recorder import (
    BOOT,
    Recorder,
    assert_never_decreases,
    bounds,
    recording,
    seconds,
)
from tests.making.archives import open_writer, utc_now
from tests.parts import requires
from tests.real.wait import wait_for_cpu, wait_until
from vmsonar.collectors.base import Tick
from vmsonar.collectors.process.jobs import Last, read_last
from vmsonar.config.schema import Collectors, Config, Filters, Selection

BURN = "import os, sys, time\nwhile True:\n    for _ in range(10000): pass\n"
# Starts two workers in groups of their own, and ends both when told.
TWO = f"""
import os, signal, subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {BURN!r}], process_group=0) for _ in range(2)]
print(*[worker.pid for worker in workers], flush=True)
sys.stdin.readline()
for worker in workers: worker.kill()
for worker in workers:
    usage = os.wait4(worker.pid, 0)[2]
    print(usage.ru_utime + usage.ru_stime, flush=True)
sys.stdin.readline()
"""


def test_two_jobs_that_end_together_are_told_apart_or_have_bounds() -> None:
    with recording() as recorder, work.spawn(TWO) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        groups = [int(pid) for pid in parent.stdout.readline().split()]
        wait_for_cpu(groups, 0.2)
        recorder.sample()
        wait_for_cpu(groups, 0.5)
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        truths = [float(parent.stdout.readline()) for _ in groups]
        recorder.sample()
        for group, truth in zip(groups, truths, strict=True):
            rows = recorder.job_rows(group)
            assert_never_decreases(rows)
            assert len(recorder.ends(group)) == 1
            low, high = bounds(rows[-1])
            assert low - 0.03 <= truth <= high + 0.03
        together = sum(seconds(recorder.job_rows(group)[-1]) for group in (*groups, parent.pid))
        own = seconds(recorder.job_rows(parent.pid)[0])
        assert together - own == pytest.approx(sum(truths), abs=0.08)
        parent.communicate(b"\n")


def burner() -> "work.subprocess.Popen[bytes]":
    return work.spawn(BURN)


def test_a_job_goes_on_after_a_restart_of_the_daemon() -> None:
    with burner() as process:
        with recording() as before:
            before.sample()
            wait_for_cpu([process.pid], 0.2)
            before.sample()
        wait_for_cpu([process.pid], 0.3)  # nobody looks
        infos = {(row.pgid, row.start_ticks): row for sample in before.samples for row in sample.job_info}
        with recording(last=Last(before.samples[-1], infos)) as after:
            after.sample()
            process.kill()
            process.wait()
            after.sample()
        first, then = before.job_infos(process.pid)[0], after.job_infos(process.pid)[0]
        assert first == then
        rows = before.job_rows(process.pid) + after.job_rows(process.pid)
        assert_never_decreases(rows)
        assert {row.start_ticks for row in rows} == {first.start_ticks}
        assert seconds(after.job_rows(process.pid)[0]) >= seconds(rows[1])
        assert rows[-1].processes_seen == 1
        assert rows[-1].unattributed is None


def test_a_member_that_ended_while_nobody_looked_is_still_settled() -> None:
    """Its parent, which lives on, was told what it used."""
    code = f"import subprocess, sys\none = subprocess.Popen([sys.executable, '-c', {BURN!r}])\n"
    code += (
        "print(one.pid, flush=True); sys.stdin.readline(); one.kill(); one.wait(); print('y', flush=True)\n"
    )
    code += "sys.stdin.readline()\n"
    with work.spawn(code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        wait_for_cpu([child], 0.2)
        with recording() as before:
            before.sample()
        wait_for_cpu([child], 0.3)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        with recording(last=Last(before.samples[-1])) as after:
            row = next(row for row in after.sample().job if row.pgid == process.pid)
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
        told = sum(int(field) for field in stat[11:15])
        assert (row.user_ticks or 0) + (row.system_ticks or 0) == pytest.approx(told, abs=4)
        assert row.unattributed  # whether it was still in its group when it ended, nobody saw
        assert row.cpu_source == "samples"
        process.communicate(b"\n")


def test_jobs_that_ended_while_nobody_looked_get_their_event() -> None:
    with burner() as process:
        with recording() as before:
            before.sample()
        process.kill()
        process.wait()
        with recording(last=Last(before.samples[-1])) as after:
            after.sample()
        assert len(after.ends(process.pid)) == 1


def test_after_a_reboot_nothing_goes_on() -> None:
    with burner() as process, recording() as before:
        sample = before.sample()
        sample.boot = "another"
        with recording(last=Last(sample)) as after:
            after.sample()
        assert after.ends(process.pid) == []
        assert len(after.job_rows(process.pid)) == 1
        process.kill()


def test_the_archive_remembers_jobs_for_the_next_run(tmp_path: Path) -> None:
    recorder = Recorder()
    node = NodeIdentity(machine_id="0" * 32, instance_id=None, hostname_short="h", hostname_full="h")
    writer = open_writer(tmp_path / "archive", node=node, now=utc_now)
    for _ in range(3):
        boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        tick = Tick(datetime.now(UTC), boottime, BOOT, fresh=not writer.bytes_written)
        writer.append(tick.time, BOOT, boottime, recorder.collector.collect(tick).by_kind)
    writer.close()
    recorder.close()
    last = read_last(tmp_path / "archive")
    assert last is not None
    assert last.sample.job
    assert {(row.pgid, row.start_ticks) for row in last.sample.job if row.processes} <= last.job_infos.keys()
    assert read_last(tmp_path / "nowhere") is None


def test_who_is_left_out_is_not_shown_but_nobody_gets_its_time() -> None:
    code = "import subprocess, sys\none = subprocess.Popen(['/bin/sh', '-c', 'while :; do :; done'])\n"
    code += (
        "print(one.pid, flush=True); sys.stdin.readline(); one.kill(); one.wait(); print('y', flush=True)\n"
    )
    code += "sys.stdin.readline()\n"
    config = Config(filters=Filters(commands=Selection(leave_out=["sh", "dash"])))
    with recording(config) as recorder, work.spawn(code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        wait_for_cpu([child], 0.2)
        sample = recorder.sample()
        assert sum(row.pgid == process.pid for row in sample.process) == 1
        wait_for_cpu([child], 0.3)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        recorder.sample()
        rows = recorder.job_rows(process.pid)
        assert rows[0].processes == 1
        assert seconds(rows[-1]) == pytest.approx(seconds(rows[0]), abs=0.1)
        process.communicate(b"\n")


def test_without_jobs_there_are_only_processes() -> None:
    with recording(Config(collectors=Collectors(job="none"))) as recorder:
        recorder.sample()
        sample = recorder.sample(fresh=True)
        assert sample.process
        assert not sample.job
        assert not sample.job_info
        assert os.getpid() in {row.pid for row in sample.process}


def test_a_job_is_called_by_what_its_leader_became() -> None:
    script = "import os, sys; sys.stdin.readline(); os.execvp('sleep', ['sleep', '60'])"
    with work.spawn(script) as process, recording() as recorder:
        recorder.sample()
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        recorder.until(lambda: len(recorder.job_infos(process.pid)) > 1, interval=0.1)
        first, then = recorder.job_infos(process.pid)
        process.kill()
    assert (first.program, then.program) == (first.program, "sleep")
    assert first.program != "sleep"
    assert then == msgspec.structs.replace(first, program="sleep", command="sleep")


@requires("root")
def test_a_group_of_two_users_is_a_job_for_each() -> None:
    code = "import os, sys, time\npid = os.fork()\nif not pid: os.setuid(54321)\n"
    code += "end = time.process_time() + (0.3 if pid else 0.6)\nwhile time.process_time() < end: pass\n"
    code += "if pid: print(pid, flush=True); sys.stdin.readline(); os.waitpid(pid, 0)\nelse: time.sleep(5)\n"
    with recording() as recorder, work.spawn(code) as process:
        recorder.sample()
        assert process.stdout is not None
        child = int(process.stdout.readline())
        wait_until(lambda: time.clock_gettime(~child << 3 | 2) >= 0.59, 60, "the child's CPU time")
        sample = recorder.sample()
        infos = {info.user_id: info for info in recorder.job_infos(process.pid)}
        rows = {(row.pgid, row.start_ticks): row for row in sample.job}
        used = {uid: seconds(rows[info.pgid, info.start_ticks]) for uid, info in infos.items()}
        process.communicate(b"\n")
        recorder.sample()
    assert used.keys() == {0, 54321}
    assert used[54321] == pytest.approx(0.6, abs=0.1)
    assert len(recorder.ends(process.pid)) == 2
