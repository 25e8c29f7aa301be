"""Exit 0 only when everything is safe where it was to go; what cannot be sent waits and goes out later."""

import json
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from vmsonar_archive.bundle.send.mint import expiry
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.system.errors import UsageError, VmsonarError
from vmsonar_archive.verify.path import verify_path

from tests.lifecycle.vm import bundles
from tests.making.load import Recorder
from tests.parts import requires
from tests.real.s3 import S3Server
from tests.real.wait import wait_until
from vmsonar.commands.teardown import _tell as tell
from vmsonar.config.schema import Config
from vmsonar.config.shipping import Save
from vmsonar.health.doctor import examine_save
from vmsonar.lifecycle.step import OutOfTime, Saved, timed_call
from vmsonar.lifecycle.target import parse_target
from vmsonar.lifecycle.teardown import SaveJob, signing_key, teardown


def test_a_folder_gets_each_sample_once(vm, tmp_path):
    target = tmp_path / "results"
    target.mkdir()
    to = f"{target}/{{node}}/{{archive}}"
    code, said = vm.teardown(to=to)
    assert (code, said["waiting"], said["troubles"]) == (0, [], [])
    (first,) = bundles(target)
    assert first.parent == target / "web1" / read_identity(vm.archive).archive
    code, said = vm.teardown(to=to)
    assert (code, said["delivered"]) == (0, [])
    vm.record(4, hours=3)
    assert vm.teardown(to=to)[0] == 0
    _, second = bundles(target)
    assert vm.numbers(first) == list(range(2, 42))
    assert vm.numbers(second) == list(range(43, 47))


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(
    ("size", "waiting", "line"),
    [
        (
            2048,
            [],
            "1 bundle delivered, 2.0 KiB: the VM may go (next: vmsonar verify, where the bundle went)",
        ),
        (None, [], "nothing new to save: the VM may go"),
        (None, ["a.tar"], "0 bundles delivered, 1 still on this disk (next: vmsonar teardown --resume)"),
    ],
)
def test_it_ends_in_one_line_for_people(size, waiting, line, is_terminal, tmp_path, monkeypatch, capsys):
    bundle = tmp_path / "vm.tar"
    if size is not None:
        bundle.write_bytes(bytes(size))
    saved = Saved(delivered=[str(bundle)] if size else [], waiting=waiting)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    tell(saved, json=False)
    assert (capsys.readouterr().out.splitlines()[-1:] == [line]) is is_terminal


def test_without_a_target_the_bundle_stays_here(vm):
    code, said = vm.teardown(to=None)
    (bundle,) = bundles(vm.waiting)
    assert (code, said["delivered"], said["waiting"]) == (0, [str(bundle)], [])
    assert len(vm.numbers(bundle)) == 40


def test_what_cannot_be_sent_waits_and_goes_out_first(vm, store):
    to = f"https://localhost:{store.server_port}/bucket/{{node}}-{{time}}.tar"
    store.plan = ["403"]
    code, said = vm.teardown(to=to)
    (waits,) = bundles(vm.waiting)
    assert (code, said["delivered"], said["waiting"]) == (3, [], [str(waits)])
    content = waits.read_bytes()
    vm.record(4, hours=3)
    code, said = vm.teardown(to=to)
    assert (code, len(said["delivered"]), said["waiting"]) == (0, 2, [])
    assert bundles(vm.waiting) == []
    assert content in store.stored.values()
    assert all(f"/bucket/web1-{datetime.now(UTC):%Y}" in name for name in store.stored)


def test_a_silent_server_cannot_hold_up_a_shutdown(vm):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = f"https://localhost:{silent.getsockname()[1]}/{{time}}"
        begin = time.monotonic()
        code, said = vm.teardown("--limit", "4s", to=to)
    assert time.monotonic() - begin < 5 * 5
    assert code == 3
    assert len(vm.numbers(Path(said["waiting"][0]))) == 40


