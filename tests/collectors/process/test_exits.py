"""How processes and jobs ended, told by the kernel: real deaths, each named rightly."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import msgspec
import pytest
from vmsonar_archive.records import EventRow
from vmsonar_archive.records.ids import SeriesIds

from tests.collectors.process.recorder import Recorder, accounts_companion, recording
from tests.parts import requires
from tests.real.wait import let_pass, wait_until
from vmsonar.collectors.base import Tick
from vmsonar.collectors.process.exits import Exits
from vmsonar.collectors.process.jobs import JobTable
from vmsonar.collectors.process.lives import Death, Interval, Life, cpu_clock
from vmsonar.collectors.process.pidfds import MOST
from vmsonar.config.schema import Accounts, Config, Filters, Lifeline, Selection

pytestmark = requires("connector")
KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as one:
        one.sample()
        yield one


def exits(recorder: Recorder, pid: int) -> list[EventRow]:
    rows = [row for sample in recorder.samples for row in sample.event if row.event_type == "exit"]
    return [row for row in rows if pid in (row.pid, row.pgid)]


def counted(recorder: Recorder, program: str) -> int:
    rows = [row for sample in recorder.samples for row in sample.event]
    return sum(row.exits or 0 for row in rows if row.event_type == "exits_counted" and row.program == program)


def end_of(recorder: Recorder, command: list[str], seen: bool = True, **options: object) -> EventRow:
    """How a job of its own ended that lives a little, in a sample or between two."""
    with subprocess.Popen(command, process_group=0, stderr=subprocess.DEVNULL, **options) as job:  # type: ignore[call-overload]
        if seen:
            let_pass(0.3)
            recorder.sample()
        job.wait()
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.subject, row.pgid) == ("job", job.pid)
    assert row.exit_source == "connector"
    assert row.runtime is not None
    assert row.runtime > 0.9e9
    return row


def sh(text: str) -> list[str]:
    return ["sh", "-c", f"sleep 1.2; {text}"]


@pytest.mark.parametrize("seen", [True, False], ids=["sampled", "between samples"])
@pytest.mark.parametrize(("text", "code"), [("exit 0", 0), ("exit 7", 7), ("false", 1)])
def test_an_exit_code(recorder: Recorder, text: str, code: int, seen: bool) -> None:
    row = end_of(recorder, sh(text), seen)
    assert (row.exit_code, row.exit_signal) == (code, None)


@pytest.mark.parametrize("code", [0, 7])
def test_a_job_that_is_older_than_the_recorder(code: int) -> None:
    script = f"sh -c 'sleep 1.5; exit 9'; sleep 0.5; exit {code}"
    with subprocess.Popen(["sh", "-c", script], process_group=0) as job:
        let_pass(0.3)
        with recording() as recorder:
            recorder.sample()
            job.wait()
            let_pass(0.5)  # nobody can look at what is long gone
            recorder.sample()
            found = exits(recorder, job.pid)
    assert [(row.subject, row.pgid, row.exit_code) for row in found] == [
        ("process", job.pid, 9),
        ("job", job.pid, code),
    ]
    assert found[1].start_ticks is not None


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGPIPE", "SIGXFSZ"])
def test_a_signal(recorder: Recorder, name: str) -> None:
    row = end_of(recorder, sh(f"kill -{name[3:]} $$"))
    assert (row.exit_code, row.exit_signal) == (None, getattr(signal, name))


@pytest.mark.parametrize("limit", ["0", "unlimited"])
def test_a_core_dump(recorder: Recorder, tmp_path: Path, limit: str) -> None:
    command = ["bash", "-c", f"ulimit -c {limit}; sleep 1.2; kill -SEGV $$"]
    row = end_of(recorder, command, cwd=tmp_path)
    assert row.exit_signal == signal.SIGSEGV
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if limit == "0" and not pattern.startswith("|"):
        assert row.core_dumped is None
    if limit != "0" and not pattern.startswith("|"):
        assert row.core_dumped is True


def test_a_traceback_of_python(recorder: Recorder) -> None:
    row = end_of(recorder, [sys.executable, "-c", "import time; time.sleep(1.2); raise ValueError"])
    assert row.exit_code == 1


def test_timeout_ends_with_124_and_what_it_stopped_with_sigterm(recorder: Recorder) -> None:
    with subprocess.Popen(["timeout", "1.3", "sleep", "60"], process_group=0) as job:
        let_pass(0.3)
        recorder.sample()
        job.wait()
    recorder.sample()
    rows = {row.subject: row for row in exits(recorder, job.pid)}
    assert rows["job"].exit_code == 124
    assert rows["process"].exit_signal == signal.SIGTERM
    assert rows["process"].program == "sleep"


def test_a_leader_that_ends_while_its_children_live_on(recorder: Recorder) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & sleep 1.2; exit 3"], process_group=0) as job:
        let_pass(0.3)
        recorder.sample()
        job.wait()
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.subject, row.exit_code) == ("job", 3)
    assert recorder.ends(job.pid) == []
    os.killpg(job.pid, signal.SIGKILL)
    recorder.until(lambda: bool(recorder.ends(job.pid)), interval=0.2, limit=20)
    member = next(row for row in exits(recorder, job.pid) if row.subject == "process")
    assert member.exit_signal == signal.SIGKILL


def test_a_leader_that_is_waited_for_late_ended_when_it_ended(recorder: Recorder) -> None:
    job = subprocess.Popen(sh("exit 5"), process_group=0)
    let_pass(0.3)
    recorder.sample()
    let_pass(1.5)
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert row.exit_code == 5
    let_pass(0.5)
    job.wait()
    recorder.sample()
    assert len(exits(recorder, job.pid)) == 1
    (last,) = [one for one in recorder.job_rows(job.pid) if one.processes == 0]
    assert last.end_boottime is not None
    assert row.runtime == pytest.approx(1.2e9, abs=0.6e9)


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_cpu_time_is_that_of_the_end_or_not_known(recorder: Recorder, is_waited_for: bool) -> None:
    """A sample half way through says how much it was by then."""
    spin = "import time\nwhile time.process_time() < 1.2: pass\nraise SystemExit(3)"
    ignore = "" if is_waited_for else "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    start = f"""
