import contextlib
import io
import os
import socket

import pytest

from tests.daemon.fakes import FakeClock
from tests.real.wait import let_pass
from vmsonar.daemon.log import Log
from vmsonar.daemon.notify import Notifier, Watchdog, watchdog_seconds
from vmsonar.host.clock import Clock


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    name = str(tmp_path / "notify") if request.param == "path" else f"@vmsonar-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(5)
        yield name, listener


def drain(listener):
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.recv(200)


def test_what_the_manager_hears(manager):
    name, listener = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready()
    notifier.status("7 samples")
    notifier.status("7 samples")
    notifier.reloading(5_000_000)
    notifier.stopping()
    notifier.close()
    heard = [listener.recv(200).decode() for _ in range(4)]
    assert heard == ["READY=1", "STATUS=7 samples", "RELOADING=1\nMONOTONIC_USEC=5000", "STOPPING=1"]


def test_no_manager_and_one_that_has_gone():
    Notifier({}).ready()
    deaf = Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"})
    deaf.ready()
    deaf.close()


def test_the_watchdog_speaks_from_its_own_thread(manager):
    name, listener = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    watchdog = Watchdog(notifier, Clock(), 0.06)
    assert listener.recv(200) == b"WATCHDOG=1"
    watchdog.collecting()
    let_pass(0.3)
    listener.setblocking(False)
    drain(listener)
    let_pass(0.1)
    with pytest.raises(BlockingIOError):
        listener.recv(200)
    listener.settimeout(5)
    watchdog.resting()
    assert listener.recv(200) == b"WATCHDOG=1", "a slow disk is no reason to be killed"
    watchdog.close()
    notifier.close()


def test_patience_is_for_collecting_alone():
    clock = FakeClock()
    watchdog = Watchdog(Notifier({}), clock, None)
    watchdog._seconds = 10.0
    watchdog.collecting()
    clock.move(9 * 10**9)
    assert watchdog.alive
    clock.move(2 * 10**9)
    assert not watchdog.alive
    watchdog.resting()
    assert watchdog.alive


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_whether_the_manager_wants_to_hear(environment, seconds):
    assert watchdog_seconds(environment) == seconds


def test_log_lines(tmp_path):
    terminal = io.StringIO()
    Log("info", terminal, {"JOURNAL_STREAM": "8:1"}).info("hello")
    assert terminal.getvalue().endswith("Z vmsonar: info: hello\n"), "the variable alone is inherited"
    Log("warning", terminal, {}).info("not important enough")
    assert terminal.getvalue().count("\n") == 1
    terminal.close()
    Log("info", terminal, {}).info("nobody listens")


def test_log_lines_for_the_journal(tmp_path):
    path = tmp_path / "journal"
    with path.open("w") as journal:
        status = os.fstat(journal.fileno())
        log = Log("warning", journal, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        log.error("two\nlines")
    assert path.read_text() == "<3>two lines\n"
