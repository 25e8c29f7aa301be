"""A fleet of three machines with jobs of two people, and a server over it in this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.records import EventRow

from tests.making.machines import GIB, START, Box, Load, Machine, box_id, gpu_id
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.serve.access import Access, Authenticator, Rights, Token, new_token
from vmsonar.fleet.serve.app import Server
from vmsonar.fleet.serve.connection import Connection
from vmsonar.fleet.serve.prepared import Prepared
from vmsonar.fleet.serve.preparer import Preparer
from vmsonar.fleet.serve.uploads import Uploads
from vmsonar.fleet.store import Fleet, open_fleet

#: Words that nobody but bert and those who see his machines may read.
HIS = ("bert", "secret-work", "secret-box", "secret-image", "vm-his")
NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
SECONDS = 900.0


def shared() -> Machine:
    """Both work here; bert keeps anna waiting, and one of his jobs is killed."""
    box = Box(box_id(7), "secret-box", image="secret-image", user="bert", oom_at=600.0, limit=2 * GIB)
    his = [
        Load(
            200, "./secret-work", user="bert", begin=0, cores=1.8, workers=(1.0,) * 8, memory=3 * GIB, state="R",
            gpu={gpu_id(0): 20.0},
        ),
        Load(300, "secret-work.py", user="bert", begin=0, end=600, cores=0.0, container=box.container_id),
    ]  # fmt: skip
    killed = (700.0, EventRow(event_type="exit", subject="process", pgid=200, pid=200, exit_code=3))
    return machine_with(his, boxes=[box], events=[killed])


def shared_with_others() -> Machine:
    """The same for anna: she waits as long, for several people of whom none does what bert did."""
    loads = [
        Load(
            pgid,
            command,
            user=user,
            begin=0,
            cores=cores,
            workers=workers,
            memory=memory * GIB,
            state="R",
            gpu={gpu_id(0): 20.0} if user == "carl" else {},
        )
        for pgid, command, user, cores, workers, memory in (
            (210, "./render", "carl", 0.6, (1.0,) * 3, 1.0),
            (220, "./train", "dora", 0.7, (1.0,) * 4, 1.5),
            (230, "make", "dora", 0.5, (1.0,), 0.5),
        )
    ]
    return machine_with(loads)


def machine_with(others: list[Load], **more: Any) -> Machine:
    hers = Load(100, "./solve", begin=0, cores=0.2, memory=1 * GIB, state="R", gpu={gpu_id(0): 40.0})
    return Machine(
        hostname="vm-shared",
        machine_id=f"{1:032x}",
        instance_id="i-1",
        cpus=2,
        memory=8 * GIB,
        gpus=(gpu_id(0),),
        pressure={"cpu": 0.9},
        runnable=9,
        loads=[hers, *others],
        **more,
    )


def his() -> Machine:
    load = Load(100, "./secret-work", user="bert", begin=0, cores=1.0)
    return Machine(hostname="vm-his", machine_id=f"{2:032x}", instance_id="i-2", loads=[load])


def hers() -> Machine:
    load = Load(100, "./alone", begin=0, cores=0.1, memory=2 * GIB)
    return Machine(
        hostname="vm-hers", machine_id=f"{3:032x}", instance_id="i-3", loads=[load], silent=((300, 500),)
    )


def file_machine(fleet: Fleet, machine: Machine, scratch: Path) -> str:
    """Puts a machine's archive into the fleet; returns its id."""
    root = machine.record(scratch / machine.hostname, SECONDS)
    archive = read_identity(root).archive
    root.rename(fleet.archive(archive))
    return archive


def make_fleet(folder: Path, *machines: Machine) -> tuple[Fleet, dict[str, str]]:
    """The fleet, and the archive of each host."""
    fleet = open_fleet(folder / "fleet", create=True)
    machines = machines or (shared(), his(), hers())
    return fleet, {machine.hostname: file_machine(fleet, machine, folder) for machine in machines}


@dataclass
class Site:
    """A server, and how to ask it."""

    fleet: Fleet
    prepared: Prepared
    preparer: Preparer
    uploads: Uploads
    server: Server
    client: httpx.Client
    tokens: dict[str, str]
    denied: list[str]

    def ask(self, who: str, path: str, **parameters: Any) -> Any:
        """An answer in this role."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return self.client.get(path, params=parameters, headers=headers)

    def rows(self, who: str, view: str, **parameters: Any) -> list[Any]:
        answer = self.ask(who, f"/api/v1/{view}", **parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()["rows"]

    def catch_up(self) -> None:
        while self.preparer.catch_up():
            pass


PEOPLE = {
    "admin": Rights(role="admin"),
    "anna": Rights(role="user", user="anna"),
    "bert": Rights(role="user", user="bert"),
    "hers": Rights(role="project", machines=["vm-her*"]),
    "vm": Rights(role="upload"),
    "one-vm": Rights(role="upload", machine=f"{1:032x}"),
}


def site_of(fleet: Fleet, state: Path, **settings: Any) -> Iterator[Site]:
    """Serves a fleet in this process."""
    made = {name: new_token() for name in PEOPLE}
    tokens = [
        Token(name=name, sha256=made[name][1], role=rights.role, user=rights.user, machines=rights.machines,
              machine=rights.machine)
        for name, rights in PEOPLE.items()
    ]  # fmt: skip
    prepared, denied = Prepared(state / "answers.db"), []
    prepared.create()
    preparer = Preparer(fleet, prepared, denied.append)
    uploads = Uploads(Intake(fleet), state, url="https://fleet.example", **settings)
    server = Server(
        prepared, Authenticator(Access(tokens=tokens)), preparer, uploads, denied.append, now=lambda: NOW
    )
    with listening(server) as address, httpx.Client(base_url=address, timeout=30) as client:
        secrets = {name: token for name, (token, _) in made.items()}
        yield Site(fleet, prepared, preparer, uploads, server, client, secrets, denied)


@contextmanager
def listening(server: Server) -> Iterator[str]:
    """The server behind a real port; its address."""
    place = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.application(), http=Connection, log_level="error", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{place.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(10)
        place.close()


assert START.date() == NOW.date()
