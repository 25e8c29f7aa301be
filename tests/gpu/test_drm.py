"""AMD and Intel from trees of files: whole rows of an MI250, an integrated AMD, an i915 and an xe card."""

import json
import shutil
from typing import Any

import msgspec

from tests.gpu.conftest import IDS, Machine, plain, tick
from tests.gpu.drm_machines import GIB, client, i915, integrated_amd, kfd_process, mi250, xe
from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.gpu import GpuCollector

SECOND = 1_000_000_000


def collector_of(machine: Machine, **options: Any) -> GpuCollector:
    return GpuCollector(machine.host, IDS, **options)


def facts(*processes: tuple[int, int, int]) -> dict[int, ProcessFacts]:
    """Processes given as id, start and group."""
    return {
        pid: ProcessFacts(pid=pid, start_ticks=start, ppid=1, pgid=pgid) for pid, start, pgid in processes
    }


def named(uuid: str, **more: Any) -> dict[str, Any]:
    return {"gpu_uuid": uuid, "series_id": IDS.gpu(uuid), **more}


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
    card, _ = collector_of(machine).cards()
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


def i915_client(machine: Machine, pid: int, descriptor: int, render: int, client_id: int = 7) -> None:
    client(
        machine,
        pid,
        descriptor,
        drm_driver="i915",
        drm_pdev="0000:03:00.0",
        drm_client_id=client_id,
        drm_resident_system0="1024 KiB",
        drm_resident_local0="3 MiB",
        drm_memory_local0="9 MiB",
        drm_engine_render=f"{render} ns",
        drm_engine_video=f"{render // 2} ns",
        drm_engine_capacity_video=2,
    )


def i915_row(**more: Any) -> dict[str, Any]:
    return named(
        "PCI-0000:03:00.0",
        gpu_index=0,
        vendor="intel",
        power_limit=190.0,
        energy=123_456_789_012,
        energy_source="counter",
        core_clock=2100,
        **more,
    )


def i915_process(pid: int, start: int, engine_time: int, **more: Any) -> dict[str, Any]:
    return {
        "gpu_uuid": "PCI-0000:03:00.0",
        "pid": pid,
        "start_ticks": start,
        "pgid": 800,
        "usage": "graphics",
        "memory_used": 3 << 20,
        "engine_time": engine_time,
        **more,
    }


def test_an_i915_client_seen_through_several_descriptors_is_counted_once(machine: Machine) -> None:
    i915(machine)
    processes = facts((801, 40, 800), (802, 60, 800))
    collector = collector_of(machine)

    def sample(seconds: float, render: int) -> dict[str, list[dict[str, Any]]]:
        # a duplicated descriptor, and one that a child inherited
        for pid, descriptor in ((801, 5), (801, 9), (802, 5)):
            i915_client(machine, pid, descriptor, render)
        return plain(collector.collect(tick(seconds, processes)))

    # video is a group of two engines: half of a half
    assert sample(0, 4 * SECOND) == {"gpu": [i915_row()], "gpu_process": [i915_process(801, 40, 5 * SECOND)]}
    share = {"gpu_util": 80.0, "gpu_util_source": "drm_engine_time"}
    device = {"gpu_util": 80.0, "gpu_util_source": "drm_clients"}
    assert sample(10, 12 * SECOND) == {
        "gpu": [i915_row(**device)],
        "gpu_process": [i915_process(801, 40, 15 * SECOND, **share)],
    }


def test_an_engine_that_steps_back_stays_at_its_maximum(machine: Machine) -> None:
    i915(machine)
    collector = collector_of(machine)
    seen = []
    for seconds, render in ((0, 4), (10, 8), (20, 6), (30, 8), (40, 12)):
        i915_client(machine, 801, 5, render * SECOND)
        (row,) = plain(collector.collect(tick(seconds, facts((801, 40, 800)))))["gpu_process"]
        seen.append((row["engine_time"] / SECOND, row.get("gpu_util")))
    assert seen == [(5, None), (10, 40.0), (10, 0.0), (10, 0.0), (15, 40.0)]


def test_a_client_that_closes_does_not_take_its_time_along(machine: Machine) -> None:
    i915(machine)
    collector = collector_of(machine)
    processes = facts((801, 40, 800))
    i915_client(machine, 801, 5, 4 * SECOND, client_id=7)
    i915_client(machine, 801, 6, 8 * SECOND, client_id=8)
    (row,) = plain(collector.collect(tick(0, processes)))["gpu_process"]
    assert (row["engine_time"], row["memory_used"]) == (15 * SECOND, 6 << 20)
    (machine.host.proc / "801/fd/6").unlink()
    (row,) = plain(collector.collect(tick(10, processes)))["gpu_process"]
    assert (row["engine_time"], row["memory_used"]) == (15 * SECOND, 3 << 20)


