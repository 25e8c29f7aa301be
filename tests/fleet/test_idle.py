"""Idle only when all of the time is known and nothing happened in it."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from vmsonar_archive.read.idleness import Activity, idleness
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import GapRow, NetRow

from tests.making.machines import START, Load, Machine
from vmsonar.cli import run

HOUR = 3600.0
NOW = START + timedelta(seconds=HOUR)
SPAN = timedelta(minutes=30)

MACHINES: dict[str, tuple[Machine, Activity]] = {
    "nothing runs": (Machine(), Activity.IDLE),
    "it worked before": (Machine(loads=[Load(100, "train", end=1500, cores=4.0)]), Activity.IDLE),
    "one core of many": (Machine(loads=[Load(100, "train", cores=1.0)], cpus=64), Activity.ACTIVE),
    "a burst of a minute": (Machine(loads=[Load(100, "build", begin=3000, end=3060, cores=4.0)]), Activity.ACTIVE),
    "a download": (Machine(received=5e6), Activity.ACTIVE),
    "a hole": (Machine(silent=((2400, 2900),)), Activity.UNKNOWN),
    "begun just now": (Machine(silent=((0, 2400),)), Activity.UNKNOWN),
    "stopped": (Machine(silent=((3200, 3700),)), Activity.UNKNOWN),
    "blind": (
        Machine(gaps=[(3000, GapRow(collector="gpu", reason="permission"))]),
        Activity.UNKNOWN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_idleness(name: str, tmp_path: Path) -> None:
    machine, expected = MACHINES[name]
    answer = idleness(machine.record(tmp_path / "archive", HOUR), SPAN, NOW)
    assert answer.activity is expected, answer


def test_the_exit_code_is_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an archive that ended long ago nothing is known now."""
    Machine().record(tmp_path / "archive", 600)
    assert run(["idle", "--archive", str(tmp_path / "archive"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["activity"] == "unknown"
    assert run(["idle", "--for", "1s", "--archive", str(tmp_path / "archive")]) == 2


@pytest.mark.parametrize(
    "rows",
    [
        lambda second: [NetRow(interface="eth0", sent_bytes=0)],
        lambda second: [NetRow(interface="eth0", received_bytes=int(3e6 - second), sent_bytes=0)],
        lambda second: [NetRow(interface="eth0", received_bytes=0, sent_bytes=0)] if second < 3000 else [],
    ],
    ids=["null", "reset", "gone"],
)
def test_a_counter_that_does_not_tell_is_no_idleness(
    rows: Callable[[float], list[NetRow]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Machine().record(tmp_path / "archive", HOUR)
    with open_archive(root) as archive:
        samples = list(archive.samples())
    for sample in samples:
        sample.net = rows((sample.time - START).total_seconds())
    monkeypatch.setattr("vmsonar_archive.read.reader.Archive.samples", lambda *_, **__: iter(samples))
    assert idleness(root, SPAN, NOW).activity is Activity.UNKNOWN
