"""How a machine ended is told by the next boot: powered off, rebooted, panicked, cut off, or not ended at all."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from vmsonar_archive.read.endings import Ending, boot_tails, machine_end
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.records import Sample

from tests.lifecycle.conftest import WHEELS
from tests.lifecycle.guests import ARCHIVE, NO_MOUNTS_OF_ITS_OWN, wait_for_samples
from tests.parts import requires
from tests.real.guest import Guest
from tests.real.machine import Machine
from vmsonar.lifecycle.cloud_init import Site, user_data

NOTICE = '{"time": "%s", "detail": "the cloud takes this machine"}'


@pytest.fixture(scope="module")
def guest(tmp_path_factory, wheelhouse) -> Iterator[Guest]:
    """Off, with a recorder that looks every second."""
    data = user_data(Site(config={"interval": "1s"}, wheels=WHEELS))
    with Guest(tmp_path_factory.mktemp("vm") / "guest", data, host_name="ends") as guest:
        guest.copy_in(wheelhouse, WHEELS)
        guest.write("/etc/systemd/system/vmsonar.service.d/nspawn.conf", NO_MOUNTS_OF_ITS_OWN)
        yield guest


def recorded(folder: Path) -> list[Sample]:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)  # root opens no archive of somebody else
    with open_archive(folder) as archive:
        return list(archive.samples())


def told(samples: list[Sample], kind: str) -> list[str | None]:
    return [event.reason for sample in samples for event in sample.event if event.event_type == kind]


def ends(samples: list[Sample]) -> list[Ending]:
    """How each boot ended, for somebody who reads the archive."""
    *before, last = boot_tails(samples)
    return [machine_end(tail, followed=True).how for tail in before] + [machine_end(last, followed=False).how]


def record(guest: Guest) -> None:
    """Waits for two more samples."""
    found = guest.run("vmsonar", "verify", ARCHIVE, "--json", check=False)
    wait_for_samples(guest, (json.loads(found.stdout)["samples"] if found.returncode == 0 else 0) + 2)


def boot(guest: Guest) -> None:
    guest.boot()
    record(guest)


def go_down(guest: Guest, *words: str) -> None:
    """As its own administrator has it."""
    guest.run("systemctl", *words, check=False)
    guest.wait_until_off()


@requires("systemd_guest")
def test_every_end_of_a_guest_is_told_from_the_others(guest, tmp_path):
    boot(guest)
    guest.run("systemctl", "restart", "vmsonar")  # the recorder's end, not the machine's
    record(guest)
    guest.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "vmsonar")
    record(guest)
    go_down(guest, "reboot")
    boot(guest)
    guest.kill()  # the plug
    boot(guest)
    go_down(guest, "poweroff")
    boot(guest)
    guest.run("systemctl", "stop", "vmsonar")
    guest.kill()
    boot(guest)
    guest.run("sh", "-c", f"echo '{NOTICE}' | sed s/%s/$(date -u +%FT%TZ)/ > /run/vmsonar/notice.json")
    record(guest)
    guest.power_off()  # as nspawn asks for it
    boot(guest)
    go_down(guest, "--force", "reboot")
    boot(guest)
    guest.kill()
    samples = recorded(guest.copy_out(ARCHIVE, tmp_path / "after"))
    assert told(samples, "daemon_stop") == ["stop", "reboot", "poweroff", "stop", "halt", "reboot"]
    expected = ["reboot", "no_farewell", "orderly_poweroff", "stopped", "reclaim_notice", "reboot"]
    assert told(samples, "boot_end") == expected
    assert ends(samples) == [*expected, "unknown"]


HOME = "echo 'tmpfs /home tmpfs size=32m 0 0' >> etc/fstab"


@requires("kernel_guest")
def test_under_the_whole_unit_with_a_kernel_that_panics_and_a_file_system_at_home(machine: Machine, tmp_path):
    """Here the recorder has mounts of its own, all read-only for it; the row of /home comes all the same."""
    machine.change(HOME)

    def up() -> None:
        machine.boot()
        machine.wait("systemctl is-active --quiet vmsonar && ls /var/lib/vmsonar/*/*/*/sample-*")
        machine.wait("sleep 4")

    up()
    machine.run("sh", "-c", "mkdir /home/anna; dd if=/dev/zero of=/home/anna/x bs=1M; sleep 3", check=False)
    machine.run("mount", "-o", "remount,ro", "/home")
    machine.wait("sleep 13")
    machine.power_off()
    up()
    with pytest.raises(ConnectionError):
        machine.run("sh", "-c", "echo c > /proc/sysrq-trigger")
    machine.cut_power()
    up()
    machine.cut_power()
    samples = recorded(machine.copy_out(ARCHIVE, tmp_path / "after"))
    assert told(samples, "boot_end") == ["orderly_poweroff", "no_farewell"]
    assert ends(samples) == ["orderly_poweroff", "no_farewell", "unknown"]
    home = [row for sample in samples for row in sample.filesystem if row.mount_point == "/home"]
    assert {row.fs_type for row in home} == {"tmpfs"}
    assert home[0].read_only is False
    assert 0 in [row.bytes_available for row in home]
    assert True in [row.read_only for row in home]
    root = [row for sample in samples for row in sample.filesystem if row.mount_point == "/"]
    assert {row.read_only for row in root} == {False}
    assert not [gap for sample in samples for gap in sample.gap if gap.collector == "filesystem"]
