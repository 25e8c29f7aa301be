"""`vmsonar run` changes nothing for its command, and tells how it ended, whatever happens to either."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vmsonar_inspect.facts.runs import read_run

from tests.daemon.commands import (
    SECONDS,
    card_of,
    children,
    environment,
    line,
    recorder_of,
    run,
    runs,
    state,
)
from tests.parts import requires
from tests.real import stranger
from tests.real.wait import let_pass, wait_until

# Says what it met: each signal once, and its own end.
_COUNTER = """
import signal, sys, time
def came(number, frame): print(signal.Signals(number).name, flush=True)
for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGCONT): signal.signal(each, came)
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end and not sys.stdin.closed:
    time.sleep(0.05)
    import os
    if os.path.exists(sys.argv[1]): sys.exit(9)
"""
# What a program can see of how it was started.
_SEEN = """
cat /proc/self/limits; grep -E '^(Sig[A-P]|Cap|Shd|NoNew|Seccomp|Cpus_allowed|Groups|Uid|Gid)' /proc/self/status
env | sort; umask; pwd; ls /proc/self/fd; cut -d' ' -f5-8 /proc/self/stat; cat <&5
"""


def _is_quiet(pid):
    """Whether no signal waits in us, nor in the probe beside us."""

    def pending(each):
        return next(
            word
            for word in Path(f"/proc/{each}/status").read_text().splitlines()
            if word.startswith("ShdPnd")
        )

    return all(int(pending(each).split()[1], 16) == 0 for each in (pid, *children(pid)))


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(tmp_path, code):
    card, done = card_of(tmp_path, "sh", "-c", f"exit {code}")
    assert (done.returncode, card["exit_code"], card["exit_signal"]) == (code, code, None)


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "PIPE"])
def test_a_signal_is_128_and_its_number(tmp_path, name):
    number = signal.Signals[f"SIG{name}"].value
    card, done = card_of(tmp_path, "sh", "-c", f"kill -{name} $$")
    assert (done.returncode, card["exit_code"], card["exit_signal"]) == (128 + number, None, number)
    assert card["ended_by"].startswith(f"SIG{name}")


def test_a_command_that_cannot_be_started_is_told_as_a_shell_does(tmp_path):
    for word, code in (("no-such-command", 127), ("/etc/passwd", 126), ("", 127)):
        done = run(tmp_path, "--", word)
        assert done.returncode == code
        assert done.stderr.decode().startswith(f"vmsonar: {word}: ")
        assert done.stderr.count(b"\n") == 1
    assert runs(tmp_path) == []


def test_its_streams_are_its_own_and_our_words_come_after_on_stderr(tmp_path):
    done = run(tmp_path, "--", "sh", "-c", "cat; echo oops >&2", input=bytes(range(256)))
    assert done.stdout == bytes(range(256))
    assert done.stderr.startswith(b"oops\n\ncommand ")
    quiet = run(tmp_path, "--quiet", "--", "sh", "-c", "cat; echo oops >&2", input=b"x")
    assert (quiet.stdout, quiet.stderr) == (b"x", b"oops\n")


def test_it_sees_what_it_would_see_without_us(tmp_path):
    """Limits, signal masks, environment (also where Python changes its own), descriptors, session and terminal."""
    settings = {
        "env": environment(tmp_path) | {"LC_ALL": "", "LANG": "C"},
        "cwd": tmp_path,
        "timeout": SECONDS,
    }
    del settings["env"]["LC_ALL"]
    script = f"trap '' USR2; exec 5<<'END'\nmore\nEND\nexec %s sh -c {_quoted(_SEEN)}"
    command = " ".join(map(_quoted, line("--quiet", "--")))
    plain, ours = (
        subprocess.check_output(["sh", "-c", script % prefix], **settings) for prefix in ("env", command)
    )
    assert ours.decode().replace("\n4\n", "\n3\n") == plain.decode().replace("\n4\n", "\n3\n")
    assert b"LC_CTYPE" not in ours


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def test_closed_streams_stay_closed(tmp_path):
    command = line(
        "--json", tmp_path / "card.json", "--", "sh", "-c", f"ls /proc/self/fd >{tmp_path}/seen; exit 3"
    )
    script = f"{shlex.join(command)} <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", script], env=environment(tmp_path), timeout=SECONDS, check=False)
    assert done.returncode == 3
    assert '"exit_code": 3' in (tmp_path / "card.json").read_text()
    assert '"samples": 0' not in (tmp_path / "card.json").read_text()
    assert (tmp_path / "seen").read_text().split() == ["0", "1"]  # what ls opens itself


def test_whoever_reads_sees_when_it_closes_its_output(tmp_path):
    words = line("--quiet", "--", "sh", "-c", "echo a; exec >&-; sleep 30")
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        began = time.monotonic()
        assert process.stdout.read() == b"a\n"
        assert time.monotonic() - began < 25
        process.terminate()
        assert process.wait(SECONDS) == 128 + signal.SIGTERM


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_signal_reaches_it_exactly_once(tmp_path, whole_group):
    """Sent to us alone it is passed on; sent to the group it has it already."""
    end = tmp_path / "end"
    words = line("--quiet", "--", sys.executable, "-c", _COUNTER, end)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, env=environment(tmp_path), text=True, process_group=0
    ) as process:
        assert process.stdout.readline() == "ready\n"
        for name in ("SIGUSR1", "SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGCONT"):
            (os.killpg if whole_group else os.kill)(process.pid, signal.Signals[name])
            assert process.stdout.readline() == f"{name}\n"
            wait_until(lambda: _is_quiet(process.pid), 30, "us to be done with it")
        let_pass(0.3)  # a second one would come now
        end.touch()
        assert process.stdout.read() == ""
        assert process.wait(SECONDS) == 9


def test_it_is_stopped_and_continued(tmp_path):
    """The shell must see us stopped while the command is, and running when it runs again."""
    words = line("--quiet", "--", "sh", "-c", "echo $$; read x; exit 4")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(tmp_path), **pipes) as process:
        child = int(process.stdout.readline())
        for _ in range(2):
            os.kill(child, signal.SIGSTOP)
            wait_until(lambda: state(process.pid) == "T", 20, "us to stop")
            os.kill(child, signal.SIGCONT)
            wait_until(lambda: state(process.pid) == "S", 20, "us to go on")
        process.communicate(b"\n", timeout=SECONDS)
        assert process.returncode == 4


@requires("connector")
def test_a_command_whose_vmsonar_is_killed_goes_on_and_its_record_is_whole(tmp_path):
    end, archive = tmp_path / "end", tmp_path / "archive"
    words = line(
        "--quiet",
        "--archive",
        archive,
        "--",
        "sh",
        "-c",
        f"echo $$; while [ ! -e {end} ]; do sleep 0.05; done; exit 4",
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        child = int(process.stdout.readline())
        wait_until(lambda: len(list(archive.rglob("sample-*"))) > 0, 60, "the recorder")
        recorder = recorder_of(process.pid)
        process.kill()
        process.wait()
        assert state(child) in "SRD"
        end.touch()
        wait_until(lambda: state(child) == "gone", 30, "the command to end")
    wait_until(lambda: state(recorder) in ("gone", "Z"), 30, "the recorder to end")
    use = read_run(archive)
    assert use.exit_code == 4, "the kernel tells the recorder of what fails"
    assert use.elapsed_seconds > 0
    assert use.samples >= 2


def test_a_recorder_that_is_killed_harms_nobody(tmp_path):
    words = line("--", "sh", "-c", "echo $$; read x; exit 5")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(tmp_path), **pipes) as process:
        process.stdout.readline()
        recorder = recorder_of(process.pid)
        os.kill(recorder, signal.SIGKILL)
        _, errors = process.communicate(b"\n", timeout=SECONDS)
    assert process.returncode == 5
    assert b"the recorder ended early" in errors or b"the recorder did not answer" in errors
    assert b"exit 5" in errors


@pytest.mark.parametrize("home", ["/dev/null", "/proc/1/nowhere"])
def test_without_a_home_the_command_runs_all_the_same(tmp_path, home):
    card = tmp_path / "card.json"
    done = run(home, "--json", card, "--", "sh", "-c", "exit 6")
    assert done.returncode == 6
    assert done.stderr.decode().count("record      none: ") == 1
    assert b"exit 6" in done.stderr
    assert '"exit_code": 6' in card.read_text()


@requires("tmpfs_mount")
@pytest.mark.parametrize("options", ["ro", "size=8k"])
def test_a_home_without_room_or_read_only_does_not_matter(tmp_path, options):
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", home], check=True)
    try:
        done = run(home, "--", "sh", "-c", "echo fine; exit 8")
    finally:
        subprocess.run(["umount", "-l", home], check=True)
    assert (done.returncode, done.stdout) == (8, b"fine\n")
    assert b"record      none: " in done.stderr


def test_the_recorder_is_in_no_group_of_ours_and_loads_no_libraries(tmp_path):
    words = line("--quiet", "--", "sh", "-c", "echo; read x")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(tmp_path), **pipes) as process:
        process.stdout.readline()
        recorder = recorder_of(process.pid)
        loaded = Path(f"/proc/{recorder}/maps").read_text()
        sessions = os.getsid(recorder), os.getsid(process.pid)
        process.communicate(b"\n", timeout=SECONDS)
    assert sessions[0] == recorder != sessions[1]
    assert not any(name in loaded for name in ("pyarrow", "duckdb", "confluent"))


@pytest.mark.slow
@requires("connector", "tmpfs_mount")
def test_the_card_says_what_ended_it_with_the_evidence(tmp_path):
    """Whether the command is a group of its own, as timeout(1) makes itself, or in that of the shell."""
    place = tmp_path / "full"
    place.mkdir()
    write = f"open('{place}/file', 'wb', buffering=0).write(bytes(8 << 20)); raise ValueError"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", place], check=True)
    try:
        full, done = card_of(tmp_path, sys.executable, "-S", "-c", f"import time; time.sleep(2.2); {write}")
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    timed, _ = card_of(tmp_path, "timeout", "2.2", "sleep", "60")
    assert full["ended_by"] == f"exit 1, at the same time {place} had 0 bytes free"
    assert f"ended       exit 1, at the same time {place}" in " ".join(
        done.stderr.decode().split("\n            ")
    )
    assert timed["ended_by"] == "exit 124, which timeout(1) gives when the time is up"


def test_a_command_of_two_seconds_has_a_useful_record(tmp_path):
    card, _ = card_of(tmp_path, "sh", "-c", "sleep 2")
    assert card["samples"] >= 5  # eleven where nobody else runs
    assert 1.9 < card["elapsed_seconds"] < 10
    assert card["programs"][0]["program"] in ("sh", "sleep")


def test_what_it_leaves_behind_is_told_and_not_waited_for(tmp_path):
    card, done = card_of(tmp_path, "sh", "-c", "(setsid sleep 20 >/dev/null 2>&1 &); sleep 0.5")
    assert done.returncode == 0
    assert card["left_behind"] == 1
    assert card["elapsed_seconds"] < 15


@pytest.mark.slow
def test_from_twenty_seconds_on_it_is_judged_with_little_confidence(tmp_path):
    """Four at work on what cores there are, for 22 s: too few of them, or too much taken by others."""
    burn = "import time\nend = time.monotonic() + 22\nwhile time.monotonic() < end: pass"
    four = f'for i in 1 2 3 4; do {sys.executable} -S -c "{burn}" & done; wait; exit 3'
    card, done = card_of(tmp_path, "taskset", "-c", "0,1", "sh", "-c", four)
    assert done.returncode == 3
    assert card["elapsed_seconds"] >= 22
    assert card["verdicts"]
    assert all(words.endswith("(low confidence)") for words in card["verdicts"])
    assert re.fullmatch(r"at least \d+ cores?, \d+ GiB", card["size"])
    text = done.stderr.decode()
    assert "\nverdict     " in text
    assert f"\nenough      {card['size']}\n" in text
    markdown = tmp_path / "card.md"
    short = run(tmp_path, "--markdown", markdown, "--", "sleep", "1")
    assert b"verdict" not in short.stderr
    assert b"enough" not in short.stderr


@pytest.mark.slow
def test_an_archive_of_others_tells_of_the_last_command_alone(tmp_path):
    """Neither the jobs of a daemon that recorded there before, nor an earlier command, are counted again."""
    archive = tmp_path / "archive"
    daemon = [
        sys.executable,
        "-m",
        "vmsonar",
        "daemon",
        "--archive",
        archive,
        "--interval",
        "1s",
        "--for",
        "3s",
    ]
    subprocess.run(daemon, env=environment(tmp_path), timeout=SECONDS, check=True, capture_output=True)
    run(
        tmp_path, "--quiet", "--archive", archive, "--", "sh", "-c", "head -c 300000000 /dev/zero | sha256sum"
    )
    run(tmp_path, "--quiet", "--archive", archive, "--", "sh", "-c", "sleep 0.5; exit 7")
    use = read_run(archive)
    assert (use.exit_code, use.command) == (7, "sh -c ***")
    assert use.recorded_cpu_seconds < 0.1
    assert {each.program for each in use.programs} <= {"sh", "sleep"}
    assert use.is_agreed


@requires("tmpfs_mount")
def test_a_command_that_fills_the_disk_of_its_record_has_its_card(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", home], check=True)
    try:
        done = run(
            home, "--", "sh", "-c", f"sleep 0.5; head -c 30000000 /dev/zero >{home}/fill; sleep 2.5; exit 6"
        )
    finally:
        subprocess.run(["umount", "-l", home], check=True)
    assert done.returncode == 6
    assert re.search(
        rb"record      not whole: \d+ samples could not be written: is the disk full\?", done.stderr
    )
    assert b"ended       exit 6 at " in done.stderr
    assert b"CPU         " in done.stderr


@requires("stranger")
def test_somebody_else_runs_it_without_a_home(tmp_path):
    line = stranger.vmsonar("run", "--", "sh", "-c", "id -u; exit 5")
    done = subprocess.run(
        line, env={**stranger.environment(), "HOME": "/nonexistent"}, user=stranger.STRANGER, cwd="/",
        group=stranger.STRANGER, extra_groups=(), capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, f"{stranger.STRANGER}\n".encode())
    assert b"record      none: /nonexistent: Permission denied" in done.stderr
    assert b"wait4" in done.stderr


def test_within_itself_it_runs_as_well(tmp_path):
    inner = line("--quiet", "--json", tmp_path / "inner.json", "--", "sh", "-c", "exit 9")
    card, done = card_of(tmp_path, *inner)
    assert (done.returncode, card["exit_code"]) == (9, 9)
    assert '"exit_code": 9' in (tmp_path / "inner.json").read_text()
    assert card["cpu_seconds"] > 0.05  # the inner one's own, recorder included


def test_a_mistake_in_the_options_runs_nothing(tmp_path):
    for words in (["--interval", "0s"], ["--interval", "never"], ["--nope"], ["--keep", "0"]):
        done = run(tmp_path, *words, "--", "touch", tmp_path / "ran")
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), words
    assert not (tmp_path / "ran").exists()
    assert runs(tmp_path) == []