def test_a_client_inherited_from_a_parent_that_ended_is_not_counted_again(machine: Machine) -> None:
    i915(machine)
    collector = collector_of(machine)
    for pid in (801, 802):
        i915_client(machine, pid, 5, 4 * SECOND)
    collector.collect(tick(0, facts((801, 40, 800), (802, 60, 800))))
    shutil.rmtree(machine.host.proc / "801")
    i915_client(machine, 802, 5, 8 * SECOND)
    (row,) = plain(collector.collect(tick(10, facts((802, 60, 800)))))["gpu_process"]
    assert (row["pid"], row["engine_time"]) == (802, 5 * SECOND)


def xe_client(machine: Machine, cycles: int, total: int) -> None:
    client(
        machine,
        950,
        4,
        drm_driver="xe",
        drm_pdev="0000:04:00.0",
        drm_client_id=3,
        drm_resident_vram0="64 MiB",
        drm_resident_gtt="8 KiB",
        drm_total_vram0="96 MiB",
        drm_cycles_ccs=cycles,
        drm_total_cycles_ccs=total,
        drm_cycles_rcs=0,
        drm_total_cycles_rcs=total,
    )


def test_an_xe_card_counts_cycles(machine: Machine) -> None:
    xe(machine)
    collector = collector_of(machine)
    row = named(
        "PCI-0000:04:00.0",
        gpu_index=1,
        vendor="intel",
        energy=987_654_321,
        energy_source="counter",
        temperature=48.0,
        core_clock=2850,
    )
    process = {
        "gpu_uuid": "PCI-0000:04:00.0",
        "pid": 950,
        "start_ticks": 30,
        "pgid": 950,
        "usage": "compute",
        "memory_used": 64 << 20,
    }
    processes = facts((950, 30, 950))
    xe_client(machine, 1000, 50_000)
    assert plain(collector.collect(tick(0, processes))) == {"gpu": [row], "gpu_process": [process]}
    xe_client(machine, 4000, 60_000)
    assert plain(collector.collect(tick(10, processes))) == {
        "gpu": [{**row, "gpu_util": 30.0, "gpu_util_source": "drm_clients"}],
        "gpu_process": [{**process, "gpu_util": 30.0, "gpu_util_source": "drm_cycles"}],
    }


def test_the_cards_of_intel(machine: Machine) -> None:
    i915(machine)
    xe(machine)
    arc, battlemage = (json.loads(msgspec.json.encode(card)) for card in collector_of(machine).cards())
    assert arc == {
        "gpu_uuid": "PCI-0000:03:00.0",
        "gpu_index": 0,
        "vendor": "intel",
        "model": "Intel 8086:56a0",
        "bus_address": "0000:03:00.0",
        "driver": "i915",
        "power_limit": 190.0,
        "power_limit_max": 190.0,
        "core_clock_max": 2400,
    }
    assert battlemage == {
        "gpu_uuid": "PCI-0000:04:00.0",
        "gpu_index": 1,
        "vendor": "intel",
        "model": "Intel 8086:e20b",
        "bus_address": "0000:04:00.0",
        "driver": "xe",
        "core_clock_max": 2900,
    }


def test_a_card_that_goes_away_and_comes_back(machine: Machine) -> None:
    i915(machine)
    collector = collector_of(machine)
    collector.collect(tick())
    folder = machine.host.sys / "class/drm/card0"
    folder.rename(machine.host.sys / "class/hidden")
    gone = named("PCI-0000:03:00.0", gpu_index=0, vendor="intel", error="gpu_not_found")
    lost = {"event_type": "gpu_lost", **named("PCI-0000:03:00.0"), "detail": "gpu_not_found"}
    assert plain(collector.collect(tick(10))) == {"gpu": [gone], "event": [lost]}
    assert plain(collector.collect(tick(20))) == {"gpu": [gone]}
    (machine.host.sys / "class/hidden").rename(folder)
    found = {"event_type": "gpu_found", **named("PCI-0000:03:00.0")}
    assert plain(collector.collect(tick(30))) == {"gpu": [i915_row()], "event": [found]}


def test_vendors_that_are_not_wanted_are_not_read(machine: Machine) -> None:
    i915(machine)
    mi250(machine)
    rows = plain(collector_of(machine, vendors=["amd"]).collect(tick()))
    assert {row["vendor"] for row in rows["gpu"]} == {"amd"}
    assert plain(collector_of(machine, vendors=["nvidia"]).collect(tick())) == {}


def test_a_display_adapter_of_a_vm_is_no_gpu(machine: Machine) -> None:
    uevent = "DRIVER=bochs-drm\nPCI_ID=1234:1111\nPCI_SLOT_NAME=0000:00:02.0"
    machine.write(machine.host.sys, {"class/drm/card0/device/uevent": uevent})
    assert plain(collector_of(machine).collect(tick())) == {}