def test_increments_leave_no_copy_and_resume_sends_only_what_waits(vm, store, tmp_path):
    target = tmp_path / "results"
    assert vm.teardown("--increment", to=str(target))[0] == 3
    assert bundles(vm.waiting) == []
    assert vm.teardown(to=str(target))[0] == 3
    vm.record(4, hours=3)
    target.mkdir()
    code, said = vm.teardown("--resume", to=str(target))
    assert (code, len(said["delivered"])) == (0, 1)
    assert vm.numbers(*bundles(target)) == list(range(2, 42))
    assert vm.teardown("--increment", to=str(target))[0] == 0
    assert vm.numbers(bundles(target)[1]) == list(range(43, 47))


def test_one_url_takes_one_whole_bundle_and_no_increments(vm, store):
    to = store.url("vm.tar")
    assert vm.teardown("--increment", to=to)[0] == 0
    assert store.stored == {}
    assert vm.teardown(to=to)[0] == 0
    assert list(store.stored) == ["/bucket/vm.tar"]


@requires("moto")
def test_s3_gets_increments_and_what_waited(vm, s3_server, tmp_path):
    vm.environment |= s3_server.environment()
    code, said = vm.teardown(to="s3://teardown-test/vms/{node}/")
    assert (code, len(said["waiting"])) == (3, 1)
    s3_server.client().create_bucket(Bucket="teardown-test")
    vm.record(4, hours=3)
    code, said = vm.teardown("--increment", to="s3://teardown-test/vms/{node}/")
    assert (code, said["waiting"]) == (0, [])
    keys = [f"s3://teardown-test/{one['Key']}" for one in _objects(s3_server)]
    assert sorted(said["delivered"]) == sorted(keys)
    seen = []
    for number, one in enumerate(_objects(s3_server)):
        assert one["Key"].startswith("vms/web1/web1_")
        s3_server.client().download_file("teardown-test", one["Key"], str(tmp_path / f"{number}.tar"))
        seen += vm.numbers(tmp_path / f"{number}.tar")
    assert sorted(seen) == [*range(2, 42), *range(43, 47)]


def _objects(server: S3Server) -> list[dict]:
    return server.client().list_objects_v2(Bucket="teardown-test")["Contents"]


