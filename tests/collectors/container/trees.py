"""Small machines as trees of files: control groups in each layout, and the processes in them."""

from collections.abc import Mapping
from pathlib import Path

from vmsonar.host.roots import Host

V1_CONTROLLERS = ("cpuacct", "cpu", "cpuset", "memory", "blkio", "pids")
NET_DEV = (
    "Inter-|\n face |\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n"
)

V1_FILES = {
    "cpuacct": {"cpuacct.usage": "5000000000\n", "cpuacct.stat": "user 300\nsystem 200\n"},
    "cpu": {
        "cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 70\n",
        "cpu.cfs_quota_us": "50000\n",
        "cpu.cfs_period_us": "100000\n",
    },
    "cpuset": {"cpuset.cpus": "0-1\n"},
    "memory": {
        "memory.usage_in_bytes": "1000\n",
        "memory.max_usage_in_bytes": "2000\n",
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.stat": "total_cache 10\ntotal_rss 20\ntotal_inactive_file 5\ntotal_shmem 1\ntotal_swap 0\n",
        "memory.failcnt": "0\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    },
    "blkio": {
        "blkio.throttle.io_service_bytes": "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
        "blkio.throttle.io_serviced": "8:0 Read 1\n8:0 Write 1\nTotal 2\n",
    },
    "pids": {"pids.current": "3\n", "pids.max": "max\n"},
}
V2_FILES = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n",
    "cpu.max": "max 100000\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\n",
    "cpuset.cpus.effective": "0-3\n",
    "memory.current": "1000\n",
    "memory.peak": "2000\n",
    "memory.max": "4096\n",
    "memory.stat": "anon 20\nfile 10\nshmem 1\ninactive_file 5\n",
    "memory.swap.current": "0\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.pressure": "some total=1\nfull total=2\n",
    "io.stat": "8:0 rbytes=1 wbytes=2 rios=1 wios=1\n",
    "io.pressure": "some total=3\nfull total=4\n",
    "pids.current": "3\n",
    "pids.max": "512\n",
}


class Machine:
    """A machine in a folder, with pid 1 and no container."""

    def __init__(self, root: Path, hierarchy: str) -> None:
        self.host = Host(proc=root / "proc", sys=root / "sys", etc=root / "etc", run=root / "run")
        self._hierarchy = hierarchy
        self.cgroups = self.host.sys / "fs/cgroup"
        for folder in (self.host.etc, self.host.run):
            folder.mkdir(parents=True)
        if hierarchy == "v2":
            write(self.cgroups / "cgroup.controllers", "cpuset cpu io memory pids\n")
        else:
            for controller in V1_CONTROLLERS:
                write(self.cgroups / controller / "tasks", "1\n")
            write(self.cgroups / "blkio/blkio.throttle.io_service_bytes", "8:0 Read 9\nTotal 9\n")
        if hierarchy == "hybrid":
            write(self.cgroups / "unified/cgroup.controllers", "\n")
        self.process(1, "/init.scope")

    def process(self, pid: int, cgroup: str, **files: str) -> None:
        """A process in this group; more of its files by name."""
        folder = self.host.proc / str(pid)
        v1 = [
            f"{number}:{name}:{cgroup}\n" for number, name in enumerate((*V1_CONTROLLERS, "name=systemd"), 1)
        ]
        lines = {"v2": [f"0::{cgroup}\n"], "v1": v1, "hybrid": [*v1, "0::/\n"]}[self._hierarchy]
        write(folder / "cgroup", "".join(lines))
        write(folder / "stat", f"{pid} (x) S 1 {' '.join(['0'] * 17)} {pid} 0\n")
        write(folder / "net/dev", NET_DEV)
        for name, text in files.items():
            write(folder / name, text)

    def group(self, path: str, **changes: str) -> None:
        """A control group with the usual content, some files of it changed; a change is named with `_`."""
        if self._hierarchy == "v2":
            self._write(self.cgroups / path.lstrip("/"), V2_FILES, changes)
            return
        for controller, files in V1_FILES.items():
            self._write(self.cgroups / controller / path.lstrip("/"), files, changes)

    @staticmethod
    def _write(folder: Path, files: Mapping[str, str], changes: Mapping[str, str]) -> None:
        for name, text in files.items():
            write(folder / name, changes.get(name.replace(".", "_"), text))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
