"""Born with the VM and saved before it dies: a real guest, from nothing but the wheelhouse."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.verify.signature import Trust, read_trust

from tests.lifecycle.conftest import WHEELS
from tests.lifecycle.examples import VARIANTS
from tests.lifecycle.guests import ARCHIVE, NO_MOUNTS_OF_ITS_OWN, wait_for_samples
from tests.parts import requires
from tests.real.guest import Guest
from tests.real.wait import wait_until
from vmsonar.lifecycle.cloud_init import Site, user_data
from vmsonar.lifecycle.install import Choice, Installer, shipped

pytestmark = requires("systemd_guest")


@pytest.fixture(scope="module")
def guest(tmp_path_factory, wheelhouse) -> Iterator[Guest]:
    """A guest after its first boot."""
    data = user_data(Site(config={"interval": "1s"}, wheels=WHEELS, options=("--save",)))
    with Guest(tmp_path_factory.mktemp("vm") / "guest", data, host_name="born") as guest:
        guest.copy_in(wheelhouse, WHEELS)
        for name in VARIANTS:
            guest.copy_in(shipped(name), f"/root/{name}")
        guest.boot()
        wait_for_samples(guest, 2)
        yield guest


def status(guest: Guest) -> dict:
    return json.loads(guest.run("vmsonar", "status", "--json", check=False).stdout)


def host_trust(guest: Guest, folder: Path) -> Trust:
    """Demands a signature by the guest's own SSH host key, as whoever knows the VM would."""
    key = guest.read("/etc/ssh/ssh_host_ed25519_key.pub").decode()
    (folder / "signers").write_text(f"born {key}")
    return read_trust(folder / "signers", "born")


def test_an_image_records_from_its_first_boot(tmp_path, wheelhouse):
    """One that was booted before it was made an image, and gets a machine id of its own at its first boot."""
    with Guest(tmp_path / "guest", host_name="image") as image:
        image.copy_in(wheelhouse, WHEELS)
        script = shipped("setup.sh").read_text().replace("\nexec ", "\nexit 0\n")
        chroot = ["chroot", str(image.root), "env", f"VMSONAR_WHEELS={WHEELS}", "sh", "-c", script]
        subprocess.run(chroot, check=True, timeout=120)
        image.write("/etc/vmsonar/config.yaml", "interval: 1s\n")
        (image.root / "etc/machine-id").unlink()
        image.write("/etc/.updated", "")
        # The presets of a first boot enable what waits for a network that this guest has not.
        (image.root / "etc/systemd/system/systemd-networkd-wait-online.service").symlink_to("/dev/null")
        install = ["install", "--root", str(image.root), "--no-start", "--save"]
        done = subprocess.run([sys.executable, "-m", "vmsonar", *install], check=True, capture_output=True)
        said = done.stdout.decode().strip().partition("enabled, from the next boot on: ")[2].split(", ")
        image.boot()
        wait_for_samples(image, 2)
        listed = image.run("systemctl", "list-unit-files", "--no-legend", "vmsonar*").stdout
        states = {line.split()[0]: line.split()[1] for line in listed.splitlines()}
        assert {name for name, state in states.items() if state == "enabled"} == set(said), states
        for name in ("vmsonar.service", "vmsonar-bundle.service", "vmsonar-increment.timer"):
            assert image.run("systemctl", "is-active", name).stdout == "active\n"
        image.power_off()
        subprocess.run(
            [sys.executable, "-m", "vmsonar", "uninstall", "--root", str(image.root)], check=True, timeout=60
        )
        assert [
            path for path in image.root.glob("etc/*/**/*vmsonar*") if "/etc/vmsonar" not in str(path)
        ] == []


def test_a_first_boot_brings_a_healthy_service(guest):
    assert json.loads(guest.read("/run/cloud-init/result.json"))["v1"]["errors"] == []
    assert guest.run("systemctl", "is-active", "vmsonar").stdout == "active\n"
    assert guest.run("vmsonar", "status").returncode == 0
    assert guest.run("vmsonar", "doctor").returncode == 0
    assert guest.run("stat", "-c", "%U %a", ARCHIVE).stdout == "vmsonar 750\n"
    failed = guest.run("systemctl", "--failed", "--no-legend", "--plain").stdout
    assert "vmsonar" not in failed


def test_cloud_init_itself_accepts_every_example(guest):
    for name in VARIANTS:
        done = guest.run("cloud-init", "schema", "--config-file", f"/root/{name}", check=False)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        assert "Valid" in done.stdout, (name, done.stdout, done.stderr)


