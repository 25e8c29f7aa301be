"""Real NFS, server and client, and real SMB in a guest with a kernel of its own: its own counters are the truth."""

import json
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import NetfsRow, Sample
from vmsonar_inspect.facts.model import Verdict
from vmsonar_inspect.facts.network import ShareUse
from vmsonar_inspect.inspection import InspectionSettings, opened

from tests.parts import requires
from tests.real.machine import Machine

pytestmark = requires("nfs_guest")

MODULES = (
    "mkdir -p lib/modules && cp -r /usr/lib/uml/modules/* lib/modules/ && chroot . depmod $(ls lib/modules)"
)
#: What stands between a client and the server, and can be stopped: nobody can stop a server in the kernel.
PROXY = """
import socket, threading
def pump(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for each in (source, target):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", 3049))
while True:
    client, _ = server.accept()
    onward = socket.create_connection(("127.0.0.1", 2049))
    for pair in ((client, onward), (onward, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""
SERVE = """
modprobe nfsd; modprobe nfsv3; modprobe nfsv4
mkdir -p /export /srv/smb /mnt/v4 /mnt/v3 /mnt/slow /mnt/smb
echo '/export 127.0.0.1(rw,no_root_squash,insecure,fsid=0,no_subtree_check,async)' > /etc/exports
systemctl restart rpcbind nfs-server
"""
SMB = """
modprobe cifs
printf '[global]\\nsmb ports = 445\\n[data]\\npath = /srv/smb\\nread only = no\\n' > /etc/samba/smb.conf
printf 'x\\nx\\n' | smbpasswd -s -a root
systemctl restart smbd
"""
STORM = """
import os
for number in range(400):
    path = f"/mnt/v3/file{number}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.stat(path)
for number in range(400):
    os.unlink(f"/mnt/v3/file{number}")
