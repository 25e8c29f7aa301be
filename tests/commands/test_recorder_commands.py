"""sample, sysinfo, status and doctor, through the command line."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from vmsonar_archive.format.identity import NodeIdentity
from vmsonar_archive.format.lines import checked, decode_sample
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Capability, CostRow, EventRow, GapRow, SysInfo
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.write.budget import Budget

from tests.daemon.running import daemon, wait_for
from tests.making.archives import open_writer, utc_now
from tests.parts import requires
from vmsonar import cli
from vmsonar.collectors.base import Rows
from vmsonar.collectors.process.model import DENIED
from vmsonar.collectors.process.table import process_capabilities
from vmsonar.collectors.registry import COLLECTORS
from vmsonar.config.schema import Collectors, Config
from vmsonar.daemon.once import append_one
from vmsonar.health import doctor
from vmsonar.health.status import Brief, Status, cpu_share, status
from vmsonar.host.clock import Clock

CONFIG = "collectors: {process: none, gpu: none, container: none, energy: none}\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_sample_prints_one_record(config, capfdbinary):
    assert cli.run(["sample", "--config", config]) == 0
    out = capfdbinary.readouterr().out
    assert out.endswith(b"\n")
    sample = decode_sample(checked(out.rstrip(b"\n")))
    assert sample.node[0].cpus_online == os.cpu_count()
    assert {row.cpu_index for row in sample.cpu} == set(range(os.cpu_count()))


def test_cron_makes_a_valid_archive_that_is_merged(tmp_path, config):
    """Samples of two hours, one per process in real life: the finished hour becomes one segment."""
    archive = tmp_path / "archive"
    start = Clock().now() - timedelta(hours=2)
    node = NodeIdentity(machine_id=_machine_id())
    for minute in range(5):
        writer = open_writer(archive, node=node, now=lambda: start)
        writer.append(start + timedelta(seconds=minute), "b", minute, Rows().by_kind)
        writer.close()
    for _ in range(2):
        assert cli.run(["sample", "--archive", str(archive), "--config", config]) == 0
    with open_archive(archive) as opened:
        segments = opened.segments("sample")
        found = list(opened.samples())
        infos = list(opened.sysinfos())
    assert len(found) == 7
    assert len({sample.run for sample in found}) == 7
    assert [sample.seq for sample in found] == sorted(sample.seq for sample in found)
    assert len(segments) == 3, "five of the finished hour are one, two are of the present one"
    assert all(segment.sealed for segment in segments)
    assert len(infos) == 1, "once a day is enough"
    assert verify_path(archive).ok


def _machine_id():
    from vmsonar.host.identity import node_identity

    return node_identity(Config().host).machine_id


def test_sample_is_refused_while_a_daemon_writes(tmp_path, config, capsys):
    archive = tmp_path / "archive"
    with daemon(archive, "--interval=1h") as process:
        assert cli.run(["sample", "--archive", str(archive), "--config", config]) == 3
        assert str(process.pid) in capsys.readouterr().err


def test_sysinfo(config, capsys):
    assert cli.run(["sysinfo", "--config", config]) == 0
    info = msgspec.json.decode(capsys.readouterr().out, type=SysInfo)
    assert info.cpus == os.cpu_count()
    assert info.vmsonar_version


def test_status_of_a_daemon_that_runs_and_of_one_that_does_not(tmp_path, capsys):
    with daemon(tmp_path, "--interval=100ms") as process:
        wait_for(lambda: _asked(tmp_path, capsys)[1]["cpu_share"] is not None)
        code, answer = _asked(tmp_path, capsys)
        assert (code, answer["healthy"], answer["problems"]) == (0, True, [])
        assert (answer["mode"], answer["pid"]) == ("daemon", process.pid)
        assert answer["running_since"].startswith("20")
        assert 0 < answer["cpu_share"] < 1
        assert answer["samples"] >= 2
        assert 0 < answer["size"] < answer["budget"]
        process.kill()
        process.wait()
    code, answer = _asked(tmp_path, capsys)
    assert (code, answer["healthy"], answer["mode"]) == (1, False, "stopped")
    assert answer["problems"][0].startswith("no recorder is running")


def _asked(archive, capsys):
    code = cli.run(["status", "--archive", str(archive), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_status_for_people(tmp_path, config, capsys):
    append_one(Config(collectors=_few()), tmp_path)
    append_one(Config(collectors=_few()), tmp_path)
    assert cli.run(["status", "--archive", str(tmp_path), "--config", config]) == 0
    text = capsys.readouterr().out
    assert "health:        healthy" in text
    assert "recorder:      single samples, by cron" in text
    with open_archive(tmp_path) as opened:
        assert opened.ledger.head in text


def test_cron_is_known_although_jobs_end_between_the_samples(tmp_path):
    now = Clock().now()
    for minutes in (2, 1):
        writer = open_writer(tmp_path, node=NodeIdentity(machine_id="m"), now=utc_now)
        rows = Rows()
        rows.add("event", EventRow(event_type="job_end", pgid=7))
        rows.gap("energy", "no_meter", "as on nearly every VM: not an error")
        writer.append(now - timedelta(minutes=minutes), "b", 60 - minutes, rows.by_kind)
        writer.close()
    answer = status(tmp_path, Budget(), now)
    assert (answer.mode, answer.interval, answer.healthy, answer.errors) == ("cron", 60.0, True, [])


def test_sample_says_in_json_what_it_appended(tmp_path, config, capsys):
    line = ["sample", "--archive", str(tmp_path / "archive"), "--config", config, "--json"]
    assert cli.run(line) == 0
    told = json.loads(capsys.readouterr().out)
    with open_archive(tmp_path / "archive") as opened:
        assert told == {
            "archive": str(tmp_path / "archive"),
            "archive_id": opened.identity.archive,
            "seq": 2,
            "journal_head": opened.ledger.head,
            "samples_lost": 0,
        }


def _few():
    return Collectors(process="none", gpu="none", container="none", energy="none")


def test_status_of_no_archive(tmp_path, capsys):
    assert cli.run(["status", "--archive", str(tmp_path / "none")]) == 3
    said = (
        f"vmsonar: {tmp_path}/none: nothing was recorded there; start vmsonar daemon, or name another archive"
    )
    assert capsys.readouterr().err == f"{said} with --archive\n"


def test_lost_samples_and_a_late_recorder_are_not_healthy(tmp_path):
    now = Clock().now()
    writer = open_writer(tmp_path, node=NodeIdentity(machine_id="m"), now=utc_now)
    rows = Rows()
    rows.gap("gpu", "timeout", "no answer")
    rows.gap("process", "permission", "no rights: a blind spot, not an error")
    rows.add("gap", GapRow(collector="archive", reason="disk_full", since=now, lost=3))
    writer.append(now - timedelta(minutes=10), "b", 1, rows.by_kind)
    writer.append_sysinfo(SysInfo(time=now, seq=0, run="", boot="b", boottime=1, interval=10_000))
    answer = status(tmp_path, Budget(), now)
    writer.close()
    assert answer.mode == "daemon"
    assert not answer.healthy
    assert answer.problems == [
        "the last sample is 600 s old, with one due every 10 s",
        "3 samples of the last hour could not be written",
    ]
    assert [(error.collector, error.reason) for error in answer.errors] == [
        ("gpu", "timeout"),
        ("archive", "disk_full"),
    ]


def test_cost_is_that_of_the_present_run():
    def brief(run, boottime, cpu):
        cost = CostRow(cpu_time=cpu, child_cpu_time=10**7)
        return Brief(time=Clock().now(), seq=1, run=run, boot="b", boottime=boottime, cost=[cost])

    found = [brief("old", 0, 9 * 10**9), brief("new", 10**9, 10**8), brief("new", 11 * 10**9, 2 * 10**8)]
    assert cpu_share(found) == pytest.approx(0.01)
    assert cpu_share(found[:2]) is None
    assert cpu_share([]) is None


def test_status_fields_are_a_contract():
    assert Status.__struct_fields__[:8] == (
        "healthy", "problems", "archive", "archive_id", "mode", "pid", "running_since", "interval",
    )  # fmt: skip


def test_doctor_lists_every_collector(tmp_path, capsys):
    assert cli.run(["doctor", "--archive", str(tmp_path / "new"), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=list[Capability])
    assert {one.collector for one in found} >= {entry.name for entry in COLLECTORS}
    assert all(one.available or one.reason for one in found)


@requires("root")
def test_doctor_as_root_sees_the_io_of_others(tmp_path, capsys):
    """Some refuse even root, such as those who are just ending; they are few."""
    assert cli.run(["doctor", "--archive", str(tmp_path / "new"), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=list[Capability])
    (of_others,) = [one for one in found if one.item == "I/O of other users' processes"]
    assert of_others.available, of_others.reason


@pytest.mark.parametrize(("denied", "available"), [(0, True), (2, True), (3, False), (4, False)])
def test_io_of_others_is_judged_by_the_majority(monkeypatch, denied, available):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    others = [SimpleNamespace(user=1000, io_fd=DENIED if number < denied else 7) for number in range(4)]
    ours = [SimpleNamespace(user=0, io_fd=DENIED) for _ in range(9)]
    table = SimpleNamespace(
        by_name={str(pid): process for pid, process in enumerate([*others, *ours], 1)},
        files=SimpleNamespace(user_id=lambda process: process.user),
    )
    hidden, of_others = process_capabilities("process", table)
    assert hidden.available
    assert of_others.available is available
    assert available or f"{denied} of 4 refuse" in of_others.reason


def test_doctor_names_the_remedy(tmp_path, config, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module == "pyarrow" else object())
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # root may write anywhere
    assert cli.run(["doctor", "--archive", "/proc/nowhere", "--config", config]) == 1
    text = capsys.readouterr().out
    assert "pip install 'vmsonar[parquet]'" in text
    assert "LimitNOFILE=16384" in text
    assert "/proc is not writable" in text
    assert "set collectors.gpu to auto" in text


def test_a_broken_configuration_is_one_line(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("intervall: 1s\n")
    for name in ("sample", "sysinfo", "status", "doctor"):
        assert cli.run([name, "--config", str(tmp_path / "c.yaml")]) == 2
        assert (
            capsys.readouterr().err
            == f"vmsonar: {tmp_path}/c.yaml: intervall: unknown key; did you mean interval?\n"
        )


def test_the_daemon_command_becomes_the_daemon(tmp_path, config):
    line = [sys.executable, "-m", "vmsonar", "daemon", "--archive", str(tmp_path / "a"), "--config", config]
    process = subprocess.Popen([*line, "--interval", "100ms", "--for", "1s"], stderr=subprocess.PIPE)
    wait_for(lambda: b"vmsonar.daemon" in _cmdline(process.pid) or process.poll() is not None)
    assert b"typer" not in _cmdline(process.pid)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    with open_archive(tmp_path / "a") as opened:
        assert len(list(opened.samples())) >= 3


def _cmdline(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def test_the_daemon_command_refuses_nonsense_before_it_starts(capsys):
    assert cli.run(["daemon", "--interval", "soon"]) == 2
    assert capsys.readouterr().err.startswith("vmsonar: --interval: 'soon' is not a duration")
