"""Records of all versions of taskstats taken apart, and threads added up, without a kernel."""

import struct

import pytest

from vmsonar.companion.taskstats import FORKED, LAST, SIGNALLED, Ending, Layout, Task
from vmsonar.companion.thread_groups import Moment, ThreadGroups, cpu_of

MS = 1_000_000
TICK = 4 * MS
NOW = Moment(after=90_000 * MS, until=90_050 * MS, offset=0, awake_since=0)
# Each version's length, and whether it names the group.
VERSIONS = {
    8: (328, False),
    9: (344, False),
    10: (352, False),
    11: (368, False),
    12: (400, True),
    16: (560, True),
}


def record(size: int, more: int = 0) -> bytes:
    """The struct as linux/taskstats.h has it; `more` figures in each delay, as in version 15."""

    def delay(*figures: int) -> bytes:
        return struct.pack("=2Q", *figures) + bytes(8 * more)

    head = struct.pack("=HxxIBB6x", 8, 7 << 8, FORKED | LAST, 0)
    head += delay(3, 11) + delay(0, 0) + delay(0, 0) + struct.pack("=QQ", 5_000_000, 5_100_000)
    basic = struct.pack("=32sB7xIIIIIxxxx", b"name", 0, 1000, 100, 4711, 4000, 1_700_000_000)
    basic += struct.pack("=5Q", 80_000, 3_000, 2_000, 21, 1)
    extended = struct.pack("=8Q", 0, 0, 512, 0, 4096, 8192, 1, 1)
    extended += struct.pack("=8Q", 40, 50, 60, 2, 3, 0, 0, 0)
    tail = delay(0, 0) + delay(0, 0) + struct.pack("=Q", 1_700_000_000) + delay(0, 0)
    tail += struct.pack("=IxxxxQ", 4710, 90_000) + bytes(400)
    return (head + basic + extended + tail)[: size + 48 * more]


def message(stats: bytes, group: bytes = b"", pad: bytes = b"") -> bytes:
    def nest(kind: int, number: int, body: bytes) -> bytes:
        inner = struct.pack("=HHI", 8, 1, number) + pad + struct.pack("=HH", 4 + len(body), 3) + body
        return struct.pack("=HH", 4 + len(inner), kind) + inner

    body = nest(4, 4711, stats) + (nest(5, 4710, group) if group else b"")
    return struct.pack("=IHHIIBBH", 20 + len(body), 31, 0, 0, 0, 2, 1, 0) + body


def read(text: bytes, more: int = 0) -> Ending | None:
    return Layout(more).read(bytearray(text) + bytes(8192), len(text))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read_by_its_length(version):
    size, names_group = VERSIONS[version]
    found = read(message(record(size)))
    assert found is not None
    task = found.task
    assert (task.exit_code, task.flags, task.waited, task.ran) == (7 << 8, FORKED | LAST, 11, 5_100_000)
    assert (task.name.rstrip(b"\0"), task.uid, task.pid, task.ppid) == (b"name", 1000, 4711, 4000)
    assert (task.elapsed_us, task.user_us, task.system_us) == (80_000, 3_000, 2_000)
    assert (task.minor_faults, task.major_faults, task.peak_kib) == (21, 1, 512)
    assert (task.read_chars, task.write_chars, task.read_bytes, task.write_bytes) == (4096, 8192, 40, 50)
    assert (task.cancelled_write_bytes, task.sleeps, task.preemptions) == (60, 2, 3)
    assert (found.tgid, found.group_elapsed_us) == ((4710, 90_000) if names_group else (None, None))
    assert found.group_ran is None


@pytest.mark.parametrize("more", [1, 2])
def test_the_form_of_version_15_has_more_figures_between(more):
    text = message(record(400, more))
    found = read(text, more)
    assert found is not None
    assert (found.task.peak_kib, found.tgid, found.group_elapsed_us) == (512, 4710, 90_000)
    assert read(text) is None, "the other form does not fit, and that is noticed"


def test_the_last_of_a_group_brings_the_sums_of_the_group():
    for pad in (b"", struct.pack("=HH", 4, 6)):
        found = read(message(record(400), record(400), pad))
        assert found is not None
        assert (found.tgid, found.group_ran) == (4710, 5_100_000)


def test_nonsense_is_no_record():
    whole = message(record(400))
    for size in (0, 16, 20, 30, 40, 100):
        assert Layout().read(whole[:size], size) is None


def task(pid: int = 10, **changes: object) -> Task:
    usual = Task(
        0, 0, 0, 50 * MS, b"name\0", 1000, pid, 1, 80_000, 30_000, 20_000, 5, 1, 512, 0, 0, 7, 8, 0, 0, 0
    )
    return usual._replace(**changes)


def thread(pid: int, group_elapsed_us: int, group_ran: int | None = None, **changes: object) -> Ending:
    return Ending(task(pid, **changes), 10, group_elapsed_us, group_ran)