"""
LARGE = """
dd if=/dev/zero of={0}/large bs=1M count=64 conv=fsync
echo 3 > /proc/sys/vm/drop_caches
dd if={0}/large of=/dev/null bs=1M
"""
MIB = 2**20


@dataclass
class Counted:
    """What the server has counted: /proc/net/rpc/nfsd."""

    read_bytes: int
    write_bytes: int
    reads: int
    writes: int
    #: Version 3 only: in a compound of version 4 attributes are asked for by the way.
    metadata: int

    def since(self, before: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) - getattr(before, name) for name in self.__annotations__))


def counted(machine: Machine) -> Counted:
    lines = {
        (words := line.split())[0]: list(map(int, words[1:]))
        for line in machine.read("/proc/net/rpc/nfsd").splitlines()
        if not line.startswith("th")
    }
    three, four = lines["proc3"][1:], lines["proc4ops"][1:]
    return Counted(
        read_bytes=lines["io"][0],
        write_bytes=lines["io"][1],
        reads=three[6] + four[25],
        writes=three[7] + three[21] + four[38] + four[5],
        metadata=sum(three) - three[0] - three[6] - three[7] - three[21],
    )


@dataclass
class Played:
    """What happened and what was recorded of it."""

    server: Counted
    storm: Counted
    hang: tuple[float, float]
    doctor_seconds: float
    doctor: dict[str, dict[str, object]]
    samples: list[Sample] = field(default_factory=list)
    shares: list[ShareUse] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def rows(self, mount: str) -> list[NetfsRow]:
        return [row for sample in self.samples for row in sample.netfs if row.mount_point == mount]

    def share(self, mount: str) -> list[ShareUse]:
        return [share for share in self.shares if share.share == mount]


def job(machine: Machine, name: str, script: str) -> None:
    """A service, and so a job of its own, run to its end."""
    machine.run("systemd-run", "--quiet", "--wait", "--collect", f"--unit=job-{name}", "sh", "-euc", script)


def boottime(machine: Machine) -> float:
    return float(machine.read("/proc/uptime").split()[0])


@pytest.fixture(scope="module")
def played(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Played:
    machine.change(MODULES)
    machine.put("opt/proxy.py", PROXY)
    machine.boot()
    machine.run("sh", "-euc", SERVE, seconds=120)
    machine.run("sh", "-euc", SMB, seconds=120)
    machine.run("systemd-run", "--quiet", "--unit=proxy", "python3", "/opt/proxy.py")
    machine.wait("ls /var/lib/vmsonar/*/*/*/sample-*")
    machine.run("sleep", "2")
    before = counted(machine)
    machine.run("mount", "-t", "nfs", "-o", "vers=4.2", "127.0.0.1:/", "/mnt/v4")
    machine.run("mount", "-t", "nfs", "-o", "vers=3,nolock", "127.0.0.1:/export", "/mnt/v3")
    machine.run("mount", "-i", "-t", "cifs", "-o", "ip=127.0.0.1,username=root,password=x", "//127.0.0.1/data",
                "/mnt/smb")  # fmt: skip
    job(machine, "large", LARGE.format("/mnt/v4"))
    job(machine, "smb", LARGE.format("/mnt/smb"))
    job(machine, "direct", "dd if=/dev/zero of=/mnt/v4/direct bs=1M count=16 oflag=direct; "
        "dd if=/mnt/v4/direct of=/dev/null bs=1M count=16 iflag=direct")  # fmt: skip
    machine.run("sleep", "2")
    storm = counted(machine)
    machine.write("/opt/storm.py", STORM)
    job(machine, "storm", "python3 /opt/storm.py")
    storm = counted(machine).since(storm)
    machine.run("sleep", "2")
    machine.run("sh", "-euc", "umount /mnt/v4; sleep 2; mount -t nfs -o vers=4.2 127.0.0.1:/ /mnt/v4")
    job(machine, "again", "dd if=/dev/zero of=/mnt/v4/again bs=1M count=8 conv=fsync")
    hang, doctor, seconds = hold_up(machine)
    machine.run("sleep", "3")
    server = counted(machine).since(before)
    machine.run("systemctl", "stop", "vmsonar")
    machine.run("vmsonar", "bundle", "-o", "/root/shares.tar")
    machine.run("sync")
    machine.cut_power()
    bundle = machine.copy_out("/root", tmp_path_factory.mktemp("shares") / "root") / "shares.tar"
    found = Played(server, storm, hang, seconds, doctor)
    with open_archive(bundle) as archive:
        found.samples = list(archive.samples())
    with opened([bundle], InspectionSettings()) as inspection:
        found.shares = inspection.shares
        advices = inspection.advice(next(iter(inspection.sources)))
        found.verdicts = [verdict for advice in advices for verdict in advice.verdicts]
    return found


def hold_up(machine: Machine) -> tuple[tuple[float, float], dict[str, dict[str, object]], float]:
    """The server answers nobody for a while, then its connections break and it is back."""
    # Mounts of one server share a connection, so this one must be alone to have its own way there.
    machine.run("sh", "-euc", "sleep 2; umount /mnt/v4")
    slow = "vers=4.2,port=3049,timeo=10,retrans=1"
    machine.run("mount", "-t", "nfs", "-o", slow, "127.0.0.1:/", "/mnt/slow")
    machine.run("sh", "-euc", "dd if=/dev/zero of=/mnt/slow/before bs=1M count=4 conv=fsync; sleep 2")
    begin = boottime(machine)
    machine.run("systemctl", "kill", "--signal=STOP", "proxy")
    script = "dd if=/dev/zero of=/mnt/slow/late bs=1M count=4 conv=fsync; ls -l /mnt/slow"
    machine.run("systemd-run", "--quiet", "--collect", "--unit=late", "sh", "-euc", script)
    machine.run("sleep", "10")
    end = boottime(machine)
    asked = time.monotonic()
    said = machine.run(
        "runuser", "-u", "vmsonar", "--", "vmsonar", "doctor", "--json", check=False, seconds=60
    )
    took = time.monotonic() - asked
    machine.run("sleep", "4")
    machine.run("systemctl", "kill", "--signal=KILL", "proxy")
    machine.run("systemctl", "reset-failed", "proxy", check=False)
    machine.run("systemd-run", "--quiet", "--unit=proxy-again", "python3", "/opt/proxy.py")
    machine.wait("! systemctl is-active --quiet late", seconds=90)
    return (begin, end), {one["item"]: one for one in json.loads(said.stdout)}, took


def test_bytes_are_those_that_the_server_counted(played: Played) -> None:
    own = [share for share in played.shares if share.fs_type in ("nfs", "nfs4")]
    assert sum(share.server_read_bytes or 0 for share in own) == pytest.approx(
        played.server.read_bytes, rel=0.01
    )
    assert sum(share.server_write_bytes or 0 for share in own) == pytest.approx(
        played.server.write_bytes, rel=0.01
    )
    assert played.server.write_bytes >= 92 * MIB


def test_operations_are_those_that_the_server_counted(played: Played) -> None:
    reads, writes = 0.0, 0.0
    for mount in ("/mnt/v4", "/mnt/v3", "/mnt/slow"):
        read, write = (
            rises(played.rows(mount), "read_operations"),
            rises(played.rows(mount), "write_operations"),
        )
        reads, writes = reads + read, writes + write
    assert (reads, writes) == (played.server.reads, played.server.writes)


def rises(rows: list[NetfsRow], name: str) -> int:
    """How far a counter came in all, over remounts."""
    first = getattr(rows[0], name)
    return first + sum(
        getattr(now, name) - (0 if now.age < then.age else getattr(then, name))
        for then, now in pairwise(rows)
    )


def test_a_metadata_storm_is_counted_operation_by_operation(played: Played) -> None:
    rows = played.rows("/mnt/v3")
    assert played.storm.metadata >= 3 * 400
    # What it took to mount it comes on top.
    assert 0 <= rises(rows, "metadata_operations") - played.storm.metadata <= 20
    (share,) = played.share("/mnt/v3")
    assert share.metadata_share == pytest.approx(1.0, abs=0.01)


def test_direct_reads_and_writes_are_counted_apart(played: Played) -> None:
    rows = played.rows("/mnt/v4")
    assert max(row.direct_write_bytes for row in rows) == 16 * MIB
    assert max(row.direct_read_bytes for row in rows) == 16 * MIB
    assert max(row.read_bytes for row in rows) == 64 * MIB


def test_a_remount_starts_anew_and_loses_nothing(played: Played) -> None:
    rows = played.rows("/mnt/v4")
    assert rows[-1].write_bytes == 8 * MIB
    assert sum(share.write_bytes or 0 for share in played.share("/mnt/v4")) == pytest.approx(
        88 * MIB, rel=0.01
    )


def test_a_server_that_is_silent_delays_no_sample(played: Played) -> None:
    begin, end = played.hang
    during = [sample for sample in played.samples if begin <= sample.boottime / 1e9 <= end]
    # A tick may be late where the guest's one processor is: but no sample waits once it has begun.
    assert len(during) >= (end - begin) / 2
    assert max(sample.cost[0].wall_time or 0 for sample in during) < 1e9
    assert all(len(sample.netfs) == 3 for sample in during)


def test_doctor_does_not_wait_for_it_either(played: Played) -> None:
    assert played.doctor_seconds < 30
    assert played.doctor["NFS shares"]["available"]
    assert played.doctor["SMB shares"]["available"]


def test_that_it_was_silent_is_seen_and_judged(played: Played) -> None:
    last = played.rows("/mnt/slow")[-1]
    assert last.timeouts >= 1
    assert last.retransmissions >= 1
    (share,) = played.share("/mnt/slow")
    assert share.slowest_seconds is not None
    # One took a quarter of a minute; the others of its class and interval are in the mean.
    assert share.slowest_seconds >= 2
    silent = [verdict for verdict in played.verdicts if verdict.rule == "share_silent"]
    assert [verdict.name for verdict in silent] == ["share /mnt/slow"]


def test_an_smb_share_is_counted_too(played: Played) -> None:
    (share,) = played.share("/mnt/smb")
    assert share.server_write_bytes == pytest.approx(64 * MIB, rel=0.01)
    assert share.server_read_bytes == pytest.approx(64 * MIB, rel=0.01)
    last = played.rows("/mnt/smb")[-1]
    assert last.metadata_operations > 0
    assert last.read_operations >= 16
