"""A real Slurm on loopback: munge, a database, slurmdbd, slurmctld and one slurmd, each ended by its process id.

In a guest it runs without the database, by the units of its packages, and with control groups of v2.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.parts import need
from tests.real.machine import Machine
from tests.real.ports import accepts, free_ports
from tests.real.wait import wait_until

START_SECONDS = 180
COMMAND_SECONDS = 60
CLUSTER = "testcluster"
ACCOUNT = "physics"
NODE_MEMORY = 4000

_SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={d}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
SchedulerTimeSlice=5
OverTimeLimit=0
KillWait=2
MinJobAge=300
InactiveLimit=0
JobAcctGatherFrequency=1
JobRequeue=1
Prolog={folder}/scripts/*
Epilog={folder}/scripts/*
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=200
GresTypes=gpu
{accounting}
{tracking}
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=60 State=UP
PartitionName=long Nodes={host} MaxTime=UNLIMITED State=UP
"""
_WITH_DATABASE = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={munge}
AccountingStorageTRES=gres/gpu"""
_DBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""
#: Who follows the processes of a job: their parents alone, or control groups.
TRACKING = {
    "linuxproc": "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/linux",
    "cgroup": "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nJobAcctGatherType=jobacct_gather/cgroup",
}
_CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
_CGROUP_2_CONF = "CgroupPlugin=cgroup/v2\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"

#: Where the units of Debian's packages look for the configuration; all else lies there, too.
GUEST_FOLDER = Path("/etc/slurm")
# Slurm asks for addresses of the families that the machine has, beside loopback.
_START = """
cd /etc/slurm; mkdir -p state spool; chmod +x scripts/none
ip address add 192.0.2.1/32 dev lo
systemctl start munge slurmctld slurmd
"""


def configuration(folder: Path, **facts: object) -> dict[str, str]:
    """The files of a cluster of one node below its folder."""
    facts = {"cluster": CLUSTER, "folder": folder, "munge": f"{folder}/munge/socket"} | facts
    facts["accounting"] = str(facts["accounting"]).format(**facts)
    return {
        "slurm.conf": _SLURM_CONF.format(**facts),
        "gres.conf": "Name=gpu File=/dev/null Count=1\nName=gpu File=/dev/zero Count=1\n",
        # What runs before and after each job; without any script Slurm takes the node out of service.
        "scripts/none": "#!/bin/sh\n",
    }


def start_in(machine: Machine) -> None:
    """A cluster in a guest, by the units of its packages, with control groups of v2 and no accounting."""
    files = configuration(
        GUEST_FOLDER, host=machine.run("hostname").stdout.strip(), munge="/run/munge/munge.socket.2",
        ctld=6817, d=6818, memory=400, cpus=1, tracking=TRACKING["cgroup"] + "\nPrologFlags=Contain",
        accounting="AccountingStorageType=accounting_storage/none",
    ) | {"cgroup.conf": _CGROUP_2_CONF}  # fmt: skip
    for name, text in files.items():
        machine.write(f"{GUEST_FOLDER}/{name}", text)
    machine.run("sh", "-euc", _START)
    machine.wait("sinfo -h -o %T | grep -qx idle")


def scope_in(machine: Machine) -> str:
    """The unit of all its jobs."""
    return machine.run("hostname").stdout.strip() + "_slurmstepd.scope"


def stop_in(machine: Machine) -> None:
    """Ends its jobs and its servers; what holds the scope open between jobs is deaf to signals but this."""
    machine.run("sh", "-c", f"echo 1 > /sys/fs/cgroup/system.slice/{scope_in(machine)}/cgroup.kill")
    machine.run("systemctl", "stop", "slurmd", "slurmctld", "munge")


class Slurm:
    """One cluster of one node; its state lies below `folder`, which every user can enter."""

    def __init__(self, folder: Path, tracking: str = "linuxproc") -> None:
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        ports = dict(zip(("ctld", "d", "dbd", "sql"), free_ports(4), strict=True))
        self._ports = ports
        self._started: list[subprocess.Popen[bytes]] = []
        for name in ("state", "spool", "munge", "database", "out", "scripts"):
            (folder / name).mkdir()
        (folder / "out").chmod(0o1777)
        files = configuration(folder, host=self.host, memory=NODE_MEMORY, cpus=os.cpu_count(),
                              tracking=TRACKING[tracking], accounting=_WITH_DATABASE, **ports)  # fmt: skip
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "scripts" / "none").chmod(0o755)
        if tracking == "cgroup":
            (folder / "cgroup.conf").write_text(_CGROUP_CONF)
        (folder / "slurmdbd.conf").write_text(_DBD_CONF.format(folder=folder, host=self.host, **ports))
        (folder / "slurmdbd.conf").chmod(0o600)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find this cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Starts all of it, in the order in which one needs the other."""
        self._start_munge()
        self._start_database()
        self._serve("slurmdbd", "-D", port="dbd")
        self.run("sacctmgr", "-i", "add", "cluster", CLUSTER)
        self.run("sacctmgr", "-i", "add", "account", ACCOUNT, "Cluster=" + CLUSTER)
        for user in ("root", "nobody", "games"):
            self.run("sacctmgr", "-i", "add", "user", user, "Account=" + ACCOUNT)
        self._serve("slurmctld", "-D", "-c", port="ctld")
        self._serve("slurmd", "-D", "-N", self.host, port="d")
        wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"), START_SECONDS, "an idle node")

    def stop(self) -> None:
        """Ends its jobs and its servers, the last one first."""
        if len(self._started) >= 5:
            subprocess.run(["scancel", "--full", "-u", "root,nobody,games"], env=self.environment, check=False,
                           timeout=COMMAND_SECONDS, capture_output=True)  # fmt: skip
            end = time.monotonic() + 10
            while time.monotonic() < end and self._step_daemons():
                time.sleep(0.1)
        for server in reversed(self._started):
            server.send_signal(signal.SIGTERM)
            server.send_signal(signal.SIGCONT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(20)
        for pid in self._step_daemons():
            os.kill(pid, signal.SIGKILL)
        self._started.clear()
        for folder in Path("/sys/fs/cgroup").glob(f"*/slurm_{self.host}"):
            # Slurm leaves the groups of its node; the innermost go first.
            for path in sorted([folder, *folder.rglob("*/")], reverse=True):
                with suppress(OSError):
                    path.rmdir()

    def pause(self) -> None:
        """The controller and the database daemon go on existing and answer nothing."""
        for server in self._started[2:4]:
            server.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for server in self._started[2:4]:
            server.send_signal(signal.SIGCONT)

    def run(self, *command: str, user: str | None = None) -> str:
        """The output of a client of Slurm."""
        done = subprocess.run(command, env=self.environment, user=user, cwd=self.folder / "out", check=False,
                              capture_output=True, text=True, timeout=COMMAND_SECONDS)  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self._logs()}"
        return done.stdout

    def submit(self, script: str, *options: str, user: str | None = None) -> str:
        """Submits a shell script; returns the job's number."""
        told = self.run("sbatch", "--parsable", *options, "--wrap", script, user=user)
        return told.strip().split(";")[0]

    def wait_for(self, job: str, *states: str, seconds: float = COMMAND_SECONDS) -> None:
        """Waits until the database knows that a job is in one of these states."""
        wait_until(lambda: self.state(job) in states, seconds, f"job {job} in {states}", every=0.3)

    def state(self, job: str) -> str:
        told = self.run("sacct", "-X", "-n", "-P", "-D", "-j", job, "-o", "State")
        return told.split("\n")[-2].split(" ")[0] if told.strip() else ""

    def account(self, *columns: str) -> list[list[str]]:
        """Every line of sacct."""
        told = self.run(
            "sacct", "-a", "-n", "-P", "-D", "--noconvert", "-S", "now-1days", "-o", ",".join(columns)
        )
        return [line.split("|") for line in told.splitlines()]

    def _step_daemons(self) -> list[int]:
        """The slurmstepds that belong to this cluster, by the folder that is open in each."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    is_one = (entry / "comm").read_text() == "slurmstepd\n"
                    environ = (entry / "environ").read_bytes() if is_one else b""
                except OSError:
                    continue
                if str(self.folder).encode() in environ:
                    found.append(int(entry.name))
        return found

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        folder.chmod(0o711)
        command = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/socket",
                   f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"]  # fmt: skip
        self._begin("munged", command, user="munge")
        wait_until((folder / "socket").exists, START_SECONDS, "munge's socket")

    def _start_database(self) -> None:
        folder = self.folder / "database"
        for path in (folder, folder / "data", folder / "tmp"):
            path.mkdir(exist_ok=True)
            shutil.chown(path, "mysql", "mysql")
        base = ["--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}/tmp", "--user=mysql"]
        subprocess.run(["mariadb-install-db", *base, "--skip-test-db", "--auth-root-authentication-method=socket"],
                       check=True, capture_output=True, timeout=START_SECONDS)  # fmt: skip
        door = folder / "socket"
        start = folder / "start.sql"
        start.write_text("CREATE DATABASE slurm_acct; CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';"
                         "GRANT ALL ON slurm_acct.* TO slurm@'127.0.0.1';".replace(";", ";\n"))  # fmt: skip
        shutil.chown(start, "mysql", "mysql")
        self._begin("mariadbd", ["mariadbd", *base, f"--socket={door}", f"--port={self._ports['sql']}",
                                 "--bind-address=127.0.0.1", f"--pid-file={folder}/pid", f"--init-file={start}",
                                 "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"])  # fmt: skip
        wait_until(lambda: accepts(self._ports["sql"]), START_SECONDS, "the database")

    def _serve(self, name: str, *arguments: str, port: str) -> None:
        self._begin(name, [name, *arguments])
        wait_until(lambda: self._is_up(name, self._ports[port]), START_SECONDS, f"{name}: {self._logs()}")

    def _is_up(self, name: str, port: int) -> bool:
        if self._started[-1].poll() is not None:
            raise RuntimeError(f"{name} ended with {self._started[-1].returncode}: {self._logs()}")
        return accepts(port)

    def _begin(self, name: str, command: list[str], user: str | None = None) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            os.chmod(log.name, 0o666)
            self._started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    user=user,
                    group=user,
                    env=self.environment,
                    start_new_session=True,
                    cwd="/",
                )
            )

    def _logs(self) -> str:
        names = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        return "".join(f"\n{path.name}: {path.read_text(errors='replace')[-800:]}" for path in names)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Slurm]:
    """A cluster that runs; jobs are followed by their parents alone."""
    yield from running("linuxproc")


def running(tracking: str) -> Iterator[Slurm]:
    """A cluster that runs until the end of the generator."""
    need("slurm")
    # Jobs of other users run in it, and pytest's own folders are closed to them.
    with tempfile.TemporaryDirectory(prefix="vmsonar-slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        cluster = Slurm(folder, tracking)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
