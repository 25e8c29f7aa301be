"""Each thing is told once, and once when it is over, to everybody who is to hear it."""

import hashlib
import hmac
import json
import os
import shutil
import socketserver
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from vmsonar_archive.bundle.make import bundle_to_file
from vmsonar_archive.system.errors import UsageError, VmsonarError

from tests.archive.bundle.tls_server import Handler, running
from tests.fleet.messages import messages
from tests.fleet.place import Machines, Vm
from tests.making.machines import START, Load, Machine
from tests.real.certificates import make_authority
from vmsonar.config.quantities import Duration
from vmsonar.config.shipping import FleetSection, Hooks, Mail
from vmsonar.config.shipping import Watch as WatchSection
from vmsonar.daemon.log import Log
from vmsonar.fleet.holdings import read_holding, write_holding
from vmsonar.fleet.hooks import Messenger, Notice, Teller
from vmsonar.fleet.intake import Intake
from vmsonar.fleet.store import Fleet
from vmsonar.fleet.stream import Stream
from vmsonar.fleet.watch import Watch

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


class Told:
    """A fleet that is watched, and what a command was told."""

    def __init__(self, fleet: Fleet, folder: Path, **watch: object) -> None:
        self.time = datetime.fromisoformat("2026-11-16T14:00:00Z")
        self.fleet = fleet
        self.intake = Intake(fleet, now=lambda: self.time)
        self._path = folder / "told"
        command = [sys.executable, "-c", APPEND, str(self._path)]
        on = ["idle", "problem"] if "idle" in watch else ["lost"]
        self.settings = FleetSection(hooks=Hooks(command=command, on=on), watch=WatchSection(**watch))  # type: ignore[arg-type]
        self.watch = self.start()

    def start(self) -> Watch:
        return Watch(self.fleet, self.settings, Log("error"), lambda: self.time)

    def later(self, minutes: float, deaf: Iterable[str] = ()) -> None:
        """The collector looks every two minutes."""
        end = self.time + timedelta(minutes=minutes)
        while self.time < end:
            self.time = min(self.time + timedelta(minutes=2), end)
            self.watch.look(deaf)

    def restart(self, minutes: float) -> None:
        """Nobody looks for a while; then another collector does."""
        self.watch.close()
        self.time += timedelta(minutes=minutes)
        self.watch = self.start()
        self.watch.look()

    def ship(self, vm: Vm, times: int = 3) -> None:
        for _ in range(times):
            vm.record(20, seconds=45)
            assert self.intake.take(vm.increment(), "test").accepted
            self.later(15)

    @property
    def notices(self) -> list[tuple[str, str, bool]]:
        if not self._path.exists():
            return []
        told = map(json.loads, self._path.read_text().splitlines())
        return [(one["kind"], one["host"], one.get("over", False)) for one in told]


@pytest.fixture
def told(fleet: Fleet, tmp_path: Path) -> Iterator[Told]:
    made = Told(fleet, tmp_path)
    yield made
    made.watch.close()


def test_a_lost_machine_is_told_once_and_once_when_it_is_back(told: Told, vm: Vm) -> None:
    told.ship(vm)
    told.later(28)
    assert told.notices == []
    told.later(60)
    assert told.notices == [("lost", "vm0", False)]
    # A collector that takes over knows what was told, however long nobody looked.
    for pause in (0, 1, 2, 3, 10, 300):
        told.restart(pause)
        told.later(60)
        assert told.notices == [("lost", "vm0", False)]
    told.ship(vm, 1)
    told.later(5)
    assert told.notices == [("lost", "vm0", False), ("lost", "vm0", True)]
    told.later(60)
    assert told.notices[2:] == [("lost", "vm0", False)]
    # It came and went again while nobody looked: both are told.
    told.watch.close()
    vm.record(20, seconds=45)
    assert told.intake.take(vm.increment(), "test").accepted
    told.restart(200)
    told.later(60)
    assert told.notices[3:] == [("lost", "vm0", True), ("lost", "vm0", False)]


def test_what_our_own_source_does_not_bring_is_not_the_machines_silence(told: Told, vm: Vm) -> None:
    told.ship(vm)
    told.later(120, deaf=["test"])
    told.later(40)
    assert told.notices == []
    told.later(40, deaf=["another"])
    assert told.notices == [("lost", "vm0", False)]


def test_three_heartbeats_where_kafka_runs(told: Told, machines: Machines) -> None:
    """What is filed every half minute is missed after one and a half minutes."""
    quiet, talking = machines(), machines()
    streams = {vm: Stream(told.intake) for vm in (quiet, talking)}
    sent: dict[Vm, int] = dict.fromkeys(streams, 0)

    def beat(*vms: Vm) -> None:
        told.time += timedelta(seconds=30)
        for vm in vms:
            vm.record(3)
            for message in (made := messages(vm.root))[sent[vm] :]:
                streams[vm].add(*message)
            sent[vm] = len(made)
            assert streams[vm].flush().records >= 3
        told.watch.look()

    for _ in range(6):
        beat(quiet, talking)
    for _ in range(3):
        beat(talking)
    assert told.notices == []
    beat(talking)
    assert told.notices == [("lost", "vm0", False)]


