"""The card of `vmsonar run` against the kernel's own accounts: CPU to a per cent, memory within its bounds."""

import ctypes
import json
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from vmsonar_archive.system.errors import VmsonarError
from vmsonar_inspect.facts.runs import read_run

from tests.accuracy.oracle import hierarchy, usage
from tests.daemon.commands import SECONDS, card_of, environment, line
from tests.parts import requires
from tests.real.wait import wait_until

_V2 = next(
    (
        place
        for place in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
        if (place / "cgroup.controllers").exists()
    ),
    None,
)
_V1 = Path("/sys/fs/cgroup")
pytestmark = [
    requires("root"),
    pytest.mark.skipif(hierarchy() is None, reason="no control groups that count CPU time"),
]

_CLONE_NEWNS = 0x00020000
_BURN = "import time\nend = time.process_time() + %s\nwhile time.process_time() < end: pass\n"
_POOL = """
import hashlib, threading
def work():
    for _ in range(12): hashlib.pbkdf2_hmac("sha256", b"x", b"y", 150000)
threads = [threading.Thread(target=work) for _ in range(4)]
[each.start() for each in threads]; [each.join() for each in threads]
"""
_CHILD = "import time\nend = time.process_time() + 0.03\nwhile time.process_time() < end: pass\n"
_DAEMON = """
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1), os.close(2)
        burn(1.5)
        time.sleep(60)
    os._exit(0)
os.wait()
burn(0.5)
time.sleep(12)
"""


@contextmanager
def _account(tmp_path):
    """A control group of our own that the command enters itself; a function that tells its CPU seconds."""
    group = hierarchy() / f"run-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        subprocess.run(
            ["sh", "-c", f"until rmdir {group} 2>/dev/null; do sleep 0.1; done"], timeout=30, check=True
        )


def _workloads(folder):
    """A thread pool, builds of 150 and 1,000 children of 50 ms, a pipeline, a daemon left behind, a short one."""
    (folder / "child.py").write_text(_CHILD)
    rule = f"all: $(shell seq -f t%g 1 $(N))\nt%:\n\t@{sys.executable} -S {folder}/child.py\n"
    (folder / "Makefile").write_text(rule)
    make = ["make", "-s", "-j4", "-C", str(folder)]
    pipeline = "head -c 150000000 /dev/zero | sha256sum | cat >/dev/null; seq 400000 | sort -rn | tail -1"
    return {
        "threads": [sys.executable, "-c", _POOL],
        "make": [*make, "N=150"],
        "thousand": [*make, "N=1000"],
        "pipeline": ["sh", "-c", pipeline],
        "daemon": [sys.executable, "-c", _DAEMON],
        "short": [sys.executable, "-c", _BURN % 1.5],
    }


@pytest.mark.slow
@pytest.mark.parametrize("with_own_group", [True, False])
@pytest.mark.parametrize(
    "name",
    ["threads", "make", "pipeline", "daemon", "short", pytest.param("thousand", marks=pytest.mark.chaos)],
)
def test_cpu_time_is_within_a_per_cent(tmp_path, name, with_own_group):
    if not with_own_group and (_V2 is None or hierarchy() == _V2):
        pytest.skip("version 1 control groups are needed beside version 2")
    words = _workloads(tmp_path)[name]
    with _account(tmp_path) as group:
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *words]
        settings = {"timeout": 8 * SECONDS} | ({} if with_own_group else {"preexec_fn": _hide_groups})
        card, done = card_of(tmp_path, *enter, **settings)
        exact = usage(group) / 1e9
    assert done.returncode == 0
    assert card["cpu_source"] == ("cgroup" if with_own_group else "record" if name == "daemon" else "wait4")
    assert card["waited_source"] == ("cgroup" if with_own_group else "machine")
    # Two ticks are what the record can miss of a daemon.
    slack = max(0.01 * exact, 0.02 if card["cpu_source"] == "record" else 0.0)
    assert abs(card["cpu_seconds"] - exact) <= slack, (exact, card)
    slack = 0.01 * exact + 0.06
    assert card["recorded_cpu_seconds_low"] - slack <= exact <= card["recorded_cpu_seconds_high"] + slack


