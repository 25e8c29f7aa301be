"""NVIDIA GPUs through the real pynvml on the stub: each scenario's rows are compared whole."""

import json
from dataclasses import replace

from tests.collectors.gpu.conftest import START_US, Machine, Stub, plain, tick
from tests.collectors.gpu.scenarios import DRIVER, IDS, gpu, gpu_row, identity, uuid
from vmsonar.collectors.base import ProcessFacts
from vmsonar.collectors.gpu.nvidia.collector import NvidiaCollector


def test_no_gpu(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER)
    assert plain(collector.collect(tick())) == {}


def test_one_gpu(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)]}


def test_eight_gpus(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + "".join(gpu(index) for index in range(8)))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(index) for index in range(8)]}


def test_processes_are_joined_to_their_jobs(machine: Machine, stub: Stub, collector: NvidiaCollector) -> None:
    machine.process(4002, 88, 4000)
    sampled = START_US - 500_000
    stub.play(
        DRIVER
        + gpu(0, "compute 4001 1048576", "graphics 4001 1048576", "mps 4002", f"sample 4001 {sampled} 63 21")
    )
    facts = {4001: ProcessFacts(start_ticks=77, pgid=4000)}
    assert plain(collector.collect(tick(processes=facts)))["gpu_process"] == [
        {
            "gpu_uuid": uuid(0),
            "pid": 4001,
            "start_ticks": 77,
            "pgid": 4000,
            "usage": "compute+graphics",
            "gpu_util": 63,
            "gpu_util_source": "nvml_process_samples",
            "memory_util": 21,
            "memory_used": 1048576,
        },
        # no memory told, no sample taken: nothing, not 0
        {"gpu_uuid": uuid(0), "pid": 4002, "start_ticks": 88, "pgid": 4000, "usage": "mps"},
    ]


def test_a_process_that_vanished_stays_without_an_identity(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "compute 4001 1048576"))
    assert plain(collector.collect(tick())) == {
        "gpu": [gpu_row(0)],
        "gpu_process": [{"gpu_uuid": uuid(0), "pid": 4001, "usage": "compute", "memory_used": 1048576}],
    }


def test_utilisation_over_100_and_stale_samples_are_dropped(stub: Stub, collector: NvidiaCollector) -> None:
    fresh, old = START_US - 1_000_000, START_US - 60_000_000
    lines = [f"compute {pid} 4096" for pid in (1, 2, 3)]
    samples = [f"sample 1 {fresh} 50 10", f"sample 2 {fresh} 4294967295 10", f"sample 3 {old} 99 99"]
    stub.play(DRIVER + gpu(0, *lines, *samples))

    def utilisations(seconds: float) -> list[int | None]:
        rows = plain(collector.collect(tick(seconds)))["gpu_process"]
        return [row.get("gpu_util") for row in rows]

    assert utilisations(0) == [50, None, None]
    # the same buffer again: its samples have been counted
    assert utilisations(10) == [None, None, None]
    stub.play(DRIVER + gpu(0, *lines, f"sample 1 {fresh + 1} 20 10", f"sample 1 {fresh + 9} 30 10"))
    assert utilisations(20) == [30, None, None]


def test_a_clock_set_back_does_not_hide_samples(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "compute 1 4096", f"sample 1 {START_US} 50 10"))
    collector.collect(tick())
    stub.play(DRIVER + gpu(0, "compute 1 4096", f"sample 1 {START_US - 3_599_000_000} 40 10"))
    row = plain(collector.collect(tick(-3600)))["gpu_process"][0]
    assert row["gpu_util"] == 40


def test_idle_is_empty_whichever_way_the_driver_says_it(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0))
    assert "gpu_process" not in plain(collector.collect(tick()))
    stub.play(DRIVER + gpu(0, "fail:nvmlDeviceGetProcessUtilization 6"))
    assert plain(collector.collect(tick(10))) == {"gpu": [gpu_row(0)]}


def test_mig(machine: Machine, stub: Stub, collector: NvidiaCollector) -> None:
    machine.process(4001, 77, 4000)
    parent = gpu(0, "mig 1 7", "compute 4001 1", without=("util", "mig"))
    instances = (
        "gpu 100 uuid MIG-a\ngpu 100 memory 5100273664 0 1048576\ngpu 100 compute 4001 524288\n"
        "gpu 103 uuid MIG-b\ngpu 103 memory 5100273664 0 0\ngpu 103 name NVIDIA A100-SXM4-40GB MIG 1g.5gb\n"
    )
    stub.play(DRIVER + parent + instances)

    def instance(name: str, index: int, used: int) -> dict[str, object]:
        return {
            "gpu_uuid": name,
            "series_id": IDS.gpu(name),
            "gpu_index": index,
            "parent_uuid": uuid(0),
            "vendor": "nvidia",
            "memory_used": used,
            "memory_reserved": 0,
            "memory_total": 5100273664,
        }

    unmeasured = ("gpu_util", "gpu_util_source", "memory_util")
    assert plain(collector.collect(tick())) == {
        "gpu": [gpu_row(0, unmeasured), instance("MIG-a", 0, 1048576), instance("MIG-b", 3, 0)],
        "gpu_process": [
            {
                "gpu_uuid": "MIG-a",
                "pid": 4001,
                "start_ticks": 77,
                "pgid": 4000,
                "usage": "compute",
                "memory_used": 524288,
            }
        ],
    }
    # partitioning ends: what was not supported is asked again
    stub.play(DRIVER + gpu(0))
    assert plain(collector.collect(tick(10))) == {"gpu": [gpu_row(0)]}


