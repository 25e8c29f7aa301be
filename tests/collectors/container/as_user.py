"""Work done as another user, in a child: the interpreter itself may lie where that user cannot go."""

import os
import secrets
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """A user that exists for one test."""

    name: str
    uid: int
    gid: int
    home: Path


@contextmanager
def accounts(count: int) -> Iterator[list[Account]]:
    """Fresh users with homes that only they can enter; removed at the end."""
    names = [f"vms{secrets.token_hex(3)}" for _ in range(count)]
    try:
        for name in names:
            subprocess.run(
                ["useradd", "--create-home", "--skel", "/nonexistent", name], check=True, capture_output=True
            )
            os.chmod(f"/home/{name}", 0o700)
        yield [_account(name) for name in names]
    finally:
        for name in names:
            subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)


def _account(name: str) -> Account:
    for line in Path("/etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return Account(name, int(fields[2]), int(fields[3]), Path(fields[5]))
    raise LookupError(name)


def run_as(account: Account, groups: Sequence[int], work: Callable[[], bytes], seconds: int = 120) -> bytes:
    """What the work returns; it is done by a child that has given up everything else."""
    read_end, write_end = os.pipe()
    pid = _fork(account, groups, lambda: _answer(write_end, work), seconds)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child failed: see its traceback above"
    return text


@contextmanager
def running_as(account: Account, groups: Sequence[int], work: Callable[[], object]) -> Iterator[int]:
    """The work goes on in a child until the end of the block."""
    pid = _fork(account, groups, work, seconds=300)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def _answer(write_end: int, work: Callable[[], bytes]) -> None:
    with os.fdopen(write_end, "wb") as answer:
        answer.write(work())


def _fork(account: Account, groups: Sequence[int], work: Callable[[], object], seconds: int) -> int:
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        signal.alarm(seconds)  # a child that hangs must not outlive the test
        os.setgroups(list(groups))
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
        work()
        code = 0
    except SystemExit:
        pass  # how a companion leaves
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