def _hide_groups():
    """Leaves for a mount namespace where version 2 is not to be found: the totals are then those of wait4."""
    assert ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["umount", "-l", str(_V2)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["children", "make", "pipeline"])
def test_memory_lies_within_its_bounds(tmp_path, name):
    """Two that hold 200 MiB at the same time."""
    hold = "import time; held = bytearray(200 * 2**20); time.sleep(1.5); del held; time.sleep(0.5)"
    one = f"{sys.executable} -c '{hold}'"
    (tmp_path / "Makefile").write_text(f"all: a b\na b:\n\t{one}\n")
    words = {
        "children": ["sh", "-c", f"{one} & {one}; wait"],
        "make": ["make", "-s", "-j2", "-C", str(tmp_path)],
        "pipeline": ["sh", "-c", f"{one} | {one}"],
    }
    card, done = card_of(tmp_path, *words[name])
    assert done.returncode == 0
    low, high = card["memory_peak_low_bytes"], card["memory_peak_high_bytes"]
    assert low <= card["memory_peak_bytes"] <= high
    assert low <= 430 * 2**20
    assert high >= 400 * 2**20
    assert card["memory_peak_bytes"] == pytest.approx(410 * 2**20, rel=0.1)


@contextmanager
def _limited(words):
    """A command line that runs within limits of its own, which are there meanwhile."""
    groups = [_V1 / name / f"run-limits-{os.getpid()}" for name in ("memory", "cpu")]
    files = {"memory.limit_in_bytes": 256 << 20, "cpu.cfs_quota_us": 50_000}
    try:
        for group, (file, limit) in zip(groups, files.items(), strict=True):
            group.mkdir()
            (group / file).write_text(str(limit))
        enter = [f"echo $$ >{group}/cgroup.procs" for group in groups]
        yield ["sh", "-c", f"{'; '.join(enter)}; exec {shlex.join(map(str, words))}"]
    finally:
        for group in groups:
            wait_until(lambda group=group: not (group / "cgroup.procs").read_text(), 60, "an empty group")
            group.rmdir()


_HAS_V1 = pytest.mark.skipif(
    not all((_V1 / name).exists() for name in ("memory", "cpu")), reason="no control groups of version 1"
)


@_HAS_V1
def test_limits_of_the_groups_around_it_are_told(tmp_path):
    """The command waits until they are recorded, however slow the machine is."""
    record = tmp_path / "record"
    words = line("--archive", record, "--json", tmp_path / "card.json", "--", "sh", "-c", "read x")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        _limited(words) as limited,
        subprocess.Popen(limited, env=environment(tmp_path), **pipes) as process,
    ):
        wait_until(lambda: _has_command(record), SECONDS, "a sample with the command")
        _, said = process.communicate(b"\n", timeout=SECONDS)
    card = json.loads((tmp_path / "card.json").read_text())
    assert (card["memory_limit_bytes"], card["cores_available"]) == (256 << 20, 0.5)
    assert b" cores of 0.5 (" in said
    assert b", limit 256 MiB" in said


def _has_command(record):
    with suppress(VmsonarError):
        return bool(read_run(record).started)
    return False


_LATE = """
import os, socket, subprocess, sys
from pathlib import Path
from vmsonar.config.schema import interval
from vmsonar.daemon.command_recorder import CommandRecorder
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
command = subprocess.Popen(["true"])
os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
recorder = CommandRecorder(theirs, Path(sys.argv[1]), interval("1s"))
recorder._begin(b"running %d true" % command.pid)
print(recorder._row.memory_limit, recorder._row.cpu_quota)
recorder._session.close()
"""


@_HAS_V1
def test_limits_are_told_by_a_recorder_that_comes_after_the_end(tmp_path):
    """A process that has ended is in no group of version 1."""
    with _limited([sys.executable, "-c", _LATE, tmp_path / "record"]) as limited:
        done = subprocess.run(
            limited, env=environment(tmp_path), timeout=SECONDS, check=True, capture_output=True
        )
    assert done.stdout.split() == [b"%d" % (256 << 20), b"500000"]


