import resource
import subprocess
import sys

import pytest

from vmsonar.daemon.session import child_cpu_time

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True)\ninput()"


def ended():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e9


def test_a_child_counts_once_while_it_runs_and_after_it_ended():
    before = child_cpu_time([])
    child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    running = child_cpu_time([child.pid]) - before
    child.communicate(b"\n")
    after = child_cpu_time([child.pid]) - before
    assert running >= 0.3e9
    assert after == pytest.approx(running, rel=0.3)
    assert child_cpu_time([]) == pytest.approx(ended(), rel=1e-6)


def test_what_somebody_else_started_is_not_ours():
    assert child_cpu_time([1]) == child_cpu_time([])
    assert child_cpu_time([2**22 + 1]) == child_cpu_time([])
