"""`vmsonar run` where the machine gives no room, as the first process of a container, and at moments in between."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_inspect.facts.runs import read_run

from tests.daemon.commands import SECONDS, card_of, environment, line, recorder_of, run, runs, state
from tests.parts import requires
from tests.real import stranger
from tests.real.wait import wait_until

_MEMORY = Path("/sys/fs/cgroup/memory")
# The first fork is the command's.
_ONE_FORK = """
import os, sys
fork, made = os.fork, []
def fork_once():
    if made: raise BlockingIOError(11, "Resource temporarily unavailable")
    made.append(1)
    return fork()
if "run" in sys.orig_argv: os.fork = fork_once
"""
_NO_FIRST_FORK = """
import os, sys
fork, tried = os.fork, []
def fork_later():
    if not tried:
        tried.append(1)
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
if "run" in sys.orig_argv: os.fork = fork_later
"""
_NO_TABLES = """
import os, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == "duckdb" and "run" in sys.orig_argv: os.kill(os.getpid(), signal.SIGKILL)
sys.meta_path.insert(0, Finder)
"""
_INTERRUPT_AT = """
import os, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == "vmsonar.commands.runner": os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""
# The signal comes while the recorder is still busy.
_LATE = """
import os, signal, sys
from vmsonar.daemon.supervisor import Recorder, leave, supervise
class Late(Recorder):
    begin = collect = lambda *_: None
    def finish(self, *_): os.kill(os.getpid(), int(sys.argv[1]))
leave(supervise(["sh", "-c", "exit 3"], Late()))
"""


def _prepared(tmp_path, script):
    """An environment in which Python runs a script first."""
    (tmp_path / "sitecustomize.py").write_text(script)
    settings = environment(tmp_path)
    return settings | {"PYTHONPATH": f"{tmp_path}:{settings['PYTHONPATH']}"}


def test_a_command_that_runs_is_never_called_one_that_cannot(tmp_path):
    """No process is left for what looks after signals: they are passed on all the same."""
    script = "trap 'exit 7' USR1; echo $$; while :; do sleep 0.05; done"
    words = line("--quiet", "--", "sh", "-c", script)
    settings = {"env": _prepared(tmp_path, _ONE_FORK), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **settings) as process:
        assert int(process.stdout.readline())
        process.send_signal(signal.SIGUSR1)
        assert process.wait(SECONDS) == 7
        assert process.stderr.read() == b""


def test_where_there_is_room_for_one_process_it_is_the_commands(tmp_path):
    done = run(tmp_path, "--", "sh", "-c", "exit 6", env=_prepared(tmp_path, _NO_FIRST_FORK))
    assert done.returncode == 6
    assert b"record      none: no room for it beside the command: Resource temporarily" in done.stderr
    assert b"\nended       exit 6\n" in done.stderr


def test_an_alarm_that_was_set_before_ends_the_command(tmp_path):
    """alarm(2) outlives exec; the kernel sends it to one process."""
    begin = "import os, signal, sys; signal.alarm(4); os.execv(sys.executable, sys.argv[1:])"
    words = [sys.executable, "-c", begin, *line("--quiet", "--", "sleep", "60")]
    done = subprocess.run(words, env=environment(tmp_path), timeout=50, check=False)
    assert done.returncode == 128 + signal.SIGALRM