def test_without_an_energy_counter_power_is_integrated_and_says_so(
    stub: Stub, collector: NvidiaCollector
) -> None:
    stub.play(DRIVER + gpu(0, without=("energy",)))
    first = plain(collector.collect(tick()))
    assert first == {"gpu": [gpu_row(0, energy=0, energy_source="power_integrated")]}
    stub.play(DRIVER + gpu(0, "power 101500", without=("energy", "power")))
    second = plain(collector.collect(tick(10)))
    # 10 s at 201.5 W on average
    expected = gpu_row(0, power=101.5, energy=2_015_000_000, energy_source="power_integrated")
    assert second == {"gpu": [expected]}


def test_with_neither_energy_nor_power_there_is_nothing_not_0(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, without=("energy", "power")))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0, ("energy", "energy_source", "power"))]}


def test_all_bits_set_is_no_reading(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "fan 0xFFFFFFFF", "compute 5 0xFFFFFFFFFFFFFFFF", without=("fan",)))
    assert plain(collector.collect(tick())) == {
        "gpu": [gpu_row(0, ("fan",))],
        "gpu_process": [{"gpu_uuid": uuid(0), "pid": 5, "usage": "compute"}],
    }


def test_pcie_traffic_is_read_rarely_and_of_one_gpu_at_a_time(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "pcie 1000 2000") + gpu(1, "pcie 10 20"))
    first = plain(collector.collect(tick()))
    assert first == {"gpu": [gpu_row(0, pcie_sent=1000, pcie_received=2000), gpu_row(1)]}
    second = plain(collector.collect(tick(10)))
    assert second == {"gpu": [gpu_row(0), gpu_row(1, pcie_sent=10, pcie_received=20)]}
    for seconds in range(20, 300, 10):
        collector.collect(tick(seconds))
    assert stub.calls()[2] == 4


def test_what_is_not_supported_is_asked_once(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "fail:nvmlDeviceGetPcieThroughput 3"))
    for seconds in range(0, 1000, 10):
        collector.collect(tick(seconds))
    assert stub.calls()[2] == 2


def test_more_processes_than_there_was_room_for(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, *(f"compute {pid} {pid * 4096}" for pid in range(1, 301))))
    for seconds in (0, 10):
        rows = plain(collector.collect(tick(seconds)))["gpu_process"]
        assert [(row["pid"], row["memory_used"]) for row in rows] == [(n, n * 4096) for n in range(1, 301)]


def test_a_list_that_never_has_room_is_given_up(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0, "fail:nvmlDeviceGetComputeRunningProcesses_v3 7"))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)]}


def test_cards(stub: Stub, collector: NvidiaCollector) -> None:
    parent = gpu(0, "mig 1 7", without=("mig",))
    instance = "gpu 100 uuid MIG-a\ngpu 100 name A100 MIG 1g.5gb\ngpu 100 memory 5100273664 0 0\n"
    stub.play(DRIVER + parent + instance)
    collector.collect(tick())
    card, part = (json.loads(_encoded(card)) for card in collector.describe()["cards"] or [])
    assert card == {
        "gpu_uuid": uuid(0),
        "gpu_index": 0,
        "vendor": "nvidia",
        "model": "NVIDIA A100-SXM4-40GB",
        "architecture": "Ampere",
        "bus_address": "0000:17:00.0",
        "memory": 42949672960,
        "driver": "550.54.15",
        "firmware": "92.00.45.00.05",
        "power_limit": 400.0,
        "power_limit_min": 100.0,
        "power_limit_max": 400.0,
        "core_clock_max": 1410,
        "memory_clock_max": 1215,
    }
    assert part == {
        "gpu_uuid": "MIG-a",
        "gpu_index": 0,
        "parent_uuid": uuid(0),
        "vendor": "nvidia",
        "model": "A100 MIG 1g.5gb",
        "memory": 5100273664,
        "driver": "550.54.15",
    }


def test_processes_can_be_left_out(machine: Machine, stub: Stub) -> None:
    machine.load_nvidia()
    collector = NvidiaCollector(machine.host, IDS, processes=False, library=stub.library)
    stub.play(DRIVER + gpu(0, "compute 4001 1048576"))
    assert plain(collector.collect(tick())) == {"gpu": [gpu_row(0)]}
    collector.close()


def test_a_lost_gpu_has_a_card_with_its_identity_only(stub: Stub, collector: NvidiaCollector) -> None:
    stub.play(DRIVER + gpu(0))
    collector.collect(tick())
    stub.play(DRIVER + gpu(0, "lost 15"))
    collector.collect(replace(tick(10), fresh=True))
    (card,) = collector.describe()["cards"] or []
    known = {key: value for key, value in identity(0).items() if key != "series_id"}
    assert json.loads(_encoded(card)) == {**known, "driver": "550.54.15"}


def _encoded(card: object) -> bytes:
    import msgspec

    return msgspec.json.encode(card)
