"""Bytes moved by jobs against what the kernel tells the workers themselves (/proc/self/io)."""

import os
import traceback
from pathlib import Path

import msgspec
import pytest

from tests.collectors.process import work
from tests.collectors.process.recorder import Recorder, assert_never_decreases, recording
from tests.parts import requires

# A child writes, is seen, writes on and ends between two samples; its parent's counters then hold the child's too.
_WRITE = """
import os, sys
path, said = sys.argv[1:3]
def write(name, megabytes):
    with open(os.path.join(path, name), "wb") as file:
        file.write(os.urandom(megabytes << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
def read(name):
    with open(os.path.join(path, name), "rb") as file: file.read()
def step(): sys.stdout.write("x"); sys.stdout.flush(); sys.stdin.readline()
pid = os.fork()
if pid == 0:
    write("one", 24); step(); write("two", 12); read("one"); os._exit(0)
os.waitpid(pid, 0)
write("three", 8)
open(said, "w").write(open("/proc/self/io").read())
step()
"""


def told(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split(": ") for line in path.read_text().splitlines())}


@pytest.mark.parametrize("descriptors", [None, 0])
def test_a_job_has_the_bytes_that_its_members_moved(tmp_path: Path, descriptors: int | None) -> None:
    script, said = tmp_path / "write.py", tmp_path / "io"
    script.write_text(_WRITE)
    code = (
        f"import sys; sys.argv = ['x', {str(tmp_path)!r}, {str(said)!r}]; exec(open({str(script)!r}).read())"
    )
    with recording(descriptors=descriptors) as recorder, work.spawn(code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.read(1) == b"x"
            recorder.sample()
            process.stdin.write(b"\n")
            process.stdin.flush()
        process.wait()
        recorder.sample()
        rows = recorder.job_rows(process.pid)
    truth = told(said)
    if truth["write_bytes"] == 0:
        pytest.skip("the file system of the temporary folder is not on a disk")
    assert_never_decreases(rows)
    assert rows[0].write_bytes == pytest.approx(24 << 20, rel=0.05)
    assert rows[-1].write_bytes == pytest.approx(truth["write_bytes"], rel=0.01)
    assert rows[-1].read_bytes == pytest.approx(truth["read_bytes"], rel=0.01, abs=1 << 16)


def as_nobody(path: Path) -> None:
    """In a child of its own: drops to a user who may read nobody's I/O, samples, writes the sample down."""
    Recorder().sample(fresh=True)  # what is imported late must be there before the rights go
    written = path.open("wb", buffering=0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            recorder = Recorder()
            recorder.sample()
            written.write(msgspec.json.encode(recorder.sample(fresh=True)))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    written.close()
    assert os.waitpid(pid, 0)[1] == 0


@requires("root")
def test_bytes_that_we_may_not_read_are_null_and_never_anothers(tmp_path: Path) -> None:
    from vmsonar_archive.records import Sample

    written = tmp_path / "sample"
    as_nobody(written)
    sample = msgspec.json.decode(written.read_bytes(), type=Sample)
    users = {info.pid: info.user_id for info in sample.process_info}
    others = [row for row in sample.process if users[row.pid] != 65534]
    assert len(others) > 3
    assert all(row.read_bytes is None and row.write_chars is None for row in others)
    jobs = {row.pgid: row for row in sample.job}
    own = jobs[os.getpgid(0)]
    assert own.read_bytes is None
    assert own.io_partial is True
