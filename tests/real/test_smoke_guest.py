"""The guest fixture works: it boots to cloud-init's end, runs units, reboots, powers off, is killed."""

import json
import time
from pathlib import Path

from tests.parts import requires
from tests.real.guest import Guest

pytestmark = requires("systemd_guest")

UNIT = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh -c 'echo stopped >> /var/lib/stopped'
"""
USER_DATA = f"""#cloud-config
write_files:
  - path: /etc/systemd/system/smoke.service
    content: {json.dumps(UNIT)}
runcmd:
  - [sh, -c, "echo ran >> /var/lib/ran"]
  - [systemctl, start, smoke.service]
"""


def boot_id(guest: Guest) -> str:
    return guest.read("/proc/sys/kernel/random/boot_id").decode().strip()


def test_boot_reboot_and_orderly_power_off(tmp_path: Path) -> None:
    with Guest(tmp_path / "guest", USER_DATA, host_name="smoke") as guest:
        guest.boot()
        result = json.loads(guest.read("/run/cloud-init/result.json"))
        assert result["v1"]["errors"] == []
        assert guest.run("hostname").stdout == "smoke\n"
        assert guest.run("systemctl", "is-active", "smoke").stdout == "active\n"
        first = boot_id(guest)
        guest.reboot()
        assert boot_id(guest) != first
        assert guest.read("/var/lib/ran") == b"ran\n", "runcmd must not run again on the same instance"
        assert guest.read("/var/lib/stopped") == b"stopped\n", "by the reboot"
        guest.run("systemctl", "start", "smoke")
        guest.power_off()
        assert not guest.is_running
        assert guest.read("/var/lib/stopped") == b"stopped\nstopped\n", "and by the power-off"
    assert not (tmp_path / "guest/root/etc").exists(), "unmounted"


def test_files_in_and_out_and_a_hard_kill(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    source.mkdir()
    (source / "file").write_bytes(b"in\n")
    with Guest(tmp_path / "guest", USER_DATA) as guest:
        guest.copy_in(source, "/opt/tree")
        guest.write("/usr/local/bin/hello", "#!/bin/sh\necho hello $1\n", mode=0o755)
        guest.boot()
        assert guest.run("hello", "world").stdout == "hello world\n"
        assert guest.run("sh", "-c", "cat /opt/tree/file; exit 3", check=False).returncode == 3
        started = time.monotonic()
        guest.kill()
        assert time.monotonic() - started < 10
        assert guest.copy_out("/opt/tree", tmp_path / "out").joinpath("file").read_bytes() == b"in\n"
        assert not (guest.root / "var/lib/stopped").exists(), "a kill runs no ExecStop"
