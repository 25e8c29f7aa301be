"""AMD from trees of files: whole rows of an MI250 and of an integrated card."""

import json
from typing import Any

import msgspec

from tests.collectors.gpu.conftest import Machine, plain, tick
from tests.collectors.gpu.drm_machines import GIB, client, integrated_amd, kfd_process, mi250
from tests.collectors.gpu.drm_rows import cards_of, collector_of, facts, named

SECOND = 1_000_000_000


def mi250_row(uuid: str, index: int, **more: Any) -> dict[str, Any]:
    return named(
        uuid,
        gpu_index=index,
        vendor="amd",
        gpu_util=98,
        gpu_util_source="gpu_busy_percent",
        memory_util=41,
        memory_used=20 * GIB,
        memory_total=64 * GIB,
        power_limit=560.0,
        temperature=54.0,
        core_clock=1650,
        memory_clock=1600,
        ecc_corrected=7,
        ecc_uncorrected=1,
        **more,
    )


def test_an_mi250_with_its_compute_processes(machine: Machine) -> None:
    mi250(machine)
    kfd_process(machine, 700, 51001, 8 * GIB, 52)
    kfd_process(machine, 700, 51002, 0, 0)
    kfd_process(machine, 701, 51002, GIB, None)
    collector = collector_of(machine)
    rows = plain(collector.collect(tick(processes=facts((700, 77, 600)))))
    first, second = "AMD-9c5d4b2f1a0e7733", "AMD-51d2cc9f80b3a4e1"
    assert rows == {
        "gpu": [
            mi250_row(first, 1, power=312.0, energy=0, energy_source="power_integrated"),
            mi250_row(second, 2),
        ],
        "gpu_process": [
            {
                "gpu_uuid": first,
                "pid": 700,
                "start_ticks": 77,
                "pgid": 600,
                "usage": "compute",
                "gpu_util": 50.0,
                "gpu_util_source": "cu_occupancy",
                "memory_used": 8 * GIB,
            },
            # gone already, and its driver does not count occupied units
            {"gpu_uuid": second, "pid": 701, "usage": "compute", "memory_used": GIB},
        ],
    }
    later = plain(collector.collect(tick(10)))["gpu"]
    assert [row.get("energy") for row in later] == [3_120_000_000, None]


def test_the_cards_of_an_mi250(machine: Machine) -> None:
    mi250(machine)
    card, _ = cards_of(machine)
    assert json.loads(msgspec.json.encode(card)) == {
        "gpu_uuid": "AMD-9c5d4b2f1a0e7733",
        "gpu_index": 1,
        "vendor": "amd",
        "model": "AMD INSTINCT MI250 (MCM) OAM AC MBA",
        "architecture": "gfx90a",
        "bus_address": "0000:31:00.0",
        "memory": 64 * GIB,
        "driver": "6.7.0",
        "firmware": "113-D65208-073",
        "power_limit": 560.0,
        "power_limit_min": 0.0,
        "power_limit_max": 560.0,
        "core_clock_max": 1700,
        "memory_clock_max": 1600,
    }


def test_dies_that_share_an_id_are_told_apart(machine: Machine) -> None:
    mi250(machine)
    for number in (1, 2):
        machine.write(machine.host.sys, {f"class/drm/card{number}/device/unique_id": "77"})
    uuids = [row["gpu_uuid"] for row in plain(collector_of(machine).collect(tick()))["gpu"]]
    assert uuids == ["AMD-77-0000:31:00.0", "AMD-77-0000:34:00.0"]


def integrated_row(**more: Any) -> dict[str, Any]:
    return named(
        "PCI-0000:c1:00.0",
        gpu_index=0,
        vendor="amd",
        gpu_util=7,
        gpu_util_source="gpu_busy_percent",
        memory_used=512 << 20,
        memory_total=4 * GIB,
        power=9.08,
        energy_source="power_integrated",
        temperature=43.0,
        core_clock=800,
        **more,
    )


def amdgpu_client(machine: Machine, pid: int, descriptor: int, busy: int) -> None:
    client(
        machine,
        pid,
        descriptor,
        drm_driver="amdgpu",
        drm_client_id=12,
        drm_pdev="0000:c1:00.0",
        drm_memory_vram="2048 KiB",
        drm_memory_gtt="0 KiB",
        drm_engine_gfx=f"{busy} ns",
        drm_engine_compute="0 ns",
    )


def test_an_integrated_amd_with_a_graphics_client(machine: Machine) -> None:
    integrated_amd(machine)
    amdgpu_client(machine, 900, 5, 3 * SECOND)
    collector = collector_of(machine)
    processes = facts((900, 50, 900))
    process = {
        "gpu_uuid": "PCI-0000:c1:00.0",
        "pid": 900,
        "start_ticks": 50,
        "pgid": 900,
        "usage": "graphics",
        "memory_used": 2 << 20,
    }
    assert plain(collector.collect(tick(0, processes))) == {
        "gpu": [integrated_row(energy=0)],
        "gpu_process": [{**process, "engine_time": 3 * SECOND}],
    }
    amdgpu_client(machine, 900, 5, 5 * SECOND)
    used = {"gpu_util": 20.0, "gpu_util_source": "drm_engine_time", "engine_time": 5 * SECOND}
    assert plain(collector.collect(tick(10, processes))) == {
        "gpu": [integrated_row(energy=90_800_000)],
        "gpu_process": [{**process, **used}],
    }


def test_a_suspended_gpu_is_not_woken_up(machine: Machine) -> None:
    integrated_amd(machine)
    machine.write(machine.host.sys, {"class/drm/card0/device/power/runtime_status": "suspended"})
    row = named("PCI-0000:c1:00.0", gpu_index=0, vendor="amd", error="suspended")
    assert plain(collector_of(machine).collect(tick())) == {"gpu": [row]}