def test_the_watchdog_restarts_a_stopped_recorder(guest):
    drop_in = "/etc/systemd/system/vmsonar.service.d/quick.conf"
    guest.run("mkdir", "-p", os.path.dirname(drop_in))
    guest.write(drop_in, "[Service]\nWatchdogSec=3\nTimeoutAbortSec=1\n")
    guest.run("systemctl", "daemon-reload")
    guest.run("systemctl", "restart", "vmsonar")
    first = guest.run("systemctl", "show", "-P", "MainPID", "vmsonar").stdout.strip()
    guest.run("kill", "-STOP", first)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = guest.run("systemctl", "show", "-P", "MainPID", "vmsonar").stdout.strip()
        if (
            now not in ("0", first)
            and guest.run("systemctl", "is-active", "vmsonar", check=False).stdout == "active\n"
        ):
            break
        time.sleep(0.5)
    assert now not in ("0", first)
    guest.run("rm", drop_in)
    guest.run("systemctl", "daemon-reload")


def test_an_orderly_end_leaves_a_bundle_and_a_reboot_goes_on(guest, tmp_path):
    guest.run(
        "systemd-run",
        "--unit",
        "work",
        "sh",
        "-c",
        "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; sleep 60",
    )
    seen = status(guest)["samples"]
    wait_for_samples(guest, seen + 4)
    begin = time.monotonic()
    guest.power_off()
    print(f"power-off with a bundle: {time.monotonic() - begin:.1f} s")
    (bundle,) = guest.copy_out("/var/lib/vmsonar-bundles", tmp_path / "bundles").glob("*.tar")
    report = verify_path(bundle, trust=host_trust(guest, tmp_path))
    assert report.ok, report.findings
    assert report.signed_by is not None
    with open_archive(bundle) as archive:
        samples = list(archive.samples())
        commands = {info.command for sample in samples for info in sample.process_info}
    assert any(command and command.startswith("sh") for command in commands)
    last = samples[-1].seq
    guest.write("/etc/systemd/system/vmsonar.service.d/nspawn.conf", NO_MOUNTS_OF_ITS_OWN)
    guest.boot()
    wait_for_samples(guest, report.samples + 2)
    guest.reboot()
    wait_for_samples(guest, status(guest)["samples"] + 2)
    guest.kill()
    with open_archive(guest.copy_out(ARCHIVE, tmp_path / "after")) as archive:
        after = list(archive.samples())
        assert [sample.seq for sample in after if sample.seq <= last][-1] == last
        assert len({sample.boot for sample in after if sample.seq > last}) == 2
        assert {event.event_type for sample in after for event in sample.event} >= {
            "daemon_start",
            "daemon_stop",
        }


def test_a_pulled_plug_costs_nothing_that_was_recorded(guest, tmp_path):
    """Twice in a row; what the guest's disk holds when the plug is pulled verifies after the next start."""
    for attempt in range(2):
        guest.boot()
        wait_for_samples(guest, 1)
        time.sleep(0.7 * attempt)
        guest.kill()
    guest.boot()
    wait_for_samples(guest, 1)
    assert guest.run("vmsonar", "verify", ARCHIVE).returncode == 0
    guest.kill()


# Takes connections, never says a word, and is still there when everything else has been stopped.
SILENT = "import socket, time; server = socket.create_server(('127.0.0.1', 4433)); time.sleep(600)"


def configure(guest: Guest, to: str) -> None:
    """Between two boots, as a new image or an administrator would."""
    guest.write("/etc/vmsonar/config.yaml", json.dumps({"interval": "1s", "save": {"to": to}}))
    Installer(guest.root).install(Choice(save=True), start=False)


def test_an_unreachable_target_does_not_hold_up_the_end_and_gets_its_bundle_later(guest, tmp_path):
    old = {path.name for path in guest.copy_out("/var/lib/vmsonar-bundles", tmp_path / "old").iterdir()}
    configure(guest, "https://127.0.0.1:4433/{node}-{time}.tar")
    guest.boot()
    wait_for_samples(guest, 2)
    unit = ["systemd-run", "--unit", "silent", "--property", "DefaultDependencies=no"]
    guest.run(*unit, "python3", "-c", SILENT)
    begin = time.monotonic()
    guest.power_off()
    took = time.monotonic() - begin
    print(f"power-off with an unreachable target: {took:.1f} s")
    assert took < 25
    kept = guest.copy_out("/var/lib/vmsonar-bundles", tmp_path / "kept")
    (new,) = {path.name for path in kept.iterdir()} - old
    report = verify_path(kept / new, trust=host_trust(guest, tmp_path))
    assert report.ok, report.findings
    assert report.samples > 0

    configure(guest, "/srv/results")
    guest.write("/etc/systemd/system/vmsonar-increment.timer.d/soon.conf", "[Timer]\nRandomizedDelaySec=0\n")
    guest.write("/etc/tmpfiles.d/results.conf", "d /srv/results 0750 vmsonar vmsonar -\n")
    guest.boot()
    guest.wait_for(f"/srv/results/{new}", 60)
    assert guest.read(f"/srv/results/{new}") == (kept / new).read_bytes()
    wait_until(lambda: not guest.run("ls", "/var/lib/vmsonar-bundles").stdout, 60, "nothing to wait any more")


