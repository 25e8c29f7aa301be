"""The server: what a machine's day costs to prepare, and how quickly ten readers are answered over a large fleet.

Real recordings are prepared as the server does it; their rows are then those of a thousand machines and seven days,
under other names. No list and no job is asked for twice with the same words; the fleet is asked about as its page does,
all of it or its last days, while days of machines are prepared all the time.
"""

import asyncio
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from bench import Figure
from tests.making.load import START, make_archive
from vmsonar.fleet.serve.prepare import Task, prepare
from vmsonar.fleet.serve.prepared import COLUMNS, Prepared
from vmsonar.fleet.serve.preparer import day_stamps

_MACHINES, _DAYS = 1000, 7
#: Recorded, each for a day; every job stands for three.
_RECORDED, _COPIES = 4, 3
_READERS, _ASKED = 10, 60

_SERVE = """
import sys, uvicorn
from pathlib import Path
from types import SimpleNamespace
from vmsonar.fleet.serve.access import Access, Authenticator
from vmsonar.fleet.serve.app import Server
from vmsonar.fleet.serve.prepared import Prepared
place = Path(sys.argv[1])
preparer = SimpleNamespace(waiting=0, fleet=SimpleNamespace(state=place.parent))
server = Server(Prepared(place), Authenticator(Access(), open_to_all=True), preparer, None, print)
uvicorn.run(server.application(), port=int(sys.argv[2]), log_level="error", lifespan="off")
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="vmsonar-bench-") as folder:
        root = Path(folder)
        prepared = Prepared(root / "state" / "answers.db")
        prepared.create()
        task = _recorded(root)
        return [*_preparing(task, prepared), *_answers(task, prepared)]


def _recorded(root: Path) -> Task:
    """A day of some machines."""
    archives = {}
    for number in range(_RECORDED):
        path = make_archive(root / str(number), 8639, 30, seed=number + 1)
        identity = json.loads((path / "archive.json").read_text()) | {"hostname_short": f"vm{number}"}
        (path / "archive.json").write_text(json.dumps(identity))
        archives[identity["archive"]] = str(path)
    os.environ["VMSONAR_CACHE"] = str(root / "cache")
    day = START.date()
    return Task(
        day, True, archives, {archive: day_stamps(Path(path))[day] for archive, path in archives.items()}
    )


def _preparing(task: Task, prepared: Prepared) -> Iterator[Figure]:
    for name in ("first look", "from tables"):
        begin = _cpu()
        prepare(task, prepared)
        yield Figure(f"a machine's day prepared, {name}: CPU", (_cpu() - begin) / _RECORDED, "s")
    assert all(problem is None for _, _, problem in prepared.units().values())
    rows = _multiply(prepared, sorted(task.archives))
    yield Figure("machines", _MACHINES, "")
    yield Figure("jobs", rows, "")
    yield Figure("prepared answers", prepared.path.stat().st_size / 2**20, "MiB")


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _multiply(prepared: Prepared, archives: list[str]) -> int:
    """Makes the rows of a few machines those of many, on many days."""
    place = {name: at for at, name in enumerate(COLUMNS)}
    marks = ", ".join("?" * len(COLUMNS))
    with sqlite3.connect(prepared.path) as connection:
        known = {
            archive: connection.execute("SELECT * FROM answer WHERE archive = ?", (archive,)).fetchall()
            for archive in archives
        }
        connection.execute("DELETE FROM answer")
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for machine in range(_MACHINES):
            old = archives[machine % len(archives)]
            new = str(UUID(int=machine + (4 << 76) + (8 << 60)))
            made = [
                _other(row, place, old, new, day, copy)
                for row in known[old]
                for day in range(_DAYS)
                for copy in range(_COPIES if row[place["kind"]] in ("job", "story") else 1)
                if row[place["day"]] or row[place["kind"]] == "job" or day == 0
            ]
            connection.executemany(f"INSERT INTO answer VALUES ({marks})", made)
        for _, sql in indexes:
            connection.execute(sql)
        (count,) = connection.execute(
            "SELECT COUNT(*) FROM answer WHERE kind = 'job' AND day = ''"
        ).fetchone()
    with sqlite3.connect(prepared.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(count)


def _other(
    row: tuple[object, ...], place: dict[str, int], old: str, new: str, day: int, copy: int
) -> tuple[object, ...]:
    values = list(row)
    kind, name, doc = row[place["kind"]], str(row[place["id"]]), row[place["doc"]]
    values[place["archive"]] = new
    if row[place["day"]]:
        values[place["day"]] = str(date.fromisoformat(str(row[place["day"]])) + timedelta(days=day))
    if kind in ("job", "story"):
        values[place["id"]] = f"{name[:-4]}{day}{copy}{name[-2:]}"
        if isinstance(cpu := row[place["cpu"]], float):
            values[place["cpu"]] = cpu * random.uniform(0.5, 1.5)
    elif kind == "machine" and isinstance(doc, bytes):
        # What the page of the fleet looks machines up by.
        values[place["doc"]] = zlib.compress(zlib.decompress(doc).replace(old.encode(), new.encode()), 1)
    for moment in ("first", "last"):
        if isinstance(at := values[place[moment]], float) and (row[place["day"]] or kind == "job"):
            values[place[moment]] = at + 86_400 * day
    return tuple(values)


def _answers(task: Task, prepared: Prepared) -> list[Figure]:
    with prepared.writing() as connection:
        jobs = connection.execute(
            "SELECT archive, id FROM answer WHERE kind = 'job' AND day = '' ORDER BY RANDOM() LIMIT 500"
        ).fetchall()
    port = 18060
    process = subprocess.Popen([sys.executable, "-c", _SERVE, str(prepared.path), str(port)])
    try:
        found = asyncio.run(_load(task, prepared, port, jobs))
        memory = _peak(process.pid)
    finally:
        process.terminate()
        process.wait()
    figures = []
    for name, times in found.items():
        times.sort()
        middle, high = times[len(times) // 2], times[int(len(times) * 0.95)]
        figures += [
            Figure(f"{name}, ten readers: median", middle * 1000, "ms", 100),
            Figure(f"{name}, ten readers: 95th percentile", high * 1000, "ms", 300),
        ]
    return [*figures, Figure("the server's memory, at most", memory, "MB", 1000)]


def _peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


async def _change(task: Task, prepared: Prepared) -> None:
    """What the server's preparer does, in a child as there: days of machines are prepared, with no pause."""
    command = (sys.executable, "-m", "vmsonar.fleet.serve.prepare", str(prepared.path))
    while True:
        child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE)
        try:
            await child.communicate(msgspec.json.encode(task))
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