import os, signal, sys, time
{ignore}
command = [sys.executable, "-S", "-c", {spin!r}]
print(os.posix_spawn(sys.executable, command, os.environ, setpgroup=0), flush=True)
time.sleep(60)"""
    with subprocess.Popen([sys.executable, "-S", "-c", start], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until(lambda: (cpu_clock(pid) or 0) > 0.4e9, 20, "some work")
        recorder.sample()
        recorder.until(lambda: bool(exits(recorder, pid)), interval=0.3, limit=30)
        parent.kill()
    (row,) = exits(recorder, pid)
    assert row.exit_code == 3
    assert (row.cpu_time or 0) > 1.1e9 if is_waited_for else row.cpu_time is None


def test_good_ends_are_counted_and_failures_of_short_ones_told(recorder: Recorder) -> None:
    script = "for i in 1 2 3; do sleep 0.8; done; sh -c 'sleep 0.8; exit 9'"
    subprocess.run(["sh", "-c", script], process_group=0, check=False)
    recorder.sample()
    assert counted(recorder, "sleep") >= 3
    failures = [
        row
        for sample in recorder.samples
        for row in sample.event
        if row.event_type == "exit" and row.exit_code == 9
    ]
    assert failures
    assert {row.subject for row in failures} == {"process", "job"}  # the shell ends as its last command did


def test_failures_too_short_for_a_name_have_that_of_who_started_them(
    recorder: Recorder, tmp_path: Path
) -> None:
    starter = tmp_path / "starter"
    starter.write_text("#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9 10; do /bin/false; done; sleep 1.2\n")
    starter.chmod(0o755)
    with subprocess.Popen([starter], process_group=0) as job:
        let_pass(0.5)
        recorder.sample()
    failed = [row for row in exits(recorder, job.pid) if row.subject == "process"]
    assert [row.exit_code for row in failed] == [1] * 10
    # One that was caught before anybody waited for it has its own.
    assert {(row.program, row.started_by) for row in failed} <= {(None, "starter"), ("false", None)}


@pytest.fixture(scope="module")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose main thread ends at once, and another one two seconds later with the code 3."""
    folder = tmp_path_factory.mktemp("headless")
    source, program = folder / "headless.c", folder / "headless"
    source.write_text(
        "#include <pthread.h>\n#include <unistd.h>\n#include <stdlib.h>\n"
        "static void *run(void *x) { sleep(2); exit(3); return x; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_exit(0); }\n"
    )
    subprocess.run(["gcc", "-pthread", "-o", program, source], check=True)
    return program


def pidfds(recorder: Recorder) -> int:
    """How many this recorder has open; other tests of this process may have some too."""
    lifeline = recorder.collector._lifeline
    assert lifeline is not None
    descriptors = lifeline._pidfds._open.values()
    return sum("pidfd" in os.readlink(f"/proc/self/fd/{number}") for number in list(descriptors))