METADATA = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers["Metadata-Flavor"] == "Google" else 403)
        self.end_headers()
        self.wfile.write(b"TRUE")
HTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""


def test_a_notice_from_the_cloud_brings_a_teardown(guest):
    """In the guest that the test before has booted; the metadata service is at its real address."""
    guest.run("ip", "address", "add", "169.254.169.254/32", "dev", "lo")
    guest.run("systemd-run", "--unit", "metadata", "python3", "-c", METADATA)
    save = {"to": "/srv/results", "notice": "gcp"}
    guest.write("/etc/vmsonar/config.yaml", json.dumps({"interval": "1s", "save": save}))
    guest.run("vmsonar", "install", "--save")

    def log() -> str:
        return guest.run("journalctl", "-u", "vmsonar-notice", "--no-pager", "-o", "cat").stdout

    wait_until(lambda: "everything is safe" in log(), 60, "the teardown that the notice brings about")
    wait_for_samples(guest, status(guest)["samples"] + 2)
    guest.run("systemctl", "disable", "--now", "vmsonar-notice.service")


HUNGRY = "import time; held = bytearray(400 * 2**20); time.sleep(60)"


def test_hungry_work_is_recorded_and_the_recorder_stays_small(guest, tmp_path):
    """In the guest that the test before has booted."""
    guest.run("systemd-run", "--unit", "hungry", "python3", "-c", HUNGRY)
    wait_for_samples(guest, status(guest)["samples"] + 3)
    guest.run("sh", "-c", "dd if=/dev/zero of=/var/fill bs=1M; sleep 3; rm /var/fill", check=False)
    wait_for_samples(guest, status(guest)["samples"] + 3)
    pid = guest.run("systemctl", "show", "-P", "MainPID", "vmsonar").stdout.strip()
    peak = re.search(r"VmHWM:\s+(\d+) kB", guest.read(f"/proc/{pid}/status").decode())
    assert peak is not None
    assert int(peak[1]) < 256 * 1024
    assert guest.run("systemctl", "show", "-P", "NRestarts", "vmsonar").stdout == "0\n"
    guest.power_off()
    folder = guest.copy_out(ARCHIVE, tmp_path / "archive")
    assert verify_path(folder).ok
    with open_archive(folder) as archive:
        samples = list(archive.samples())
    assert max(row.resident or 0 for sample in samples for row in sample.process) > 400 * 2**20
    assert "disk_full" in {gap.reason for sample in samples for gap in sample.gap}
    assert "teardown_notice" in {event.event_type for sample in samples for event in sample.event}


def test_a_new_instance_id_begins_a_new_archive_and_breaks_nothing(guest):
    before = json.loads(guest.read(f"{ARCHIVE}/archive.json"))
    guest.instance_id = "i-reborn"
    guest.seed()
    guest.boot()
    wait_for_samples(guest, 1)
    assert guest.run("vmsonar", "status").returncode == 0
    after = json.loads(guest.read(f"{ARCHIVE}/archive.json"))
    known = before.get("instance_id") is not None
    assert (after["archive"] != before["archive"]) is known
    guest.kill()


def test_uninstalling_leaves_the_archive_and_nothing_else(guest):
    guest.boot()
    wait_for_samples(guest, 1)
    vmsonar = "/opt/vmsonar/bin/vmsonar"
    guest.run("vmsonar", "uninstall")
    assert guest.run("systemctl", "list-unit-files", "--no-legend", "vmsonar*", check=False).stdout == ""
    assert guest.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "vmsonar*").stdout == ""
    assert guest.run("pgrep", "-u", "vmsonar", check=False).stdout == ""
    assert guest.run(vmsonar, "verify", ARCHIVE).returncode == 0
    guest.run(vmsonar, "uninstall", "--purge")
    assert guest.run("ls", ARCHIVE, "/etc/vmsonar", check=False).stdout == ""
    guest.power_off()
