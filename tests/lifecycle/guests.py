"""What tests of a systemd guest share."""

import json
import time

from tests.real.guest import Guest

ARCHIVE = "/var/lib/vmsonar"
# nspawn mounts the guest's boot id over the kernel's, and mounts of the unit's own show the kernel's again.
OWN_MOUNTS = ("ProtectSystem", "ProtectHome", "PrivateTmp", "ProtectKernelTunables", "ProtectKernelModules",
              "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectHostname")  # fmt: skip
NO_MOUNTS_OF_ITS_OWN = "[Service]\n" + "".join(f"{name}=no\n" for name in OWN_MOUNTS)


def wait_for_samples(guest: Guest, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = guest.run("vmsonar", "verify", ARCHIVE, "--json", check=False)
        if found.returncode == 0 and json.loads(found.stdout)["samples"] >= count:
            return
        time.sleep(0.5)
    raise AssertionError(guest.run("journalctl", "-u", "vmsonar", "--no-pager", check=False).stdout)
