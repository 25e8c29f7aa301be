"""A forwarder of OTLP that is started again after every sample sends what one that ran on would have sent."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmsonar_archive.dialect.otlp import parts
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.records import JobInfoRow, JobRow, NetfsRow

from tests.making.worlds import SECOND_BOOT, Machine
from vmsonar.config.shipping import Forward
from vmsonar.forward.feed import Feed
from vmsonar.forward.messages import Fate, ForwardMessage, Outcome, Sender
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.pump import Caution, Pump
from vmsonar.forward.state import Cursor

JOBS, PLACES = 12, 3


class Keeps(Sender):
    """Acknowledges everything and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self._waiting: list[int] = []

    def submit(self, message: ForwardMessage, token: int) -> None:
        self.taken.append(message.value)
        self._waiting.append(token)

    def wait(self, seconds: float) -> list[Outcome]:
        tokens, self._waiting = self._waiting, []
        return [Outcome(token, Fate.ACKNOWLEDGED) for token in tokens]

    def close(self) -> list[Outcome]:
        return []


class Busy(Machine):
    """More jobs than places, each the busiest in its turn; a share; disks that are taken away and come back."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        rows, up = super().rows(fresh), self.uptime
        if self.devices_since <= up < self.devices_since + 150:
            rows["disk"] = rows["net"] = []
        for pgid in range(1, JOBS + 1):
            of = {"pgid": pgid, "start_ticks": pgid * 100}
            ticks = round(up * pgid + 50 * max(0.0, min(300.0, up - 150 * pgid)))
            rows["job"].append(JobRow(**of, processes=1, user_ticks=ticks, system_ticks=0))
            if fresh:
                rows["job_info"].append(
                    JobInfoRow(**of, series_id=f"s{pgid}", job_id=str(pgid), program="p", user_name="anna")
                )
        if round(up) // 20 % 3 == 0:
            share = {"device_major": 0, "device_minor": 50, "mount_point": "/home", "fs_type": "nfs4"}
            rows["netfs"] = [NetfsRow(**share, age=int(up - 42.7), read_operations=round(up))]
        return rows


def sent(root: Path, cursor: Cursor) -> list[bytes]:
    """What a new forwarder sends from there on."""
    plan, identity, sender = (
        ForwardPlan(Forward(to="otlp", url="http://127.0.0.1:1"), PLACES),
        read_identity(root),
        Keeps(),
    )
    with closing(Feed(root, identity, cursor, print)) as feed:
        translator = plan.translator(identity, cursor)
        pump = Pump(feed, translator, sender, plan.topics, cursor, root, print, Caution())
        while not pump.is_done:
            pump.step(0)
    return sender.taken


@pytest.mark.parametrize("upto", [40, 70])
def test_what_is_sent_does_not_depend_on_restarts(tmp_path: Path, upto: int):
    machine = Busy(tmp_path / "archive", container_start=105.0)
    machine.start_daemon()
    cursor, found = Cursor(archive=read_identity(machine.root).archive), list[bytes]()
    for number in range(upto):
        if number == 8:
            machine.devices_since = machine.uptime + 5  # and they are away for longer than anybody remembers
        if number == 35:
            machine.container_start = machine.uptime + 2
        if number == 37:
            machine.stop_daemon()
            machine.reboot(SECOND_BOOT)
            machine.devices_since = 0.0
            machine.start_daemon()
        machine.run(1, seconds=19.7)
        found += sent(machine.root, cursor)
        cursor = msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
    machine.stop_daemon()
    whole = sent(machine.root, Cursor(archive=cursor.archive))
    assert [sorted(parts(body)) for body in found] == [sorted(parts(body)) for body in whole]
