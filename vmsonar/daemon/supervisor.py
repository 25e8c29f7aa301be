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
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from vmsonar.host.proc_pid import STATE, read_stat

#: The shell's codes for a command that is not there, and for one that may not be run.
NOT_FOUND, NOT_RUNNABLE = 127, 126
_ALL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# What the kernel sends to the whole group of a terminal; an alarm, or a hangup, it sends to one process.
_OF_TERMINALS = _STOPS | {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
# What may reach us while the command's end is told.
_LATE = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM}
_LATE |= {signal.SIGUSR1, signal.SIGUSR2}
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

    def finish(self, totals: dict[str, Any], ended: int) -> None:
        """Hands over the totals and when it ended (CLOCK_BOOTTIME), and waits until all is written."""
        import json

        self._say(json.dumps({**totals, "ended": ended}).encode())
        answer = self._hear(b"done", _FINISH)
        if answer is not None and answer != b"0":
            self.trouble = f"{answer.decode()} samples could not be written: is the disk full?"
        self.has_record = answer is not None or self._is_ready

    def abandon(self, trouble: str | None = None) -> None:
        """Ends it: there is nothing to record, or no room for it."""
        self.trouble, self._is_ready = trouble, False
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
        if self.trouble is None:
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


def _status(pid: int, name: str) -> str:
    """One field of /proc/PID/status."""
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name))


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
            pending = int(_status(self.pid, "ShdPnd"), 16)
        except (OSError, StopIteration):
            return False
        is_there = bool(pending >> (number - 1) & 1)
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
        self._began = self.ended = self.failure = self._own_peak = 0
        with suppress(OSError, StopIteration):  # getrusage(2) would tell the size of whoever started us, too
            self._own_peak = int(_status(os.getpid(), "VmHWM"))
        self.pid = self._start()

    def _start(self) -> int:
        """Starts it, but lets it begin only when the recorder knows it."""
        gate, opener = os.pipe2(os.O_CLOEXEC)
        failed, teller = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except BlockingIOError as error:  # a limit of processes: the recorder has the command's place
            self._recorder.abandon(f"no room for it beside the command: {error.strerror}")
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
            _execute(self._words, original_environment())
        except OSError as error:
            code = error.errno or code
        finally:
            os.write(teller, str(code).encode())
            os._exit(NOT_FOUND)

    def follow(self) -> None:
        """Waits until it has ended; it is then still a zombie."""
        probe = None
        with suppress(OSError):  # no room for one more process: what comes is then passed on
            probe = GroupProbe(self.pid)
        try:
            while not self._has_ended(probe):
                self._pass_on(signal.sigwaitinfo(_ALL), probe)
        finally:
            if probe is not None:
                probe.close()

    def _has_ended(self, probe: GroupProbe | None) -> bool:
        while True:
            how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            if how is None:
                return False
            if how.si_code != os.CLD_STOPPED:
                self.ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                return True
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            self._stop_like_it(how.si_status, probe)

    def _pass_on(self, came: signal.struct_siginfo, probe: GroupProbe | None) -> None:
        """Hands on what was sent to us alone; what the terminal or somebody sent to the group it has itself."""
        number, watcher = came.si_signo, probe.pid if probe else 0
        if number == signal.SIGCHLD:
            self._reap_orphans(watcher)
        if number == signal.SIGCHLD or (watcher and came.si_pid == watcher):
            return
        is_shared = (probe and probe.got(number)) or (came.si_code > 0 and number in _OF_TERMINALS)
        self._is_interrupted |= number == signal.SIGINT and is_shared
        if not is_shared:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _reap_orphans(self, watcher: int) -> None:
        """As the first process of a container we are given those that nobody else waits for."""
        while how := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if how.si_pid in (self.pid, watcher):
                return
            os.waitpid(how.si_pid, 0)

    def _stop_like_it(self, number: int, probe: GroupProbe | None) -> None:
        """Stops as the command has, so that the shell sees it."""
        if probe is not None:
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
        if probe is not None:
            probe.watch(False)

    def outcome(self) -> Outcome:
        """Waits for it."""
        _, status, used = os.wait4(self.pid, 0)
        by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if by_signal else os.WEXITSTATUS(status)
        totals = {
            "elapsed": self.ended - self._began,
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


def _execute(words: list[str], environment: dict[bytes, bytes]) -> NoReturn:
    """As execvp(3) and every shell do: what is no format of the kernel's is a script for sh."""
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve("/bin/sh", ["/bin/sh", os.fsdecode(error.filename), *words[1:]], environment)  # noqa: S606


def original_environment() -> dict[bytes, bytes]:
    """The environment that we were given: Python may have added LC_CTYPE to its own (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(line.split(b"=", 1) for line in lines if b"=" in line)


def supervise(words: list[str], recorder: Recorder, outputs: Iterable[Path] = ()) -> Outcome:
    """Runs a command to its end; raises FileNotFoundError or another OSError if it cannot be started.

    Outputs may be descriptors of ours, such as /dev/stdout or a shell's >(…), which are still needed then.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    command = Command(words, set(map(signal.Signals, mask)), recorder)
    _let_go_of_streams({_identity(path) for path in outputs})
    if command.failure:
        os.waitpid(command.pid, 0)
        raise OSError(command.failure, os.strerror(command.failure), words[0])
    command.follow()
    recorder.collect()
    outcome = command.outcome()
    recorder.finish(outcome.totals, command.ended)
    for number in _LATE:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: leave(outcome))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return outcome


def _identity(file: int | Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(file)
        return found.st_dev, found.st_ino
    return None


def _let_go_of_streams(needed: Container[tuple[int, int] | None]) -> None:
    """Whoever reads or writes the other end of a pipe must see when the command has closed its own."""
    with suppress(OSError):  # no /dev/null, or no descriptor: the command runs already
        nothing = os.open(os.devnull, os.O_RDWR)
        for name in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                if name not in (2, nothing) and os.get_inheritable(name) and _identity(name) not in needed:
                    os.dup2(nothing, name, inheritable=False)


def leave(outcome: Outcome) -> NoReturn:
    """Ends as the command did."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    if outcome.is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(outcome.exit_code)