def test_it_is_signed(vm, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    assert vm.teardown(to=None, sign=str(tmp_path / "key"))[0] == 0
    assert verify_path(*bundles(vm.waiting)).signed_by is not None


def test_forwarding_that_fails_is_not_safe(vm, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    forward = {
        "to": "http",
        "url": f"http://127.0.0.1:{port}/",
        "state": str(tmp_path / "state"),
        "cluster": "c",
    }
    code, said = vm.teardown("--limit", "3s", to=None, forward=forward)
    assert (code, said["forwarded"]) == (3, False)
    assert len(bundles(vm.waiting)) == 1


def test_which_key_signs(tmp_path):
    (tmp_path / "host-key").write_text("none")
    credentials = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert signing_key("none", credentials) is None
    assert signing_key("auto", credentials) is None
    (tmp_path / "host-key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert signing_key("auto", credentials) == tmp_path / "host-key"
    assert signing_key("other", credentials) == tmp_path / "other"
    with pytest.raises(UsageError, match="no systemd credentials"):
        signing_key("other", {})


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("https://x/{host}", r"\{host\} is unknown"),
        ("http://x/y", "by https:// or to s3:"),
        ("s3:bucket", "by https:// or to s3:"),
        ("results", "neither a folder's full path"),
    ],
)
def test_targets_that_could_never_work(to, message):
    with pytest.raises(UsageError, match=message):
        parse_target(to)


def test_when_a_signed_url_expires():
    amz = "https://b.s3.amazonaws.com/k?X-Amz-Date=20261116T050000Z&X-Amz-Expires=3600&X-Amz-Signature=x"
    assert expiry(amz) == datetime(2026, 11, 16, 6, tzinfo=UTC)
    assert expiry("https://storage/k?Expires=1794805200&Signature=x") == datetime.fromtimestamp(
        1794805200, UTC
    )
    assert expiry("https://a.blob/k?se=2026-11-16T06:00:00Z&sig=x") == datetime(2026, 11, 16, 6, tzinfo=UTC)
    assert expiry("https://x/k?Expires=soon") is None
    assert expiry("https://x/k") is None


def test_work_that_hangs_is_ended_with_its_children(tmp_path):
    python = [sys.executable, "-c"]
    slow = f"import os, subprocess; subprocess.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'])"
    begin = time.monotonic()
    with pytest.raises(OutOfTime):
        timed_call(1, [*python, slow], b"", int)
    assert time.monotonic() - begin < 10
    wait_until(lambda: not Path("/proc", (tmp_path / "pid").read_text().strip()).exists(), 5, "its end")
    assert timed_call(5, [*python, "print(input())"], b"7\n", int) == 7
    with pytest.raises(VmsonarError, match="without an answer"):
        timed_call(5, [*python, ""], b"", int)
    with pytest.raises(VmsonarError, match="no such thing") as caught:
        timed_call(5, ["echo", '{"failure": "no such thing", "exit_code": 2}'], b"", int)
    assert caught.value.exit_code == 2


NOW = datetime(2026, 11, 16, 5, tzinfo=UTC)
SIGNED = "https://b.example/k?X-Amz-Date=20261116T040000Z&X-Amz-Expires={seconds}&X-Amz-Signature=canary"


def checked(to: str | None) -> list[tuple[bool, str]]:
    config = Config(save=Save(to=to))
    return [(one.available, one.reason or "") for one in examine_save(config, Path("/nowhere"), NOW)]


def test_doctor_says_when_a_url_will_have_expired(tmp_path):
    assert checked(None) == []
    signed = SIGNED.replace("/k?", "/{time}?").replace("{seconds}", "%d")
    assert checked(signed % 60) == [(False, "the URL has expired at 2026-11-16 04:01Z")]
    assert checked(signed % 7200) == [(False, "the URL will have expired by 2026-11-16 06:00Z")]
    assert checked(signed % 604800) == [(True, "")]
    (tmp_path / "url").write_text(signed % 7200)
    assert checked(f"@{tmp_path}/url") == [(True, "")]
    assert checked("s3://bucket/prefix/") == [(True, "")]
    assert checked(f"{tmp_path}/{{node}}") == [(True, "")]
    assert checked(f"{tmp_path}/gone") == [(False, f"{tmp_path}/gone is not a folder here")]


def test_doctor_says_that_one_url_takes_no_increments(tmp_path):
    one = "save.to takes one bundle and no second: nothing goes out before the teardown"
    assert checked(SIGNED.format(seconds=604800)) == [(True, ""), (False, one)]
    assert checked("s3://bucket/key.tar") == [(True, ""), (False, one)]
    (tmp_path / "url").write_text(SIGNED.format(seconds=604800))
    assert checked(f"@{tmp_path}/url") == [(True, ""), (False, one)]


def verify_parts(*parts: str) -> tuple[int, str]:
    """The exit code, and the first error."""
    command = [sys.executable, "-m", "vmsonar", "verify", "--json", *parts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    findings = [found for report in json.loads(done.stdout).values() for found in report["findings"]]
    return done.returncode, next(found["detail"] for found in findings if found["severity"] == "error")


def test_increments_together_are_one_archive(tmp_path):
    """What inspect and sql say of three increments is what they say of the archive."""
    for folder in ("out", "waiting"):
        (tmp_path / folder).mkdir()
    recorder = Recorder(tmp_path / "archive", 5)
    save = Save(to=str(tmp_path / "out"), waiting=str(tmp_path / "waiting"), sign="none")
    for _ in range(3):
        recorder.record(200)
        assert teardown(SaveJob(tmp_path / "archive", save, 60)).exit_code == 0
    recorder.writer.close()
    parts = [str(path) for path in bundles(tmp_path / "out")]
    assert len(parts) == 3

    def say(*words: str) -> str:
        command = [sys.executable, "-m", "vmsonar", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    say("verify", *parts)
    assert verify_parts(parts[0], parts[2]) == (
        1,
        "records 202 to 401 of this archive are in none of these bundles",
    )
    counted = say("sql", *parts, "SELECT count(*) AS n, count(DISTINCT seq) AS d FROM node", "--json")
    assert json.loads(counted)[0] == {"n": 600, "d": 600}
    assert say("inspect", *parts) == say("inspect", str(tmp_path / "archive"))
