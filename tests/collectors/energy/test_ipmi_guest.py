"""The IPMI timer in a real systemd guest: off unless enabled, and its hardened service does its work."""

import json
from pathlib import Path

import msgspec
import pytest
import vmsonar_archive

import vmsonar
from tests.collectors.energy.meters import FREEIPMI, UNITS
from tests.parts import requires
from tests.real.guest import Guest
from tests.real.wait import wait_until

PACKAGES = "/opt/vmsonar/lib/python3.11/site-packages"
FILE = "/run/vmsonar/ipmi.json"


def install(guest: Guest) -> None:
    """What the helper needs in a virtual environment, the units, and a command in place of FreeIPMI's."""
    for package in (vmsonar, vmsonar_archive, msgspec):
        assert package.__file__ is not None
        folder = Path(package.__file__).parent
        guest.copy_in(folder, f"{PACKAGES}/{folder.name}")
    guest.write("/opt/vmsonar/pyvenv.cfg", "home = /usr/bin\nversion = 3.11\n")
    guest.write("/opt/vmsonar/bin/python", "", 0o755)
    (guest.root / "opt/vmsonar/bin/python").unlink()
    (guest.root / "opt/vmsonar/bin/python").symlink_to("/usr/bin/python3")
    guest.copy_in(UNITS / "vmsonar-ipmi.service", "/etc/systemd/system/vmsonar-ipmi.service")
    guest.copy_in(UNITS / "vmsonar-ipmi.timer", "/etc/systemd/system/vmsonar-ipmi.timer")
    guest.write("/usr/sbin/ipmi-dcmi", f"#!/bin/sh\ncat <<'E'\n{FREEIPMI}E\n", 0o755)


@requires("systemd_guest")
def test_the_timer_and_its_service(tmp_path: Path) -> None:
    with Guest(tmp_path / "guest") as guest:
        install(guest)
        guest.boot()
        assert guest.run("systemctl", "is-enabled", "vmsonar-ipmi.timer", check=False).stdout == "disabled\n"
        # without a device nothing is asked
        guest.run("systemctl", "start", "vmsonar-ipmi.service")
        with pytest.raises(FileNotFoundError):
            guest.read(FILE)
        guest.run("touch", "/dev/ipmi0")
        # as the recorder leaves it: a folder of another user, in which a link was laid
        guest.run("install", "-d", "-o", "nobody", "-m", "0755", "/run/vmsonar")
        guest.run("ln", "-s", "/etc/passwd", FILE)
        guest.run("systemctl", "start", "vmsonar-ipmi.service")
        assert json.loads(guest.read(FILE))["power"] == 332
        assert guest.run("stat", "-c", "%U %a %F", FILE).stdout == "root 644 regular file\n"
        # a command that fails makes the unit fail, and the daemon is told why
        guest.write("/usr/sbin/ipmi-dcmi", "#!/bin/sh\necho no BMC >&2\nexit 1\n", 0o755)
        failed = guest.run("systemctl", "start", "vmsonar-ipmi.service", check=False)
        assert failed.returncode == 1
        assert json.loads(guest.read(FILE))["error"] == "ipmi-dcmi failed with 1: no BMC"
        guest.run("systemctl", "enable", "--now", "vmsonar-ipmi.timer")
        wait_until(
            lambda: (
                guest.run("systemctl", "is-active", "vmsonar-ipmi.timer", check=False).stdout == "active\n"
            ),
            30,
            "the timer",
        )
