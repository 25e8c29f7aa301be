"""What each client wrote becomes the row it should, in the formats of several versions."""

import pytest

from tests.collectors.netfs.trees import (
    CEPH,
    CEPH_METRICS,
    CIFS,
    CIFS_STATS,
    CIFS_STATS_1,
    HOME,
    LLITE_29,
    LUSTRE,
    NINE,
    ROOT,
    SSHFS,
    TEXTS,
    V3,
    V4,
    Machine,
    lustre_files,
    told,
)  # fmt: skip
from tests.collectors.rows import rows_of
from tests.fixtures.hosts.write import host_at, write
from vmsonar.collectors.process.collector import ProcessCollector
from vmsonar.config.schema import Config
from vmsonar.daemon.sysinfo import gather
from vmsonar.host.clock import Clock
from vmsonar.host.lustre import JobNaming, job_naming
from vmsonar.host.roots import Host

NEW, OLD = ((TEXTS / name).read_text() for name in ("mountstats-6.1", "mountstats-3.10"))
ZERO = dict.fromkeys(("read_queue_time", "read_round_trip_time", "read_execute_time", "write_queue_time",
                      "write_round_trip_time", "write_execute_time"), 0)  # fmt: skip
SHARES = {
    "nfs 4.2 on Linux 6.1": (V4, {"proc/1/mountstats": NEW}, {
        "device_major": 0, "device_minor": 33, "fs_type": "nfs4", "mount_point": "/mnt/v4", "server": "127.0.0.1",
        "export": "/", "protocol": "4.2", "netfs_source": "mountstats", "age": 2,
        "read_bytes": 67108864, "write_bytes": 67108864, "direct_read_bytes": 68157440, "direct_write_bytes": 0,
        "server_read_bytes": 134217728, "server_write_bytes": 67108864,
        "read_operations": 1032, "write_operations": 513, "metadata_operations": 15, "other_operations": 6,
        "read_queue_time": 32, "write_queue_time": 101815, "metadata_queue_time": 0,
        "read_round_trip_time": 289, "write_round_trip_time": 14496, "metadata_round_trip_time": 0,
        "read_execute_time": 358, "write_execute_time": 116363, "metadata_execute_time": 0,
        "retransmissions": 0, "timeouts": 0, "errors": 0, "connects": 2}),
    "nfs 3 on Linux 6.1": (V3, {"proc/1/mountstats": NEW}, {
        "device_major": 0, "device_minor": 34, "fs_type": "nfs", "mount_point": "/mnt/v3", "server": "127.0.0.1",
        "export": "/export", "protocol": "3", "netfs_source": "mountstats", "age": 2,
        "read_bytes": 0, "write_bytes": 0, "direct_read_bytes": 0, "direct_write_bytes": 0,
        "server_read_bytes": 0, "server_write_bytes": 0, "read_operations": 0, "write_operations": 0,
        "metadata_operations": 160, "other_operations": 1, **ZERO, "metadata_queue_time": 0,
        "metadata_round_trip_time": 5, "metadata_execute_time": 6,
        "retransmissions": 0, "timeouts": 0, "errors": 50, "connects": 2}),
    "nfs 4.0 on Linux 3.10, without errors": (HOME, {"proc/1/mountstats": OLD}, {
        "device_major": 0, "device_minor": 44, "fs_type": "nfs4", "mount_point": "/home", "server": "files.example",
        "export": "/home", "protocol": "4.0", "netfs_source": "mountstats", "age": 86400,
        "read_bytes": 1000000, "write_bytes": 2000000, "direct_read_bytes": 3000, "direct_write_bytes": 4000,
        "server_read_bytes": 900000, "server_write_bytes": 2004000,
        "read_operations": 30, "write_operations": 21, "metadata_operations": 2922, "other_operations": 3,
        "read_queue_time": 3, "write_queue_time": 5, "metadata_queue_time": 15,
        "read_round_trip_time": 450, "write_round_trip_time": 400, "metadata_round_trip_time": 1470,
        "read_execute_time": 470, "write_execute_time": 411, "metadata_execute_time": 1575,
        "retransmissions": 5, "timeouts": 1, "connects": 3}),
    "lustre 2.15": (LUSTRE, lustre_files(), {
        "device_major": 0, "device_minor": 50, "fs_type": "lustre", "mount_point": "/lustre",
        "server": "10.0.0.1@tcp:10.0.0.2@tcp", "export": "/scratch/users", "netfs_source": "llite",
        "read_bytes": 104857600, "write_bytes": 52428800, "server_read_bytes": 120000000,
        "server_write_bytes": 60000000, "read_operations": 100, "write_operations": 50, "metadata_operations": 40,
        "other_operations": 2, "read_execute_time": 250, "write_execute_time": 120, "metadata_execute_time": 7,
        "rpc_operations": 160, "rpc_time": 1240}),
    "lustre 2.9, calls not timed": (LUSTRE, lustre_files(LLITE_29, "proc/fs/lustre"), {
        "device_major": 0, "device_minor": 50, "fs_type": "lustre", "mount_point": "/lustre",
        "server": "10.0.0.1@tcp:10.0.0.2@tcp", "export": "/scratch/users", "netfs_source": "llite",
        "read_bytes": 145121869, "write_bytes": 468230469, "server_read_bytes": 120000000,
        "server_write_bytes": 60000000, "read_operations": 25673, "write_operations": 13641,
        "metadata_operations": 176453, "other_operations": 34, "rpc_operations": 160, "rpc_time": 1240}),
    "ceph, one file": (CEPH, {"sys/kernel/debug/ceph/aa.client7/metrics": CEPH_METRICS}, {
        "device_major": 0, "device_minor": 51, "fs_type": "ceph", "mount_point": "/ceph",
        "server": "10.0.0.1:6789,10.0.0.2:6789", "export": "/volumes", "netfs_source": "ceph",
        "server_read_bytes": 28672, "server_write_bytes": 20971520, "read_operations": 7, "write_operations": 5,
        "metadata_operations": 79}),
    "ceph, a folder": (CEPH, {
        f"sys/kernel/debug/ceph/aa.client7/metrics/{name}": CEPH_METRICS.split("\n\n")[place] + "\n"
        for name, place in (("file", 0), ("latency", 1), ("size", 2), ("caps", 3))}, {
        "device_major": 0, "device_minor": 51, "fs_type": "ceph", "mount_point": "/ceph",
        "server": "10.0.0.1:6789,10.0.0.2:6789", "export": "/volumes", "netfs_source": "ceph",
        "server_read_bytes": 28672, "server_write_bytes": 20971520, "read_operations": 7, "write_operations": 5,
        "metadata_operations": 79}),
    "smb 3": (CIFS, {"proc/fs/cifs/Stats": CIFS_STATS}, {
        "device_major": 0, "device_minor": 52, "fs_type": "cifs", "mount_point": "/smb", "server": "Files",
        "export": "Data", "protocol": "3.1.1", "netfs_source": "cifs", "server_read_bytes": 4096000,
        "server_write_bytes": 8192000, "read_operations": 10, "write_operations": 22, "metadata_operations": 75,
        "other_operations": 2, "errors": 6, "connects": 2, "in_flight": 3}),
    "fuse, which nobody counts": (SSHFS, {}, {
        "device_major": 0, "device_minor": 53, "fs_type": "fuse.sshfs", "mount_point": "/far",
        "server": "far.example", "export": "/data", "netfs_source": "none"}),
    "9p, whose client counts nothing": (NINE, {}, {
        "device_major": 0, "device_minor": 54, "fs_type": "9p", "mount_point": "/nine", "export": "host",
        "netfs_source": "none"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_a_share_becomes_its_row(name, tmp_path):
    mounts, files, expected = SHARES[name]
    found = Machine(tmp_path, mounts, files).sample()
    assert [told(row) for row in found["netfs"]] == [expected]
    assert "gap" not in found


def without_figures(row) -> bool:
    return not told(row).keys() & {"age", "read_bytes", "server_read_bytes", "read_operations", "in_flight"}


@pytest.mark.parametrize("name", [name for name, (_, files, _) in SHARES.items() if files])
def test_a_file_cut_at_any_length_never_crashes(name, tmp_path):
    mounts, files, whole = SHARES[name]
    machine = Machine(tmp_path, mounts, files)
    machine.sample()
    for path, text in files.items():
        for length in range(0, len(text), max(1, len(text) // 60)):
            machine.put({path: text[:length]})
            (row,) = machine.sample(fresh=True)["netfs"]
            for field, value in told(row).items():
                if isinstance(value, int):
                    assert 0 <= value <= max(whole.get(field, 0), whole["device_minor"]), (field, length)
        machine.put({path: text})
    assert [told(row) for row in machine.sample(fresh=True)["netfs"]] == [whole]


HOSTILE = ["", "\0" * 999, "-5 -6", "9" * 5000, "READ: " + "9" * 30, "x\n" * 10000, "\xff\xfe", "READ: a b c",
           "read_bytes 99999999999999999999999 samples [bytes] 1 2 3"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", [name for name, (_, files, _) in SHARES.items() if files])
def test_what_is_no_such_file_is_unknown_and_said(name, text, tmp_path):
    mounts, files, _ = SHARES[name]
    nasty = {
        path: good.split("\n", 1)[0] + "\n\tage:\t5\n        " + text if "mountstats" in path else text
        for path, good in files.items()
    }
    found = Machine(tmp_path, mounts, nasty).sample()
    (row,) = found["netfs"]
    for value in told(row).values():
        assert isinstance(value, str) or 0 <= value < 2**63


def test_numbers_that_no_counter_reaches_are_said(tmp_path):
    huge = NEW.replace("1032 1032", f"{10**30} 1032")
    found = Machine(tmp_path, V4, {"proc/1/mountstats": huge}).sample()
    assert without_figures(found["netfs"][0])
    assert [(gap.reason, gap.detail) for gap in found["gap"]] == [
        ("format", "nfs4 0:33: mountstats has another form")
    ]


def test_a_share_that_mountstats_does_not_name_is_unknown_and_not_zero(tmp_path):
    found = Machine(tmp_path, V4, {"proc/1/mountstats": OLD}).sample()
    assert without_figures(found["netfs"][0])
    assert [gap.reason for gap in found["gap"]] == ["missing"]


def test_a_file_whose_records_are_longer_than_a_page_is_read_to_its_end(tmp_path, monkeypatch):
    """seq_file(9) hands out what it has before a record that does not fit: here a line, then the rest."""
    import os

    real = os.pread
    machine = Machine(
        tmp_path, V4, {"proc/1/mountstats": "device proc mounted on /proc with fstype proc\n" + NEW}
    )
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, 46 if at == 0 else size, at))
    (row,) = machine.sample()["netfs"]
    assert row.read_operations == 1032


def test_only_what_changed_is_added_up_and_a_remount_starts_anew(tmp_path):
    machine = Machine(tmp_path, V4, {"proc/1/mountstats": NEW})
    machine.sample()
    machine.put({"proc/1/mountstats": NEW.replace("READ: 1032 1032 0", "READ: 1042 1045 2")})
    (row,) = machine.sample()["netfs"]
    assert (row.read_operations, row.retransmissions, row.timeouts) == (1042, 3, 2)
    assert row.write_operations == 513
    machine.put({"proc/1/mountstats": NEW.replace("READ: 1032 1032 0", "READ: 7 7 0")})
    (row,) = machine.sample()["netfs"]
    assert (row.read_operations, row.retransmissions, row.timeouts) == (7, 0, 0)


def test_a_share_mounted_twice_is_one_and_known_by_its_shortest_path(tmp_path):
    again = V4.replace("36 22", "99 22").replace("/mnt/v4", "/m") + V4.replace("0:33 /", "0:33 /sub")
    text = NEW + NEW.replace("/mnt/v4", "/m")
    (row,) = Machine(tmp_path, V4 + again, {"proc/1/mountstats": text}).sample()["netfs"]
    assert (row.mount_point, row.read_operations) == ("/m", 1032)


@pytest.mark.parametrize(
    ("mounts", "files", "reason"),
    [
        (LUSTRE + LUSTRE.replace("50 22 0:50", "60 22 0:60"), lustre_files(), "ambiguous"),
        (LUSTRE, {}, "permission"),
        (CEPH, {}, "permission"),
        (CEPH, {f"sys/kernel/debug/ceph/{name}.client7/metrics": CEPH_METRICS for name in "ab"}, "ambiguous"),
        (CIFS, {}, "io_error"),
        (CIFS, {"proc/fs/cifs/Stats": "Resources in use\n"}, "missing"),
        (CIFS, {"proc/fs/cifs/Stats": CIFS_STATS_1}, "format"),
        (V4, {}, "io_error"),
    ],
)
def test_what_cannot_be_read_says_why_and_doctor_too(mounts, files, reason, tmp_path):
    machine = Machine(tmp_path, mounts, files)
    found = machine.sample()
    assert all(map(without_figures, found["netfs"]))
    assert {gap.reason for gap in found["gap"]} == {reason}
    (seen, *others) = machine.collector.capabilities()
    assert seen.available
    assert [other.available for other in others] == [False]
    assert others[0].reason


def test_what_has_no_counters_is_told_once_a_minute(tmp_path):
    machine = Machine(tmp_path, NINE + V4, {"proc/1/mountstats": NEW})
    kinds = [[row.fs_type for row in machine.sample()["netfs"]] for _ in range(8)]
    assert [sorted(each) for each in kinds] == [["9p", "nfs4"], *[["nfs4"]] * 5, ["9p", "nfs4"], ["nfs4"]]


def test_where_there_is_none_nothing_is_opened(tmp_path, monkeypatch):
    machine = Machine(tmp_path, "", {})
    assert machine.sample() == {}
    monkeypatch.setattr("os.open", lambda *_: pytest.fail("opened"))
    assert machine.sample(seconds=1) == {}


def test_mounts_come_and_go(tmp_path):
    machine = Machine(tmp_path, "", {"proc/1/mountstats": NEW})
    assert machine.sample() == {}
    machine.put({"proc/1/mountinfo": ROOT + V3})
    (row,) = machine.sample(seconds=11)["netfs"]
    assert row.mount_point == "/mnt/v3"
    machine.put({"proc/1/mountinfo": ROOT})
    assert machine.sample(seconds=11) == {}


@pytest.mark.parametrize(
    ("variable", "name", "expected"),
    [
        ("procname_uid", None, "train.1000"),
        ("nodelocal", "%e.%u", "train.1000"),
        ("nodelocal", "site-7", "site-7"),
        ("nodelocal", "%e:%u:%j", None),
        ("nodelocal", "%e.%p", None),
        ("nodelocal", "100%", None),
        ("nodelocal", None, None),
        ("SLURM_JOB_ID", "%e.%u", None),
        ("disable", None, None),
        (None, None, None),
    ],
)
def test_the_name_that_servers_book_under(variable, name, expected):
    assert JobNaming(variable, name).name("train", 1000) == expected
    assert JobNaming(variable, name).name("train", None) is None


@pytest.mark.parametrize("folder", ["proc/fs/lustre", "sys/fs/lustre"])
def test_how_a_client_names_jobs_is_read(folder, tmp_path):
    write(tmp_path, {f"{folder}/jobid_var": "nodelocal\n", f"{folder}/jobid_name": "%e.%u\n"})
    assert job_naming(host_at(tmp_path)) == JobNaming("nodelocal", "%e.%u")


def test_jobs_carry_the_name_and_sysinfo_how_it_is_made(tmp_path):
    write(tmp_path, {"fs/lustre/jobid_var": "procname_uid\n"})
    host = Host(sys=tmp_path)
    infos = rows_of(ProcessCollector, host)["job_info"]
    named = [info for info in infos if info.user_id is not None]
    assert named
    assert [info.lustre_job_id for info in named] == [f"{info.program}.{info.user_id}" for info in named]
    assert gather(host, Config(), [], Clock()).lustre_jobid_var == "procname_uid"