def test_nothing_of_a_group_is_left(tmp_path):
    if _V2 is None:
        pytest.skip("no version 2 of control groups")
    card, done = card_of(tmp_path, "sh", "-c", "cat /proc/self/cgroup; (sleep 3 >/dev/null &)")
    assert card["cpu_source"] == "cgroup"
    assert card["waited_source"] == "cgroup"
    own = done.stdout.decode().rpartition("0::")[2].strip()
    assert "vmsonar-run-" in own
    assert not (_V2 / own.strip("/")).exists()


def test_several_at_once_leave_each_other_their_groups(tmp_path):
    if _V2 is None:
        pytest.skip("no version 2 of control groups")
    cards = [tmp_path / f"{number}.json" for number in range(6)]
    words = [line("--quiet", "--json", card, "--", "sh", "-c", "exit 4") for card in cards]
    started = [subprocess.Popen(each, env=environment(tmp_path)) for each in words]
    assert [each.wait(SECONDS) for each in started] == [4] * 6
    told = [json.loads(card.read_text()) for card in cards]
    # One whose recorder was late goes by wait4.
    assert {each["cpu_source"] for each in told} <= {"cgroup", "wait4"}
    assert all(each["cpu_seconds"] > 0 for each in told)


def test_others_of_the_shells_group_are_not_counted(tmp_path):
    """In a script the command shares its group with whatever the script started."""
    burn = [sys.executable, "-c", _BURN % 30]
    ours = line("--quiet", "--json", tmp_path / "card.json", "--", "sleep", "2")
    storm = "while :; do /bin/true; done"
    script = f"{shlex.join(burn)} & p=$!; ({storm}) & q=$!; {shlex.join(ours)}; kill $p $q"
    subprocess.run(["sh", "-c", script], env=environment(tmp_path), check=False, timeout=SECONDS)
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["cpu_seconds"] < 0.2
    assert card["recorded_cpu_seconds"] < 0.2
    assert [each["program"] for each in card["programs"]] == ["sleep"]
    assert (card["processes"], card["unnamed_processes"]) == (1, 0)


@pytest.mark.slow
def test_orphans_that_end_are_counted_whoever_waits_for_them(tmp_path):
    """By the record alone: they go to the first process, or to whoever above wants them."""
    orphans = f"""
import os, time
for number in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: exec({_BURN % 0.4!r})
        os._exit(0)
    os.wait()
time.sleep(6)
"""
    if _V2 is None or hierarchy() == _V2:
        pytest.skip("version 1 control groups are needed beside version 2")
    with _account(tmp_path) as group:
        enter = [
            "sh",
            "-c",
            f'echo $$ > {group}/cgroup.procs; exec "$@"',
            "sh",
            sys.executable,
            "-S",
            "-c",
            orphans,
        ]
        card, _ = card_of(tmp_path, *enter, preexec_fn=_hide_groups)
        exact = usage(group) / 1e9
    assert card["cpu_source"] == "record"
    assert card["cpu_seconds"] == pytest.approx(exact, rel=0.01, abs=0.03)


@pytest.mark.slow
def test_a_recorder_that_is_late_counts_what_was_before_it(tmp_path):
    """The command does not wait for ever; a group that it enters later would miss its first seconds."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif '--command' in sys.orig_argv: time.sleep(5)\n"
    )
    settings = environment(tmp_path)
    settings["PYTHONPATH"] = f"{tmp_path}:{settings['PYTHONPATH']}"
    burn = shlex.join([sys.executable, "-S", "-c", _BURN % 1])
    card, done = card_of(tmp_path, "sh", "-c", f"{burn}; sleep 4; exit 3", env=settings)
    assert (done.returncode, card["exit_code"], card["cpu_source"]) == (3, 3, "wait4")
    assert card["samples"] > 1
    assert card["cpu_seconds"] == pytest.approx(1.05, abs=0.2)
