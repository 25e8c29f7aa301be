"""Which cards are read at all."""

from tests.collectors.gpu.conftest import Machine, plain, tick
from tests.collectors.gpu.drm_machines import i915, mi250
from tests.collectors.gpu.drm_rows import collector_of


def test_vendors_that_are_not_wanted_are_not_read(machine: Machine) -> None:
    i915(machine)
    mi250(machine)
    rows = plain(collector_of(machine, vendors=["amd"]).collect(tick()))
    assert {row["vendor"] for row in rows["gpu"]} == {"amd"}
    assert plain(collector_of(machine, vendors=[]).collect(tick())) == {}


def test_a_display_adapter_of_a_vm_is_no_gpu(machine: Machine) -> None:
    uevent = "DRIVER=bochs-drm\nPCI_ID=1234:1111\nPCI_SLOT_NAME=0000:00:02.0"
    machine.write(machine.host.sys, {"class/drm/card0/device/uevent": uevent})
    assert plain(collector_of(machine).collect(tick())) == {}
