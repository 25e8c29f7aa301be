"""Intel from trees of files: whole rows of an i915 and of an xe card, whose clients share their time."""

import json
import shutil
from typing import Any

import msgspec

from tests.collectors.gpu.conftest import Machine, plain, tick
from tests.collectors.gpu.drm_machines import client, i915, xe
from tests.collectors.gpu.drm_rows import cards_of, collector_of, facts, named

SECOND = 1_000_000_000


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
    arc, battlemage = (json.loads(msgspec.json.encode(card)) for card in cards_of(machine))
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