def test_the_hangup_of_a_terminal_ends_the_command(tmp_path):
    """Of the processes of a terminal that goes only the leader of the session is told at first: us."""
    terminal, theirs = pty.openpty()
    words = line("--quiet", "--", "sh", "-c", "echo ready; sleep 60")
    settings = {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
    with subprocess.Popen(
        words, env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs, **settings
    ) as process:
        os.close(theirs)
        assert b"ready" in os.read(terminal, 100)
        os.close(terminal)
        assert process.wait(SECONDS) == 128 + signal.SIGHUP


def test_a_script_without_a_first_line_is_one_for_sh(tmp_path):
    script = tmp_path / "no-first-line"
    script.write_text('echo "$1"; exit 4\n')
    script.chmod(0o755)
    for word, path in ((script, os.environ["PATH"]), ("no-first-line", f"{tmp_path}:{os.environ['PATH']}")):
        settings = environment(tmp_path) | {"PATH": path}
        done = run(tmp_path, "--quiet", "--", word, "a b", env=settings)
        assert (done.returncode, done.stdout) == (4, b"a b\n")


@requires("root")
def test_as_the_first_process_it_reaps_what_is_left_to_it(tmp_path):
    leave_two = "sh -c 'sleep 0.2 & sleep 0.3 &'; sleep 1.5; cat /proc/[0-9]*/stat"
    prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words = [*prefix, *line("--quiet", "--", "sh", "-c", leave_two)]
    done = subprocess.run(words, env=environment(tmp_path), capture_output=True, timeout=SECONDS, check=False)
    assert b"(sh) S" in done.stdout
    assert b"(sleep) Z" not in done.stdout


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM"])
def test_a_signal_that_comes_after_its_end_changes_no_exit_code(name):
    words = [sys.executable, "-c", _LATE, str(signal.Signals[f"SIG{name}"].value)]
    done = subprocess.run(words, env=environment("/"), capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (3, b"")


def test_ctrl_c_before_it_has_begun_is_no_traceback(tmp_path):
    done = run(tmp_path, "--", "true", env=_prepared(tmp_path, _INTERRUPT_AT))
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@requires("stranger")
def test_a_user_without_a_name_or_home_is_told_so_in_a_line():
    who = {"user": stranger.STRANGER, "group": stranger.STRANGER, "extra_groups": (), "cwd": "/"}
    settings = {"env": stranger.environment(), "capture_output": True, "timeout": SECONDS, "check": False}
    done = subprocess.run(stranger.vmsonar("run", "--", "sh", "-c", "exit 5"), **who, **settings)
    assert done.returncode == 5
    assert b"record      none: no home directory is known: set HOME or XDG_STATE_HOME\n" in done.stderr
    listed = subprocess.run(stranger.vmsonar("runs"), **who, **settings)
    assert (listed.returncode, listed.stderr.count(b"\n")) == (3, 1)


@pytest.mark.parametrize("more", [(), ("--keep", "9")], ids=["quick", "full"])
def test_an_empty_archive_is_none_and_not_the_current_folder(tmp_path, more):
    place = tmp_path / "work"
    place.mkdir()
    run(tmp_path, "--quiet", *more, "--archive", "", "--", "true", cwd=place)
    assert (list(place.iterdir()), len(runs(tmp_path))) == ([], 1)


def test_a_recorder_that_finds_all_killed_writes_its_end(tmp_path):
    """vmsonar and the command are gone before it can look, as at the end of a container."""
    words = line("--quiet", "--archive", tmp_path / "archive", "--", "sh", "-c", "echo $$; sleep 60")
    with subprocess.Popen(words, env=environment(tmp_path), stdout=subprocess.PIPE) as process:
        command = int(process.stdout.readline())
        recorder = recorder_of(process.pid)
        os.kill(recorder, signal.SIGSTOP)
        process.kill()
        os.kill(command, signal.SIGKILL)
        wait_until(lambda: state(command) == "gone", 30, "the command to be gone")
        os.kill(recorder, signal.SIGCONT)
        wait_until(lambda: state(recorder) in ("gone", "Z"), 30, "the recorder to end")
    assert read_run(tmp_path / "archive").elapsed_seconds > 0


@requires("root")
@pytest.mark.skipif(not _MEMORY.exists(), reason="no control groups of version 1 that limit memory")
def test_the_card_says_that_memory_ran_out(tmp_path):
    group = _MEMORY / f"run-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    need = "import time; time.sleep(2.2); held = bytearray(200 << 20)"
    try:
        script = f'echo $$ >{group}/cgroup.procs; exec "$@"'
        card, done = card_of(tmp_path, "sh", "-c", script, "sh", sys.executable, "-S", "-c", need)
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 20, "the group to be empty")
        group.rmdir()
    assert (done.returncode, card["exit_signal"]) == (128 + signal.SIGKILL, signal.SIGKILL)
    assert re.match("SIGKILL, .*(lack of memory|limit of 64 MiB was reached)", card["ended_by"])
    assert 55 << 20 < card["resident_peak_bytes"] < 80 << 20
    assert card["memory_peak_high_bytes"] is None or card["memory_peak_high_bytes"] > 55 << 20


def test_a_report_that_dies_leaves_the_exit_code_and_the_facts(tmp_path):
    """Without room for its libraries, as in a small control group, it ends by a signal and not by an exception."""
    script = "import time; time.sleep(2.2); raise SystemExit(3)"
    words = [*line("--html", tmp_path / "page", "--"), sys.executable, "-S", "-c", script]
    # Instead of a limit, whose effect depends on the library that meets it.
    settings = _prepared(tmp_path, _NO_TABLES)
    done = subprocess.run(words, env=settings, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, (tmp_path / "page").exists()) == (3, False)
    assert b"vmsonar: facts only, no verdicts: ended by SIGKILL" in done.stderr
    assert b"\nended       exit 3 at " in done.stderr
    assert b"vmsonar: no --html: ended by SIGKILL" in done.stderr
    limited = ["sh", "-c", 'ulimit -v 300000; exec "$@"', "sh", *words]
    done = subprocess.run(
        limited, env=environment(tmp_path), capture_output=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 3
    assert b"\nended       exit 3 at " in done.stderr


def test_a_card_can_be_written_to_a_descriptor(tmp_path):
    """/dev/stdout, or the pipe of a shell's >(…), are open in the command too, and let go of otherwise."""
    ours, theirs = os.pipe()
    outputs = ("--json", f"/dev/fd/{theirs}", "--markdown", "/dev/stdout")
    done = run(tmp_path, "--quiet", *outputs, "--", "sh", "-c", "echo its own", pass_fds=[theirs])
    os.close(theirs)
    with open(ours, encoding="utf-8") as card:
        assert json.load(card)["exit_code"] == 0
    assert done.stdout.startswith(b"its own\n### `sh ")


def test_beside_a_daemon_both_record_it(tmp_path):
    """Each in its own archive; into the daemon's own nothing can be recorded, and the command runs all the same."""
    words = [sys.executable, "-m", "vmsonar.daemon", f"--archive={tmp_path}/archive", "--interval=1s"]
    with subprocess.Popen(words, env=environment(tmp_path), stderr=subprocess.DEVNULL) as recorder:
        try:
            wait_until(lambda: list(tmp_path.glob("archive/*/*/*/sample-*")), 60, "its first sample")
            card, done = card_of(tmp_path, "setsid", "-w", "sh", "-c", "sleep 2.5; exit 6")
            assert (done.returncode, card["exit_code"], card["trouble"]) == (6, 6, None)
            assert {each["program"] for each in card["programs"]} <= {"setsid", "sh", "sleep"}
            refused = run(tmp_path, "--archive", tmp_path / "archive", "--", "sh", "-c", "exit 4")
            assert refused.returncode == 4
            assert b"record      none: " in refused.stderr
        finally:
            recorder.terminate()
    assert recorder.returncode == 0
    with open_archive(tmp_path / "archive") as archive:
        programs = {row.program for sample in archive.samples() for row in sample.job_info}
    assert programs & {"sh", "setsid"}
