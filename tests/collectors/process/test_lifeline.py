"""The lifeline against the real kernel: bursts, storms, losses, and places where the kernel tells nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.collectors.process.storms import storm
from tests.parts import requires
from tests.real import stranger
from tests.real.wait import let_pass, wait_until
from vmsonar.collectors.base import Descent, Setup
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.collectors.process.collector import ProcessCollector
from vmsonar.collectors.process.lifeline import Lifeline
from vmsonar.collectors.process.lives import TICK, Interval, Life, all_deaths
from vmsonar.config.schema import Config

pytestmark = requires("connector")

#: What an ordinary machine's net.core.rmem_max allows.
USUAL_BUFFER = 212_992
FORKS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **words) {
    for (int left = atoi(words[1]); left > 0; left--) {
        pid_t child = fork();
        if (child == 0) {
            if (n > 2) execl("/bin/true", "true", (char *)0);
            _exit(0);
        }
        waitpid(child, 0, 0);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forks")
    (folder / "forks.c").write_text(FORKS)
    subprocess.run(["gcc", "-O1", "-o", folder / "forks", folder / "forks.c"], check=True)
    return folder / "forks"


@contextmanager
def listening(interval: float = 10.0, share: float = 0.5, buffer: int = USUAL_BUFFER) -> Iterator[Lifeline]:
    lifeline = Lifeline("/proc", interval, share, buffer)
    try:
        yield lifeline
    finally:
        lifeline.close()


def ended(interval: Interval) -> int:
    """How many ends it knows of."""
    return len(interval.ends) + sum(interval.counted.values())


@requires("gcc")
def test_a_burst_of_three_thousand_lives_is_heard_with_the_usual_buffer(forks: Path) -> None:
    """Amid others who fork, when the longest pause is in force; a very busy machine may need more tries."""
    with storm(20), listening() as lifeline:
        for _ in range(5):
            let_pass(1.5)
            lifeline.take()
            subprocess.run([forks, "3000", "exec"], check=True)
            interval = lifeline.take()
            if interval.is_whole:
                break
    assert interval.is_whole
    assert ended(interval) >= 3001


def test_who_ends_before_the_one_command_is_known_is_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lifeline listens from its first moment: it takes as many forks as there are on the machine meanwhile."""

    def while_others_work(*_: object) -> None:
        for _ in range(20):
            subprocess.run(["true"], check=True)
        let_pass(0.6)

    monkeypatch.setattr(Accounts, "__init__", while_others_work)
    collector = ProcessCollector(Setup(Config(), descent=Descent()))
    assert collector._lifeline is not None
    told = collector._lifeline.take()
    collector._lifeline.close()
    assert not told.counted
    assert not [death.life.pid for death in all_deaths(told) if death.life.is_member]


@requires("gcc")
def test_a_storm_costs_no_more_than_its_share_and_that_interval_is_marked(forks: Path) -> None:
    share = 0.01
    with listening(share=share) as lifeline:
        lifeline.take()
        begun, spent = time.monotonic(), time.process_time()
        with subprocess.Popen([forks, "60000"]) as storm:
            storm.wait()
        spent, lasted = time.process_time() - spent, time.monotonic() - begun
        interval = lifeline.take()
        assert not interval.is_whole
        # What may be spent at once, the share, and fivefold slack.
        assert spent < 5 * (0.1 + share * lasted)
        deadline = time.monotonic() + 60
        while not lifeline.take().is_whole:
            assert time.monotonic() < deadline, "it never listened again"
            time.sleep(0.5)


@requires("gcc")
def test_events_that_nobody_fetched_in_time_are_a_loss_that_is_said(forks: Path) -> None:
    with listening(buffer=4096) as lifeline:
        lifeline.take()
        with lifeline.lock:  # nobody fetches
            subprocess.run([forks, "500"], check=True)
        assert not lifeline.take().is_whole
        assert lifeline.take().is_whole