async def _load(
    task: Task, prepared: Prepared, port: int, jobs: list[tuple[str, str]]
) -> dict[str, list[float]]:
    for _ in range(100):
        try:
            await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.1)
    chance = random.Random(1)
    begin = START.date()

    def span() -> str:
        """A time that nobody asked for before."""
        first = begin + timedelta(days=chance.randrange(_DAYS))
        return f"from={first}T00:00:{chance.random() * 59:09.6f}Z"

    def job_list() -> str:
        more = ["", f"&user=user{chance.randrange(5)}", "&program=Python"][chance.randrange(3)]
        sort = ["cpu", "cpu", "memory", "start", "runtime"][chance.randrange(5)]
        return f"/api/v1/jobs?{span()}&sort={sort}&offset={100 * chance.randrange(5)}{more}"

    def one_job() -> str:
        archive, series = jobs[chance.randrange(len(jobs))]
        return f"/api/v1/jobs/{archive}/{series}?{span()}"

    times = ["", f"from={begin + timedelta(days=_DAYS - 1)}T00:00:00Z", f"from={begin}T00:00:00Z"]
    kinds = {
        "job list": job_list,
        "one job": one_job,
        "fleet (API)": lambda: f"/api/v1/fleet?{chance.choice(times)}",
        "fleet (page)": lambda: f"/?{chance.choice(['', 'last=7d'])}",
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}

    async def read(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            name = chance.choice(list(kinds))
            began = time.perf_counter()
            writer.write(f"GET {kinds[name]()} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head[:20], head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            found[name].append(time.perf_counter() - began)

    changing = asyncio.create_task(_change(task, prepared))
    await asyncio.gather(*(read(_ASKED) for _ in range(_READERS)))
    changing.cancel()
    await asyncio.wait([changing])
    return found
