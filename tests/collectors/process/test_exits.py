"""How processes and jobs ended, told by the kernel: real deaths, each named rightly."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.records import EventRow

from tests.collectors.process.recorder import Recorder, recording
from tests.parts import requires
from tests.real.wait import let_pass
from vmsonar.collectors.process.pidfds import MOST

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
