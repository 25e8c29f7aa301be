"""Machines with shares: a table of mounts and what their clients write, as published for several versions."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tests.collectors.rows import decoded
from tests.fixtures.hosts.write import host_at, write
from vmsonar.collectors.base import Setup, Tick
from vmsonar.collectors.netfs.collector import NetfsCollector
from vmsonar.config.schema import Config

TEXTS = Path(__file__).parents[2] / "fixtures/netfs"
SECOND = 10**9
ROOT = "22 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n"
V4 = "36 22 0:33 / /mnt/v4 rw - nfs4 127.0.0.1:/ rw,vers=4.2,rsize=131072\n"
V3 = "35 22 0:34 / /mnt/v3 rw - nfs 127.0.0.1:/export rw,vers=3,rsize=131072\n"
HOME = "40 22 0:44 / /home rw - nfs4 files.example:/home rw,vers=4.0\n"
LUSTRE = "50 22 0:50 / /lustre rw - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/scratch/users rw,flock\n"
CEPH = "51 22 0:51 / /ceph rw - ceph 10.0.0.1:6789,10.0.0.2:6789:/volumes rw,name=admin\n"
CIFS = "52 22 0:52 / /smb rw - cifs //Files/Data rw,vers=3.1.1,username=anna\n"
SSHFS = "53 22 0:53 / /far rw - fuse.sshfs anna@far.example:/data rw,user_id=1000\n"
NINE = "54 22 0:54 / /nine rw - 9p host rw,trans=virtio\n"

LLITE_29 = """\
snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                25673 samples [bytes] 1 3366225 145121869
write_bytes               13641 samples [bytes] 1 3366225 468230469
ioctl                     31 samples [regs]
open                      25720 samples [regs]
close                     25719 samples [regs]
seek                      14 samples [regs]
fsync                     3 samples [regs]
getattr                   125014 samples [regs]
inode_permission          999999 samples [regs]
"""
LLITE_215 = """\
snapshot_time             1700000000.123456789 secs.nsecs
start_time                1699990000.000000001 secs.nsecs
elapsed_time              10000.123456788 secs.nsecs
read_bytes                100 samples [bytes] 4096 1048576 104857600 109951162777600
write_bytes               50 samples [bytes] 4096 1048576 52428800 54975581388800
read                      100 samples [usecs] 10 9000 250000 990000000
write                     50 samples [usecs] 20 8000 120500 880000000
open                      10 samples [usecs] 50 900 4000 2000000
close                     10 samples [usecs] 20 500 2000 700000
getattr                   20 samples [usecs] 5 90 1500 90000
fsync                     2 samples [usecs] 500 900 1400 1060000
"""
OSC = """\
snapshot_time             1700000000.123456789 secs.nsecs
req_waittime              60 samples [usec] 200 90000 600000 990000000
req_active                60 samples [reqs] 1 8 100 300
read_bytes                40 samples [bytes] 4096 4194304 60000000 99
write_bytes               20 samples [bytes] 4096 4194304 30000000 99
ost_read                  40 samples [usec] 200 90000 400000 99
"""
MDC = """\
snapshot_time             1700000000.123456789 secs.nsecs
req_waittime              40 samples [usec] 100 5000 40000 990000
mds_getattr               20 samples [usec] 100 900 4000 99
"""
CEPH_METRICS = """\
item                               total
------------------------------------------
opened files  / total inodes       0 / 4

item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
-----------------------------------------------------------------------------------
read          7           914             824             1092            103
write         5           914013          824797          1092343         103476
metadata      79          12856           1572            114572          13262

item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)
----------------------------------------------------------------------------------------
read          7           4096            4096            4096            28672
write         5           4194304         4194304         4194304         20971520

item          total           miss            hit
-------------------------------------------------
d_lease       11              0               29
"""
CIFS_STATS = """\
Resources in use
CIFS Session: 1
Share (unique mount targets): 2
SMB Request/Response Buffer: 1 Pool size: 5
SMB Small Req/Resp Buffer: 1 Pool size: 30
Total Large 10 Small 490 Allocations
Operations (MIDs): 3

2 session 1 share reconnects
Total vfs operations: 16 maximum at one time: 2

Max requests in flight: 2
1) \\\\other\\share
SMBs: 1
Bytes read: 1  Bytes written: 2
Reads: 1 total 0 failed
2) \\\\Files\\Data
SMBs: 109
Bytes read: 4096000  Bytes written: 8192000
Open files: 0 total (local), 0 open on server
TreeConnects: 1 total 0 failed
TreeDisconnects: 0 total 0 failed
Creates: 22 total 4 failed
Closes: 18 total 0 failed
Flushes: 2 total 0 failed
Reads: 10 total 0 failed
Writes: 20 total 1 failed
Locks: 1 total 0 failed
IOCTLs: 1 total 1 failed
QueryDirectories: 5 total 0 failed
ChangeNotifies: 0 total 0 failed
QueryInfos: 26 total 0 failed
SetInfos: 3 total 0 failed
OplockBreaks: 0 sent 0 failed
"""
CIFS_STATS_1 = """\
Resources in use
CIFS Session: 1
Operations (MIDs): 0

0 session 0 share reconnects
Total vfs operations: 16 maximum at one time: 2

1) \\\\files\\data
SMBs: 96 Oplocks breaks: 0
Reads:  10 Bytes: 40960
Writes: 20 Bytes: 81920
Flushes: 1
Locks: 0 HardLinks: 1 Symlinks: 0
Opens: 7 Closes: 7 Deletes: 2
Posix Opens: 0 Posix Mkdirs: 0
Mkdirs: 1 Rmdirs: 1
Renames: 1 T2 Renames 0
FindFirst: 3 FNext 1 FClose 0
"""


def lustre_files(llite=LLITE_215, root="sys/kernel/debug/lustre", number="ffff8803e8a2b000"):
    """A client with two object targets and a metadata target."""
    return {
        f"{root}/llite/scratch-{number}/stats": llite,
        f"{root}/osc/scratch-OST0000-osc-{number}/stats": OSC,
        f"{root}/osc/scratch-OST0001-osc-{number}/stats": OSC,
        f"{root}/mdc/scratch-MDT0000-mdc-{number}/stats": MDC,
        # Of another file system, and of a mount that is gone.
        f"{root}/osc/other-OST0000-osc-ffff000000000000/stats": OSC,
        f"{root}/osc/scratch-OST0000-osc-ffff000000000001/stats": OSC,
    }


class Machine:
    """A machine with these mounts and files, and its collector."""

    def __init__(self, root: Path, mounts: str, files: dict[str, str]) -> None:
        self.root = root
        self.put({"proc/1/mountinfo": ROOT + mounts, **files})
        self.collector = NetfsCollector(Setup(Config(), host_at(root)))
        self._now = 0

    def put(self, files: dict[str, str]) -> None:
        write(self.root, files)

    def tick(self, fresh: bool = False, seconds: int = 10) -> Tick:
        """The next one, so much later."""
        self._now += seconds * SECOND
        return Tick(time=datetime(2026, 11, 16, tzinfo=UTC), boottime=self._now, boot="b", fresh=fresh)

    def sample(self, fresh: bool = False, seconds: int = 10):
        """The rows of the next tick, by kind."""
        return decoded(self.collector.collect(self.tick(fresh, seconds)).by_kind)


def told(row) -> dict:
    """What a row says."""
    return msgspec.to_builtins(row)
