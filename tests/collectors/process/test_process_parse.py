"""Parsing what stands below /proc/PID, names that were made to confuse included."""

import msgspec
import pytest
from vmsonar_archive.records import ProcessRow

from tests.collectors.process.kernel_text import IO, TAIL
from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.machine_memory import MachineMemory
from vmsonar.collectors.process.model import Process
from vmsonar.collectors.process.reader import CHANGED, GONE, SAME, ProcessReader
from vmsonar.host.proc_pid import (
    Io,
    ignores_children,
    parse_io,
    parse_sizes,
    shared_and_data_pages,
    split_stat,
)


@pytest.mark.parametrize(
    "name",
    [b"cat", b"Web Content", b"a) S 1 1", b"(sd-pam)", b"))) R 0 (", b"two\nlines", b"", b"\xff\xfe", b" "],
)
def test_a_name_cannot_shift_the_fields(name: bytes) -> None:
    comm, fields = split_stat(b"4711 (%b) %b" % (name, TAIL))
    assert comm == name
    assert fields[:3] == [b"S", b"7", b"8"]
    assert fields[19:22] == [b"122072", b"3133440", b"355"]


def test_a_line_that_ends_early_is_refused() -> None:
    with pytest.raises(ValueError, match="stat ends early"):
        split_stat(b"4711 (cat) S 7 8 9")


def test_io_and_statm() -> None:
    assert parse_io(IO) == Io(b"7312", b"336", b"40960", b"8192", b"4096")
    assert parse_io(b"") is None
    assert shared_and_data_pages(b"765 400 371 5 0 123 0\n") == (371, 123)


def test_who_ignores_sigchld() -> None:
    assert ignores_children(b"Name:\tx\nSigIgn:\t0000000000010000\nSigCgt:\t0\n")
    assert not ignores_children(b"Name:\tSigIgn:\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000010000\n")
    assert not ignores_children(b"")


STATUS = b"""Name:\tcat
VmPin:\t       0 kB
VmHWM:\t    1728 kB
VmRSS:\t    1420 kB
RssAnon:\t     220 kB
RssFile:\t    1100 kB
RssShmem:\t     100 kB
VmData:\t     360 kB
HugetlbPages:\t    2048 kB
"""


def test_sizes_stand_in_status() -> None:
    assert parse_sizes(STATUS) == (1728 << 10, 1100 << 10, 100 << 10, 2 << 20, 220 << 10)
    without_pool = STATUS.replace(b"HugetlbPages", b"Something")
    assert parse_sizes(without_pool) == (1728 << 10, 1100 << 10, 100 << 10, 0, 220 << 10)
    assert parse_sizes(b"Name:\tkthreadd\nThreads:\t1\n") is None


class Fixed(ProcessFiles):
    """Files with fixed content."""

    def __init__(self, io_text: bytes | None) -> None:
        super().__init__("/nowhere", 0)
        self.io_text = io_text

    def statm(self, process: Process) -> bytes:
        return b"765 355 300 5 0 123 0\n"

    def status(self, process: Process) -> bytes:
        return STATUS

    def io(self, process: Process) -> bytes | None:
        return self.io_text


def process_of(line: bytes, io_text: bytes | None = IO) -> tuple[ProcessReader, Process]:
    reader = ProcessReader(Fixed(io_text), MachineMemory("/nowhere"), 4096, has_clocks=False)
    process = Process("4711")
    process.start_ticks = 122072
    assert reader.take(process, line, ran=True) == CHANGED
    return reader, process


def test_the_row_is_written_as_the_record_would_be() -> None:
    _, process = process_of(b"4711 (cat) " + TAIL)
    expected = ProcessRow(
        pid=4711,
        start_ticks=122072,
        pgid=8,
        ppid=7,
        state="S",
        threads=5,
        user_ticks=55,
        system_ticks=66,
        child_user_ticks=77,
        child_system_ticks=88,
        minor_faults=101,
        major_faults=3,
        virtual=3133440,
        resident=355 * 4096,
        shared=300 * 4096,
        data_stack=123 * 4096,
        read_bytes=40960,
        write_bytes=8192,
        cancelled_bytes=4096,
        read_chars=7312,
        write_chars=336,
        resident_peak=1728 * 1024,
    )
    assert process.row == msgspec.json.encode(expected)


def test_io_that_we_may_not_read_is_absent() -> None:
    _, process = process_of(b"4711 (cat) " + TAIL, io_text=None)
    row = msgspec.json.decode(process.row, type=ProcessRow)
    assert (row.read_bytes, row.write_bytes, row.read_chars) == (None, None, None)
    assert process.moved is None


def test_a_move_to_another_cpu_is_no_change_and_another_start_is_another_process() -> None:
    line = b"4711 (cat) " + TAIL
    reader, process = process_of(line)
    row = process.row
    assert reader.take(process, line.replace(b" 17 0 0 ", b" 17 1 0 "), ran=True) == SAME
    assert process.row is row
    assert reader.take(process, line.replace(b" 355 ", b" 356 "), ran=True) == CHANGED
    assert process.resident == 356 * 4096
    assert reader.take(process, line.replace(b"122072", b"122073"), ran=True) == GONE
