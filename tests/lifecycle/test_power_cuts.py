"""The plug is pulled at random moments; a machine with its own kernel then has what was written to its disk."""

import os
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive

from tests.parts import requires
from tests.real.machine import Machine
from tests.real.wait import let_pass

pytestmark = requires("kernel_guest")
ARCHIVE = "/var/lib/vmsonar"
INTERVAL = timedelta(seconds=1)
SEED = random.randrange(2**32)
PACKAGES = "opt/vmsonar/lib/python3.11/site-packages"
# Tells over a serial line what the disk has confirmed: every byte of it has to be there after the cut.
WITNESS = """
import os, sys
if "vmsonar.daemon" in sys.orig_argv:
    line, confirm = os.open("/dev/ttyS1", os.O_WRONLY | os.O_NOCTTY), os.fdatasync
    def fdatasync(file):
        size, path = os.fstat(file).st_size, os.readlink(f"/proc/self/fd/{file}")
        confirm(file)
        os.write(line, f"{path} has {size}\\n".encode())
    os.fdatasync = fdatasync
"""
ALLOWED = "[Service]\nDevicePolicy=auto\nExecStartPre=+/bin/chmod 666 /dev/ttyS1\n"


@pytest.fixture(scope="module")
def witnessed(machine: Machine) -> Machine:
    """Off, with a recorder whose every fdatasync is heard of."""
    machine.put(f"{PACKAGES}/witness.py", WITNESS)
    machine.put(f"{PACKAGES}/witness.pth", "import witness\n")
    machine.put("etc/systemd/system/vmsonar.service.d/witness.conf", ALLOWED)
    return machine


@pytest.mark.parametrize("cuts", [3, pytest.param(25, marks=pytest.mark.chaos)])
def test_a_power_cut_costs_at_most_the_sample_being_written(witnessed, cuts, tmp_path):
    print(f"random seed {SEED}")
    chance, last = random.Random(SEED), 0
    for number in range(cuts):
        cut = run_until_cut(witnessed, chance.uniform(1, 4))
        last = check_what_is_left(witnessed, last, cut, tmp_path / f"after-{number}")
    witnessed.boot()
    witnessed.wait("systemctl is-active --quiet vmsonar")
    verified = witnessed.run("vmsonar", "verify", ARCHIVE, check=False)
    assert verified.returncode == 0, verified.stdout
    witnessed.power_off()


def run_until_cut(machine: Machine, seconds: float) -> datetime:
    """Boots, records for a while after the first confirmed write, and is cut off; returns when."""
    machine.boot()
    machine.wait("systemctl is-active --quiet vmsonar")
    let_pass(seconds)
    cut = datetime.now(UTC)
    machine.cut_power()
    return cut


def check_what_is_left(machine: Machine, last: int, cut: datetime, folder: Path) -> int:
    """Everything that was confirmed, and all samples but the one that was being written; returns the last one."""
    root = machine.copy_out(ARCHIVE, folder)
    for path in (root, *root.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)  # root opens no archive of somebody else
    confirmed = {path: int(size) for path, size in re.findall(r"(\S+) has (\d+)", machine.said.read_text())}
    assert confirmed, "the witness must have heard something"
    for path, size in confirmed.items():
        kept = root / Path(path).relative_to(ARCHIVE)
        assert kept.stat().st_size >= size, f"{path}: {size} bytes were confirmed"
    with open_archive(root) as archive:
        samples = list(archive.samples())
        numbers = sorted([record.seq for record in (*samples, *archive.sysinfos())])
    assert set(numbers) >= set(range(last + 2, numbers[-1] + 1)), "one may be missing where the power was cut"
    missing = (cut - samples[-1].time) // INTERVAL
    print(f"cut {cut:%T.%f}: {len(confirmed)} files confirmed, at most {missing} samples missing")
    assert missing <= 1
    return numbers[-1]
