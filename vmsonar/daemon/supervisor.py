"""Runs one command as if we were not there: same group, terminal, descriptors, environment, signals (signal(7)).

Imports next to nothing: it waits as long as the command runs. A recorder beside it is told when the command begins
and ends, and whatever happens to the recorder, the command does not notice.
"""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, NoReturn

from vmsonar.host.proc_pid import STATE, read_stat

#: The shell's codes for a command that is not there, and for one that may not be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
_ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_PACKET = 1 << 16
_PROC = Path("/proc")
# Seconds: until the recorder is ready, until it has read all of a command that ended, until all is on disk.
_READY, _COLLECT, _FINISH = 3.0, 10.0, 15.0
# One call of kill(2) reaches a whole group within microseconds.
_SETTLED = 0.003
_LOOK_EVERY = 0.1
# What the probe is asked for beside the number of a signal.
_REST, _WATCH = 0, 255


@dataclass
class Outcome:
    """How the command ended, and what the kernel says it used, by the fields of the record."""

    exit_code: int
    #: SIGINT ended it and reached us too: the shell that waits for us must see us end by it.
    is_interrupted: bool = False
    totals: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """The other end of the recorder's socket; whatever fails there is kept as `trouble` and harms nobody."""

    def __init__(self) -> None:
        #: Why there is no record, or not all of it.
        self.trouble: str | None = None
        self.has_record = self._is_ready = False
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, line: list[str]) -> None:
        """Starts it in a session of its own, so that no terminal reaches it, and with nothing of ours held open."""
        with self._theirs:
            channel = fcntl.fcntl(self._theirs, fcntl.F_DUPFD_CLOEXEC, 3)  # our own streams may be closed
        self._process = subprocess.Popen(
            [*line, str(channel)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=[channel],
            start_new_session=True,
        )
        os.close(channel)

    def wait_ready(self) -> None:
        """Waits for it to be ready, but not for long: it may come to a command that runs already."""
        self._is_ready = self._hear(b"ready", _READY, is_due=False) is not None

    def begin(self, pid: int, words: list[str]) -> None:
        """Names the command before it begins; a recorder that is late will find it running."""
        line = b"\0".join(os.fsencode(word) for word in words)
        self._say(b"%s %d %s" % (b"command" if self._is_ready else b"running", pid, line[: _PACKET - 64]))
        if self._is_ready:
            self._hear(b"go", _COLLECT, is_due=False)

    def collect(self) -> None:
        """Lets it read what the zombie still tells."""
        self._say(b"ended")
        self._hear(b"collected", _COLLECT)

    def finish(self, totals: dict[str, Any]) -> None:
        """Hands over the totals, and waits until all is written."""
        import json

        self._say(json.dumps(totals).encode())
        answer = self._hear(b"done", _FINISH)
        if answer is not None and answer != b"0":
            self.trouble = f"{answer.decode()} samples could not be written: is the disk full?"
        self.has_record = answer is not None or self._is_ready

    def abandon(self) -> None:
        """Ends it: there is nothing to record."""
        self._channel.close()
        if self._process is not None:
            self._process.wait()

    def _say(self, packet: bytes) -> None:
        if self.trouble is None:
            try:
                self._channel.send(packet)
            except OSError:
                self.trouble = "the recorder ended early"

    def _hear(self, word: bytes, seconds: float, is_due: bool = True) -> bytes | None:
        """What follows a word, which must come in time if it is due; earlier words may have been late."""
        said, rest = b"nothing", b""
        self._channel.settimeout(seconds)
        while self.trouble is None and said != word:
            try:
                said, _, rest = self._channel.recv(_PACKET).partition(b" ")
            except TimeoutError:
                self.trouble = f"the recorder did not answer within {seconds:g} s" if is_due else None
                return None
            except OSError:
                said = b""
            if said in (b"", b"failed"):
                self.trouble = rest.decode(errors="replace") if said else "the recorder ended early"
        return rest if self.trouble is None else None


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


class GroupProbe:
    """A process in our group that takes no signal: what is pending there was sent to the group, not to us alone."""

    def __init__(self, child: int) -> None:
        self._ours, theirs = socket.socketpair()
        front = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _close_all_but({theirs.fileno()})
                _watch_group(theirs, child, front)
            finally:
                os._exit(0)
        theirs.close()

    def got(self, number: int) -> bool:
        """Whether a signal that came to us came to the whole group."""
        time.sleep(_SETTLED)
        try:
            with open(f"/proc/{self.pid}/status") as file:
                pending = next(line for line in file if line.startswith("ShdPnd"))
        except (OSError, StopIteration):
            return False
        is_there = bool(int(pending.split()[1], 16) >> (number - 1) & 1)
        if is_there:
            signal.sigtimedwait({number}, 0)  # another one to the group, which is pending there only once
            self._ask(number)
        return is_there

    def watch(self, on: bool) -> None:
        """While we are stopped it looks whether the command goes on, and wakes us."""
        self._ask(_WATCH if on else _REST)

    def close(self) -> None:
        self._ours.close()
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _ask(self, what: int) -> None:
        """Lets it take one signal that is pending there, by its number, or watch, or rest."""
        with suppress(OSError):
            self._ours.send(bytes((what,)))
            self._ours.recv(1)


def _watch_group(asked: socket.socket, child: int, front: int) -> None:
    """The probe's life: it ends with us."""
    while True:
        try:
            what = asked.recv(1)
        except TimeoutError:
            if (read_stat(_PROC, child) or [b""])[STATE] != b"T":
                os.kill(front, signal.SIGCONT)
            continue
        if not what:
            return
        asked.settimeout(_LOOK_EVERY if what[0] == _WATCH else None)
        if what[0] in _ALL:
            signal.sigtimedwait(what, 0)
        asked.send(b".")


class Command:
    """One command: started, followed, waited for."""

    def __init__(self, words: list[str], mask: set[signal.Signals], recorder: Recorder) -> None:
        self._words = words
        self._mask = mask
        self._recorder = recorder
        self._is_interrupted = False
        self._began = self._ended = self.failure = 0
        self._own_peak = getrusage(RUSAGE_SELF).ru_maxrss
        self.pid = self._start()

    def _start(self) -> int:
        """Starts it, but lets it begin only when the recorder knows it."""
        gate, opener = os.pipe2(os.O_CLOEXEC)
        failed, teller = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            self._become_command(gate, teller)
        os.close(gate)
        os.close(teller)
        self._recorder.begin(pid, self._words)
        self._began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.write(opener, b".")
        os.close(opener)
        self.failure = int(os.read(failed, 16) or b"0")
        os.close(failed)
        return pid

    def _become_command(self, gate: int, teller: int) -> NoReturn:
        code = errno.ENOENT  # of an empty name, for example
        try:
            if not os.read(gate, 1):
                os._exit(0)  # we ended before it began
            # Python ignores these two; whoever starts a program does not.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if _IGNORES_CHILDREN:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            os.execvpe(self._words[0], self._words, original_environment())  # noqa: S606
        except OSError as error:
            code = error.errno or code
        finally:
            os.write(teller, str(code).encode())
            os._exit(NOT_FOUND)

    def follow(self) -> None:
        """Waits until it has ended; it is then still a zombie."""
        probe = GroupProbe(self.pid)
        try:
            while not self._has_ended(probe):
                self._pass_on(signal.sigwaitinfo(_ALL), probe)
        finally:
            probe.close()

    def _has_ended(self, probe: GroupProbe) -> bool:
        while True:
            how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            if how is None:
                return False
            if how.si_code != os.CLD_STOPPED:
                self._ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                return True
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            self._stop_like_it(how.si_status, probe)

    def _pass_on(self, came: signal.struct_siginfo, probe: GroupProbe) -> None:
        """Hands on what was sent to us alone; what the terminal or somebody sent to the group it has itself."""
        number = came.si_signo
        if number == signal.SIGCHLD or came.si_pid == probe.pid:
            return
        is_shared = probe.got(number) or came.si_code > 0
        self._is_interrupted |= number == signal.SIGINT and is_shared
        if not is_shared:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _stop_like_it(self, number: int, probe: GroupProbe) -> None:
        """Stops as the command has, so that the shell sees it."""
        probe.watch(True)
        while signal.sigtimedwait(_STOPS, 0) is not None:
            pass
        if number in _STOPS and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        probe.watch(False)

    def outcome(self) -> Outcome:
        """Waits for it."""
        _, status, used = os.wait4(self.pid, 0)
        by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if by_signal else os.WEXITSTATUS(status)
        totals = {
            "elapsed": self._ended - self._began,
            "exit_code": code,
            "exit_signal": by_signal,
            "core_dumped": os.WCOREDUMP(status) or None,
            "user_time": round(used.ru_utime * 1e9),
            "system_time": round(used.ru_stime * 1e9),
            # Until it became the command the process was a copy of ours, and is remembered with our size.
            "resident_peak": used.ru_maxrss * 1024 if used.ru_maxrss > self._own_peak else None,
        }
        ended = self._is_interrupted and by_signal == signal.SIGINT
        return Outcome(code if code is not None else 128 + (by_signal or 0), ended, totals)


_IGNORES_CHILDREN = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN


def original_environment() -> dict[bytes, bytes]:
    """The environment that we were given: Python may have added LC_CTYPE to its own (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(line.split(b"=", 1) for line in lines if b"=" in line)


def supervise(words: list[str], recorder: Recorder) -> Outcome:
    """Runs a command to its end; raises FileNotFoundError or another OSError if it cannot be started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    command = Command(words, set(map(signal.Signals, mask)), recorder)
    _let_go_of_streams()
    if command.failure:
        os.waitpid(command.pid, 0)
        raise OSError(command.failure, os.strerror(command.failure), words[0])
    command.follow()
    recorder.collect()
    outcome = command.outcome()
    recorder.finish(outcome.totals)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return outcome


def _let_go_of_streams() -> None:
    """Whoever reads or writes the other end of a pipe must see when the command has closed its own."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if name not in (2, nothing) and os.get_inheritable(name):
                os.dup2(nothing, name, inheritable=False)


def leave(outcome: Outcome) -> NoReturn:
    """Ends as the command did."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    if outcome.is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(outcome.exit_code)