def test_a_main_thread_that_ends_first(recorder: Recorder, headless: Path) -> None:
    """Whoever listens hears the 0 of the main thread; a pidfd tells the status, however late it is waited for."""
    job = subprocess.Popen([headless], process_group=0)
    let_pass(0.5)
    recorder.sample()
    let_pass(2)
    recorder.sample()
    assert (exits(recorder, job.pid), pidfds(recorder)) == ([], 1)
    assert job.wait() == 3
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.subject, row.program, row.runtime) == ("job", "headless", pytest.approx(2e9, abs=0.5e9))
    if KERNEL >= (6, 15):
        assert (row.exit_code, row.exit_source) == (3, "pidfd")
    else:
        assert (row.exit_code, row.exit_source) == (None, None)
        assert row.detail is not None
        assert "Linux 6.15" in row.detail
    assert pidfds(recorder) == 0


def test_an_older_kernel_does_not_tell_what_follows_the_main_thread(
    recorder: Recorder, headless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar.collectors.process.pidfds.exit_status", lambda descriptor: None)
    with subprocess.Popen([headless], process_group=0) as job:
        let_pass(0.5)
        recorder.sample()
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.exit_code, row.exit_signal, row.exit_source) == (None, None, None)
    assert row.detail is not None
    assert row.detail.startswith("its main thread ended before the others")


def test_a_task_that_the_kernel_gives_up_has_no_status() -> None:
    """A kernel thread that is stopped before its first step ends with -EINTR."""
    tick = Tick(datetime(2026, 11, 16, tzinfo=UTC), 60 * 10**9, "b", fresh=False)
    death = Death(Life(4000, 59 * 10**9, 2, 0, threads=0), 60 * 10**9, 2, 2**32 - 4, source="connector")
    (line,) = Exits(tick, JobTable(SeriesIds(uuid4()))).tell(Interval(is_whole=True, ends=[death]), [])
    row = msgspec.json.decode(line, type=EventRow)
    assert (row.exit_code, row.exit_signal, row.exit_source) == (None, None, None)
    assert row.detail == "the kernel ended a task of its own with a number that is no exit status"


def test_so_many_pidfds_and_no_more(recorder: Recorder, headless: Path) -> None:
    jobs = [subprocess.Popen([headless], process_group=0) for _ in range(MOST + 20)]
    let_pass(0.8)
    recorder.sample()
    assert 0 < pidfds(recorder) <= MOST
    for job in jobs:
        assert job.wait(30) == 3
    recorder.sample()
    codes = [row.exit_code for job in jobs for row in exits(recorder, job.pid)]
    assert len(codes) == len(jobs)
    assert set(codes) <= {3, None}
    assert pidfds(recorder) == 0


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[Recorder, int]]:
    """A recorder that knows of ends by the accounts alone, as before Linux 6.6, and the companion's pid."""
    accounts = Accounts(socket=str(tmp_path / "accounts.sock"))
    settings = Config(lifeline=Lifeline(connector="none"), accounts=accounts)
    with accounts_companion(Path(accounts.socket)) as companion, recording(settings) as recorder:
        wait_until(lambda: not recorder.sample().gap, 30, "the companion", every=0.2)
        yield recorder, companion.pid
        os.kill(companion.pid, signal.SIGCONT)


@requires("root")
@pytest.mark.parametrize("is_last", [False, True])
def test_accounts_that_come_late_are_waited_for_or_told_by_the_next_sample(
    slow: tuple[Recorder, int], is_last: bool
) -> None:
    recorder, companion = slow
    with subprocess.Popen(sh("exit 7"), process_group=0) as job:
        let_pass(0.5)
        recorder.sample()
        os.kill(companion, signal.SIGSTOP)
        job.wait()
    if is_last:  # nothing will follow
        threading.Timer(0.2, os.kill, (companion, signal.SIGCONT)).start()
        recorder.sample(is_last=True)
    else:
        recorder.sample()
        assert exits(recorder, job.pid) == []
        os.kill(companion, signal.SIGCONT)
        let_pass(0.3)
        recorder.sample()
        recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.subject, row.exit_code, row.exit_source) == ("job", 7, "accounts")
    assert row.start_ticks == recorder.job_rows(job.pid)[0].start_ticks


FAILURES = "i=0; while [ $i -lt 60 ]; do /bin/false; /bin/true; i=$((i+1)); done"


def failures(recorder: Recorder) -> tuple[int, int]:
    """How many ended with 1, told one by one and counted."""
    rows = [row for sample in recorder.samples for row in sample.event]
    told = sum(row.event_type == "exit" and row.exit_code == 1 for row in rows)
    counts = (row.exits or 0 for row in rows if row.event_type == "exits_counted" and row.exit_code is None)
    return told, sum(counts)