@pytest.mark.slow
def test_thousands_of_dead_machines_cost_nothing(told: Told, vm: Vm) -> None:
    told.ship(vm)
    holding = read_holding(told.fleet, vm.archive)
    assert holding is not None
    root = told.fleet.archive(vm.archive)
    for _ in range(3000):
        other = str(uuid4())
        shutil.copytree(root, told.fleet.archive(other), copy_function=os.link)
        write_holding(told.fleet, msgspec.structs.replace(holding, archive=other))
    heard: list[Notice] = []
    told.watch._messengers = {"command": Messenger(heard.append)}
    looks = []
    told.time += timedelta(minutes=1)
    for _ in range(600):
        told.time += timedelta(seconds=100)
        began = time.process_time()
        told.watch.look()
        looks.append(time.process_time() - began)
        if len(heard) > 3000:
            break
    assert {one.archive for one in heard} == set(told.fleet.ids())
    # A look at them all, a second of farewells, three likely causes.
    assert max(looks) < 6.0, looks
    began = time.process_time()
    for _ in range(10):
        told.time += timedelta(seconds=100)
        told.watch.look()
    assert (time.process_time() - began) / 10 < 0.25
    assert len(heard) == 3001


def test_only_one_collector_tells(told: Told, machines: Machines) -> None:
    vm = machines()
    told.ship(vm)
    other = told.start()
    told.later(60)
    for _ in range(3):
        other.look()
    assert told.notices == [("lost", "vm0", False)]


def test_an_idle_machine_and_a_problem_are_told_until_they_are_over(fleet: Fleet, tmp_path: Path) -> None:
    told = Told(fleet, tmp_path, idle=Duration(600), judge=Duration(60), shipping=Duration(36000))
    lives = (Machine(), Machine(loads=[Load(100, "train", cores=2.0)], start=START + timedelta(hours=1)))
    for number, life in enumerate(lives):
        path = tmp_path / f"{number}.tar"
        bundle_to_file(life.record(tmp_path / "vm", 1800), path)
        assert told.intake.take(path, "test").accepted
        told.later(4)
    idle = [notice for notice in told.notices if notice[0] == "idle"]
    assert idle == [("idle", "vm-one", False), ("idle", "vm-one", True)]
    told.watch.close()


def test_what_could_not_be_told_is_told_later(told: Told, vm: Vm, tmp_path: Path) -> None:
    told.ship(vm)
    (tmp_path / "told").mkdir()  # the command fails
    told.later(60)
    (tmp_path / "told").rmdir()
    told.later(6)
    assert told.notices == [("lost", "vm0", False)]


def test_a_way_that_hangs_holds_up_neither_the_watch_nor_another_way() -> None:
    never, told = threading.Event(), []
    hangs, works = Messenger(lambda _: never.wait(60)), Messenger(told.append)
    begin = time.monotonic()
    some = [msgspec.structs.replace(NOTICE, archive=str(number)) for number in range(3)]
    for notice in some:
        assert hangs.tell([NOTICE], NOTICE.time) == [NOTICE]
        assert works.tell([notice], NOTICE.time) == []
    assert time.monotonic() - begin < 10
    assert told == some
    never.set()


def test_what_arrived_between_two_looks_is_not_told_again() -> None:
    told: list[Notice] = []
    slow = Messenger(lambda notice: told.append(notice) if arrive.wait(30) else None)
    arrive = threading.Event()
    assert slow.tell([NOTICE], NOTICE.time) == [NOTICE]
    arrive.set()
    assert slow._thread is not None
    slow._thread.join(30)
    assert slow.tell([NOTICE], NOTICE.time) == []
    assert told == [NOTICE]


NOTICE = Notice(
    kind="lost",
    archive="a",
    host="vm\nBcc: x",
    time=datetime.fromisoformat("2026-11-16T14:00:00Z"),
    says="gone",
)


def test_a_webhook_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority(tmp_path / "ca")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    monkeypatch.setattr(Handler, "do_POST", Handler.do_PUT, raising=False)
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("key\n")
    with running(authority.issue("hooks")) as server:
        hooks = Hooks(webhook=server.url("hook"), webhook_secret_file=str(secret))
        Teller(hooks).tell("webhook", NOTICE)
        server.plan = ["500"]
        with pytest.raises(VmsonarError, match="500"):
            Teller(hooks).tell("webhook", NOTICE)
    body = server.stored["/bucket/hook"]
    headers = server.requests[0][2]
    expected = hmac.new(
        b"key", headers["X-Vmsonar-Timestamp"].encode() + b"." + body, hashlib.sha256
    ).hexdigest()
    assert headers["X-Vmsonar-Signature"] == f"sha256={expected}"
    assert json.loads(body)["kind"] == "lost"


def test_a_webhook_without_tls_is_refused() -> None:
    with pytest.raises(UsageError):
        Teller(Hooks(webhook="http://example.org/hook"))


class Smtp(socketserver.StreamRequestHandler):
    """The least that a client of RFC 5321 needs."""

    received: list[bytes]

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                while (text := self.rfile.readline()) != b".\r\n":
                    self.received.append(text)
            self.wfile.write(b"250 ok\r\n" if word != b"QUIT" else b"221 bye\r\n")
            if word == b"QUIT":
                return


def test_mail_is_sent_and_foreign_names_are_no_headers() -> None:
    Smtp.received = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        mail = Mail(to=["ops@example.org"], server=f"127.0.0.1:{server.server_address[1]}")
        Teller(Hooks(mail=mail)).tell("mail", NOTICE)
        server.shutdown()
        thread.join(10)
    text = b"".join(Smtp.received).decode()
    head, _, _ = text.partition("\r\n\r\n")
    assert "To: ops@example.org" in head
    assert not any(line.startswith("Bcc") for line in head.splitlines())
    with pytest.raises(UsageError):
        Teller(Hooks(mail=Mail(to=["a@b"], username="me", password_file="/x")))
    for server in ("localhost", "localhost:", "localhost:smtp", ":25"):
        with pytest.raises(UsageError, match="host:port"):
            Teller(Hooks(mail=Mail(to=["a@b"], server=server)))
