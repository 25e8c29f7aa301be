"""Born with the VM and saved before it dies: a real guest, from nothing but the wheelhouse."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.opening import open_source
from vmsonar_archive.reader import open_archive
from vmsonar_archive.verify import verify

from tests.parts import requires
from tests.real.guest import Guest
from vmsonar.lifecycle.user_data import Site, user_data

pytestmark = requires("systemd_guest")
REPOSITORY = Path(__file__).resolve().parents[2]
WHEELS = "/opt/vmsonar-wheels"
ARCHIVE = "/var/lib/vmsonar"
# nspawn mounts the guest's boot id over the kernel's, and mounts of the unit's own show the kernel's again.
OWN_MOUNTS = ("ProtectSystem", "ProtectHome", "PrivateTmp", "ProtectKernelTunables", "ProtectKernelModules",
              "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname")  # fmt: skip
NO_MOUNTS_OF_ITS_OWN = "[Service]\n" + "".join(f"{name}=no\n" for name in OWN_MOUNTS)


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory) -> Path:
    """What `make wheelhouse` builds."""
    place = tmp_path_factory.mktemp("wheels")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--wheel-dir",
        str(place),
    ]
    subprocess.run([*build, f"{REPOSITORY}[sign]"], check=True, timeout=300)
    subprocess.run([sys.executable, str(REPOSITORY / "cloud-init/pin.py"), str(place)], check=True)
    return place


@pytest.fixture(scope="module")
def guest(tmp_path_factory, wheelhouse) -> Iterator[Guest]:
    """A guest after its first boot."""
    data = user_data(Site(config={"interval": "1s"}, wheels=WHEELS, options=("--save",)))
    with Guest(tmp_path_factory.mktemp("vm") / "guest", data, host_name="born") as guest:
        guest.copy_in(wheelhouse, WHEELS)
        guest.boot()
        wait_for_samples(guest, 2)
        yield guest


def status(guest: Guest) -> dict:
    return json.loads(guest.run("vmsonar", "status", "--json", check=False).stdout)


def wait_for_samples(guest: Guest, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = guest.run("vmsonar", "verify", ARCHIVE, "--json", check=False)
        if found.returncode == 0 and json.loads(found.stdout)["samples"] >= count:
            return
        time.sleep(0.5)
    raise AssertionError(guest.run("journalctl", "-u", "vmsonar", "--no-pager", check=False).stdout)


def test_a_first_boot_brings_a_healthy_service(guest):
    assert json.loads(guest.read("/run/cloud-init/result.json"))["v1"]["errors"] == []
    assert guest.run("systemctl", "is-active", "vmsonar").stdout == "active\n"
    assert guest.run("vmsonar", "status").returncode == 0
    assert guest.run("vmsonar", "doctor").returncode == 0
    assert guest.run("stat", "-c", "%U %a", ARCHIVE).stdout == "vmsonar 750\n"
    failed = guest.run("systemctl", "--failed", "--no-legend", "--plain").stdout
    assert "vmsonar" not in failed


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
    guest.power_off()
    (bundle,) = guest.copy_out("/var/lib/vmsonar-bundles", tmp_path / "bundles").glob("*.tar")
    source = open_source(bundle)
    report = verify(source)
    source.close()
    assert report.ok, report.findings
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