def test_a_storm_of_failures_hides_no_end_of_a_job_that_samples_saw(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar.collectors.process.lives.MOST_ENDS", 20)
    with subprocess.Popen(["sleep", "60"], process_group=0) as job:
        let_pass(0.2)
        recorder.sample()
        subprocess.run(sh(FAILURES), process_group=0, check=True)
        job.kill()
    recorder.sample()
    (row,) = exits(recorder, job.pid)
    assert (row.subject, row.exit_signal) == ("job", 9)
    told, beyond = failures(recorder)
    assert told <= 20
    assert told + beyond >= 60


@requires("root")
def test_what_only_the_books_tell_is_bounded_and_counted_alike(
    slow: tuple[Recorder, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmsonar.collectors.process.lives.MOST_ENDS", 20)
    recorder, _ = slow
    before = counted(recorder, "true")
    with subprocess.Popen(["sleep", "60"], process_group=0) as job:
        let_pass(0.2)
        recorder.sample()
        subprocess.run(sh(FAILURES), process_group=0, check=True)
        job.kill()
    recorder.sample()
    assert [row.exit_signal for row in exits(recorder, job.pid)] == [9]
    told, beyond = failures(recorder)
    assert told <= 20
    assert told + beyond >= 60
    assert counted(recorder, "true") - before >= 60


@pytest.fixture
def selective() -> Iterator[Recorder]:
    """A recorder that leaves out what nobody runs."""
    with recording(Config(filters=Filters(users=Selection(leave_out=["nobody"])))) as one:
        one.sample()
        yield one


@requires("root")
def test_filters_hold_for_ends_too(selective: Recorder) -> None:
    many = "bash -c 'exit 41'; bash -c 'sleep 1.2; exit 42'; bash -c 'kill -SEGV $$'; sleep 0.1; exit 44"
    scripts = (f"sleep 1.2; {many}", "exit 45", "sleep 0.4; exit 46", "sleep 1.6; exit 47")
    command = ["bash", "-c"]
    jobs = [subprocess.Popen([*command, each], process_group=0, user="nobody") for each in scripts]
    shell = "sleep 0.9; setpriv --reuid nobody bash -c 'exit 48'; bash -c 'exit 51'; exit 52"
    jobs.append(subprocess.Popen([*command, shell], process_group=0))
    let_pass(0.5)
    selective.sample()
    for job in jobs:
        job.wait()
    with subprocess.Popen([*command, "exit 53"], process_group=0) as brief:
        pass
    selective.sample()
    mine = {job.pid for job in (*jobs, brief)}
    rows = [row for sample in selective.samples for row in sample.event if row.event_type == "exit"]
    found = [row for row in rows if mine & {row.pid, row.pgid}]
    assert {row.exit_code for row in found if row.exit_code is not None} == {51, 52, 53}
    named = [info.user_name for sample in selective.samples for info in sample.job_info]
    assert "nobody" not in named


@requires("root")
def test_good_ends_of_who_is_left_out_are_not_counted_by_name(selective: Recorder) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        jobs = []
        for user, name in (("nobody", "hushed"), ("root", "heard")):
            shutil.copy("/bin/sleep", f"{folder}/{name}")
            script = f"{folder}/{name} 1.4; sleep 0.1"
            jobs.append(subprocess.Popen(["bash", "-c", script], process_group=0, user=user))
        let_pass(0.3)
        selective.sample()
        for job in jobs:
            assert job.wait() == 0
    selective.sample()
    assert (counted(selective, "hushed"), counted(selective, "heard")) == (0, 1)


def test_good_ends_too_short_for_a_name_are_counted_by_who_started_them(
    recorder: Recorder, tmp_path: Path
) -> None:
    supervisor = tmp_path / "supervise"
    supervisor.write_text(f"""#!{sys.executable} -S
import subprocess, time
for code in (9, 9, 9, 0, 0):
    subprocess.Popen(["sh", "-c", f"sleep 0.2; exit {{code}}"], process_group=0).wait()
time.sleep(1.2)
""")
    supervisor.chmod(0o755)
    with subprocess.Popen([supervisor], process_group=0) as job:
        let_pass(0.8)
        recorder.sample()
    recorder.sample()
    rows = [row for sample in recorder.samples for row in sample.event]
    good = [row for row in rows if row.event_type == "exits_counted" and row.started_by == "supervise"]
    assert {(row.program, row.exit_code) for row in good} == {(None, 0)}
    failed = [row for row in rows if row.exit_code == 9 and row.started_by == "supervise"]
    # One that was caught before anybody waited for it has its own name.
    assert 0 < sum(row.exits or 0 for row in good) <= 2
    assert 0 < len(failed) <= 3
    assert all(row.pid == row.pgid != job.pid for row in failed)