def test_cpu_time_is_bounded_by_life_and_by_a_tick():
    assert cpu_of(task(ran=50 * MS, elapsed_us=52_000), TICK) == (50 * MS, 52 * MS, 52 * MS)
    assert cpu_of(task(ran=50 * MS, elapsed_us=80_000), TICK) == (50 * MS, 54 * MS, 54 * MS)
    assert cpu_of(task(ran=50 * MS, elapsed_us=53_000, waited=2 * MS), TICK).high == 51 * MS
    assert cpu_of(task(ran=0, elapsed_us=700), TICK) == (0, 700_000, 700_000)
    # One that sleeps often ran for a short while since; one that slept once perhaps for a tick.
    assert cpu_of(task(sleeps=1), TICK) == (50 * MS, 54 * MS, 52 * MS)
    assert cpu_of(task(sleeps=103), TICK) == (50 * MS, 54 * MS, 50 * MS + 250_000)


def test_threads_of_a_group_are_one_account():
    groups = ThreadGroups(TICK, listening_since=0)
    assert groups.add(thread(11, 60_000), NOW) is None
    assert groups.add(thread(12, 70_000, flags=SIGNALLED), NOW) is None
    row = groups.add(thread(10, 80_000, 160 * MS, flags=LAST, exit_code=9 << 8, name=b"main\0"), NOW)
    assert row is not None
    assert (row.pid, row.name, row.threads, row.exit_status) == (10, "main", 3, 9 << 8)
    assert (row.cpu_low_ns, row.cpu_high_ns) == (160 * MS, 172 * MS)
    assert row.user_ns + row.system_ns == 172 * MS
    assert (row.minor_faults, row.read_bytes, row.write_bytes) == (15, 21, 24)
    assert row.is_whole


def test_what_began_before_we_listened_or_lost_is_not_whole():
    groups = ThreadGroups(TICK, listening_since=NOW.after - 70 * MS)
    row = groups.add(thread(10, 80_000, 60 * MS, flags=LAST), NOW)
    assert row is not None
    assert (row.is_whole, row.cpu_high_ns, row.cpu_low_ns) == (False, None, 60 * MS)
    groups.lose(NOW.until)
    single = groups.add(Ending(task(flags=LAST), 10, 80_000, None), NOW)
    assert single is not None
    assert single.is_whole, "one record is all there ever was of it"


def test_a_number_that_is_used_again_begins_anew():
    groups = ThreadGroups(TICK, listening_since=0)
    groups.add(thread(11, 60_000_000), NOW)
    row = groups.add(thread(10, 80_000, 60 * MS, flags=LAST), NOW)
    assert row is not None
    assert (row.threads, row.read_bytes) == (1, 7)


def test_sums_are_bounded_and_what_was_forgotten_is_known():
    groups = ThreadGroups(TICK, listening_since=0, most=100)
    for tgid in range(1000):
        groups.add(Ending(task(pid=5000 + tgid), tgid, 60_000, None), NOW)
    assert len(groups._open) == 100
    row = groups.add(Ending(task(pid=3, flags=LAST), 3, 60_000, 60 * MS), NOW)
    assert row is not None
    assert not row.is_whole


def test_the_status_of_a_group_whose_main_thread_came_earlier():
    def status(leader: dict[str, object], later_us: int, last: dict[str, object]) -> int | None:
        groups = ThreadGroups(TICK, listening_since=0)
        groups.add(thread(10, 60_000, **leader), NOW)
        row = groups.add(thread(12, 60_000 + later_us, 60 * MS, **last), NOW)
        assert row is not None
        return row.exit_status

    killed: dict[str, object] = {"flags": SIGNALLED | LAST}
    assert status({}, 100, killed) == 0, "returned from main, which ended the others"
    assert status({"exit_code": 7 << 8}, 100, killed) == 7 << 8
    assert status({"exit_code": 9, "flags": SIGNALLED}, 500_000, killed) == 9
    assert status({}, 500_000, killed) is None, "left alone; the others were killed later"
    assert status({}, 100, {"flags": LAST}) is None, "left alone; another one may have given the status"


def test_before_linux_5_19_a_thread_may_look_like_a_process():
    groups = ThreadGroups(TICK, listening_since=0)
    plain = groups.add(Ending(task(), None, None, None), NOW)
    forked = groups.add(Ending(task(flags=FORKED), None, None, None), NOW)
    last = groups.add(Ending(task(pid=12), 10, None, 90 * MS), NOW)
    assert plain is not None
    assert forked is not None
    assert last is not None
    assert (plain.is_process, plain.exit_status) == (False, None)
    assert (forked.is_process, forked.exit_status) == (True, 0)
    assert (last.pid, last.is_process, last.is_whole, last.elapsed) == (10, True, False, None)
    assert (last.cpu_low_ns, last.exit_status) == (90 * MS, None)


def test_a_life_in_which_the_machine_slept_has_no_length():
    groups = ThreadGroups(TICK, listening_since=0)
    slept = NOW._replace(offset=3600 * 1000 * MS, awake_since=NOW.after - 10 * MS)
    row = groups.add(Ending(task(flags=LAST), 10, 80_000, None), slept)
    assert row is not None
    assert (row.elapsed, row.ended) == (None, NOW.until + 3600 * 1000 * MS)
    assert row.may_have_begun(1, 100)
