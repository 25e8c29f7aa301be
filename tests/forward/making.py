"""Archives to forward, a configuration to do it with, and the topics as kcat, which we did not write, reads them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import CpuRow, JobInfoRow, NodeRow, ProcessInfoRow, ProcessRow, SysInfo
from vmsonar_archive.writer import ArchiveWriter

from tests.archive.making import BOOT, START, open_writer
from tests.real.kafka import KafkaBroker, User

SEPARATOR = "\x1e"


def sysinfo(**fields: object) -> SysInfo:
    settings = {
        "time": START, "seq": 0, "run": "", "boot": BOOT, "boottime": 10**15, "cpus": 2, "sockets": 1,
        "cores_per_socket": 2, "threads_per_core": 1, "numa_nodes": 1, "memory_total": 2**33, "cpu_model": "EPYC",
        "hostname_full": "vm.example", "hostname_short": "vm", "kernel_release": "6.1", "architecture": "x86_64",
        "ticks_per_second": 100, "booted": START - timedelta(seconds=10**6), "interval": 10_000,
    }  # fmt: skip
    return SysInfo(**{**settings, **fields})  # type: ignore[arg-type]


def rows(number: int, processes: int, fresh: bool) -> dict[str, list[bytes]]:
    """A node with so many processes in jobs of three; infos only where the writer begins a segment."""
    node = NodeRow(user_ticks=100 * number, load1=0.25, memory_total=2**33, memory_available=2**32)
    table = [
        ProcessRow(pid=pid, start_ticks=pid, pgid=pid - pid % 3, ppid=1, state="S", threads=2, resident=2**24,
                   user_ticks=number * pid, system_ticks=number, shared=2**20, read_bytes=4096 * number)
        for pid in range(10, 10 + processes)
    ]  # fmt: skip
    answer = {
        "node": [encode_row(node)],
        "cpu": [encode_row(CpuRow(cpu_index=index, user_ticks=number)) for index in range(2)],
        "process": [encode_row(row) for row in table],
    }
    if fresh:
        infos = [ProcessInfoRow(series_id=f"p{row.pid}", pid=row.pid, start_ticks=row.start_ticks, user_name="alice",
                                user_id=1000, program="python3") for row in table]  # fmt: skip
        jobs = [JobInfoRow(series_id=f"j{pgid}", pgid=pgid, start_ticks=1, job_id=str(pgid), job_source="process_group")
                for pgid in sorted({row.pgid or 0 for row in table})]  # fmt: skip
        answer["process_info"] = [encode_row(info) for info in infos]
        answer["job_info"] = [encode_row(info) for info in jobs]
    return answer


class Recorder:
    """Appends samples ten seconds apart, as the daemon would."""

    def __init__(self, root: Path, processes: int = 6, start: datetime = START, **settings: object) -> None:
        self.root = root
        self.processes = processes
        self.time = start
        self.number = 0
        self.is_closed = False
        #: The numbers of all samples ever appended.
        self.samples: list[int] = []
        self._settings = {"now": lambda: self.time, **settings}
        self.writer = self._open()

    def _open(self) -> ArchiveWriter:
        writer = open_writer(self.root, **self._settings)
        writer.append_sysinfo(sysinfo(time=self.time, boottime=self._boottime()))
        return writer

    def _boottime(self) -> int:
        return int((self.time - START).total_seconds() * 1e9) + 10**15

    def record(self, count: int, processes: int | None = None) -> None:
        for _ in range(count):
            fresh = self.writer.begins_segment(self.time)
            table = rows(self.number, self.processes if processes is None else processes, fresh)
            self.samples.append(self.writer.append(self.time, BOOT, self._boottime(), table))
            self.time += timedelta(seconds=10)
            self.number += 1

    def restart(self) -> None:
        assert self.writer.close()
        self.writer = self._open()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self.writer.close()


def make_day(root: Path, samples: int = 8640, processes: int = 6) -> Path:
    recorder = Recorder(root, processes)
    recorder.record(samples)
    recorder.close()
    return root


def seqs_of(root: Path, kind: str = "sample") -> list[int]:
    from vmsonar_archive.reader import open_archive

    with open_archive(root) as archive:
        records = archive.samples() if kind == "sample" else archive.sysinfos()
        return [record.seq for record in records]


def kafka_config(broker: KafkaBroker, cluster: str, user: User | None = None, **extra: Any) -> dict[str, Any]:
    """The section `forward` for a broker; `user` needs a file with its password."""
    if user is None:
        return {"brokers": [broker.plaintext], "cluster": cluster, "tls": {"use": "none"}, **extra}
    return {"brokers": [broker.secure], "cluster": cluster, "auth": user.mechanism.lower(), "username": user.name,
            "tls": {"ca_file": str(broker.authority.certificate)}, **extra}  # fmt: skip


class Place:
    """A folder with a configuration, the state of a forwarder and its archive."""

    def __init__(self, folder: Path, forward: dict[str, Any], archive: Path | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.archive = archive or folder / "archive"
        self.state = folder / "state"
        self.config = folder / "config.yaml"
        self.configure(forward)

    def configure(self, forward: dict[str, Any]) -> None:
        self.forward = {"state": str(self.state), **forward}
        self.config.write_text(json.dumps({"archive": str(self.archive), "forward": self.forward}))

    def secret(self, name: str, content: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(content + "\n")
        return str(path)

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "vmsonar", "forward", "--config", str(self.config), *options]

    def once(self, *options: str, timeout: str = "60s", **settings: Any) -> subprocess.CompletedProcess[str]:
        settings.setdefault("env", {**os.environ})
        return subprocess.run(self.command("--once", "--timeout", timeout, *options), capture_output=True, text=True,
                              timeout=170, check=False, **settings)  # fmt: skip

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(self.command(*options), stderr=log, stdout=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def cursor(self) -> dict[str, Any]:
        return json.loads((self.state / "cursor.json").read_bytes())

    @property
    def status(self) -> dict[str, Any]:
        return json.loads((self.state / "status.json").read_bytes())


def consume(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """Every message of a topic, in order, with its headers."""
    form = f"%k\x1f%h\x1f%s{SEPARATOR}"
    line = ["kcat", "-C", "-b", broker.plaintext, "-t", topic, "-o", "beginning", "-e", "-q", "-f", form]
    done = subprocess.run(line, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    messages = []
    for text in done.stdout.decode().split(SEPARATOR)[:-1]:
        key, headers, value = text.split("\x1f")
        messages.append(
            {"key": key, "value": value, **dict(pair.split("=", 1) for pair in headers.split(","))}
        )
    return messages


def identities(messages: list[dict[str, Any]]) -> list[tuple[str, str, str, int, str]]:
    return [(m["archive"], m["run"], m["boot"], int(m["seq"]), m.get("part", "")) for m in messages]


def first_seen(messages: list[dict[str, Any]]) -> list[int]:
    """The numbers in the order in which each turned up first."""
    return list(dict.fromkeys(int(message["seq"]) for message in messages))