def test_a_group_that_lived_between_two_samples_is_described_by_a_glance() -> None:
    with listening() as lifeline:
        lifeline.take()
        subprocess.run(["sleep", "1.5"], process_group=0, check=True)
        interval = lifeline.take()
    deaths = [death for reading in interval.readings for death in reading.deaths] + interval.deaths
    (death,) = [death for death in deaths if death.life.name == b"sleep" and death.life.look is not None]
    assert death.life.look is not None
    assert death.life.look.cmdline == b"sleep\x001.5\x00"
    assert death.life.look.uid == os.geteuid()
    assert death.life.pgid == death.life.pid
    assert death.reaper == os.getpid()
    assert death.ended - death.life.born == pytest.approx(1.5e9, rel=0.2)


def test_what_ends_below_one_that_no_sample_saw_is_told_with_the_sample_that_does() -> None:
    """Else its parent's time would be divided without the children that it is of."""
    with listening() as lifeline:
        lifeline.take()
        parent = subprocess.Popen(["sh", "-c", "setsid sleep 1.3; cat"], stdin=subprocess.PIPE)
        wait_until(lambda: children_of(parent.pid) == [b"cat"], 20, "the last program")
        first, second = lifeline.take(), lifeline.take()
        parent.communicate()
    below = [
        [one.pid for one in interval.readings if one.pid == parent.pid]
        + [death.reaper for death in interval.deaths if death.reaper == parent.pid]
        for interval in (first, second)
    ]
    assert below == [[], [parent.pid]]


def test_what_ended_below_a_zombie_that_no_sample_saw_is_told_when_the_zombie_is() -> None:
    """Else the time of the child is its own job's in one sample, and its parent's in the next."""
    with listening() as lifeline:
        lifeline.take()
        parent = subprocess.Popen(["sh", "-c", "setsid sleep 1.3; exit 0"], process_group=0)
        stat = Path(f"/proc/{parent.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("Z"), 20, "the end of the parent")
        first = lifeline.take()
        parent.wait()
        second = lifeline.take()
    deaths = [all_deaths(interval) for interval in (first, second)]
    assert [sum(one.life.pid == parent.pid for one in some) for some in deaths] == [0, 1]
    assert [sum(one.reaper == parent.pid for one in some) for some in deaths] == [0, 1]


def test_a_birth_that_a_busy_machine_tells_late_is_of_the_process_that_a_sample_shows() -> None:
    life = Life(20, 100 * TICK, 10, 20)
    assert [life.may_be(start) for start in (-30, 50, 100, 103)] == [False, True, True, False]


def children_of(pid: int) -> list[bytes]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/comm").read_bytes().strip() for child in children]


def test_switched_off_it_hears_nothing_and_says_why() -> None:
    with listening(share=0.0) as lifeline:
        assert not lifeline.take().is_whole
        assert lifeline.trouble is not None
        assert "lifeline.connector" in lifeline.trouble


_TRY = """
from vmsonar.collectors.process.lifeline import Lifeline
import subprocess, sys
one = Lifeline("/proc", 1.0)
one.take()
subprocess.run(["true"])
told = one.take()
print(one.trouble, told.is_whole, len(told.ends) + sum(told.counted.values()) > 0)
one.close()
"""


@requires("root")
@pytest.mark.parametrize("where", [["unshare", "--pid", "--fork"], ["unshare", "--net"]], ids=["pid", "net"])
def test_in_another_namespace_the_kernel_tells_nothing_and_that_is_said(where: list[str]) -> None:
    done = subprocess.run(
        [*where, sys.executable, "-c", _TRY], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("the kernel does not tell births and deaths here")
    assert done.stdout.endswith("False False\n")


@requires("stranger")
def test_an_ordinary_user_hears_everybody() -> None:
    found = stranger.python()
    assert found is not None
    done = subprocess.run(
        [found[0], "-P", "-c", _TRY], env=found[1], user=stranger.STRANGER, group=stranger.STRANGER,
        extra_groups=(), cwd="/", capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "None True True\n"
