"""Scenarios for the NVML stub, and the rows that they must give."""

from typing import Any

from tests.collectors.gpu.conftest import IDS

DRIVER = "driver version 550.54.15\n"


def gpu(index: int, *more: str, without: tuple[str, ...] = ()) -> str:
    """One A100 in full, with further lines, or without some."""
    lines = [
        f"uuid {uuid(index)}",
        "name NVIDIA A100-SXM4-40GB",
        f"bus 00000000:{0x17 + index:02X}:00.0",
        "architecture 7",
        "vbios 92.00.45.00.05",
        "util 87 43",
        "memory 42949672960 624951296 21474836480",
        "power 301500",
        "limit 400000",
        "limits 100000 400000",
        f"energy {1_000_000 + index}",
        "temperature 61",
        "fan 30",
        "state 0",
        "mode 0",
        "clocks 1410 1410 1215",
        "maxclocks 1410 1410 1215",
        "reasons 0x4",
        "ecc 2 0",
        "remapped 1 2",
        "mig 0 0",
    ]
    kept = [line for line in lines if line.split()[0] not in without]
    return "".join(f"gpu {index} {line}\n" for line in [*kept, *more])


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def identity(index: int, **more: Any) -> dict[str, Any]:
    """What every row of that GPU has."""
    return {
        "gpu_uuid": uuid(index),
        "series_id": IDS.gpu(uuid(index)),
        "gpu_index": index,
        "vendor": "nvidia",
        **more,
    }


def gpu_row(index: int, without: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """The row that `gpu` gives."""
    row = identity(
        index,
        gpu_util=87,
        gpu_util_source="nvml_utilization",
        memory_util=43,
        memory_used=21474836480,
        memory_reserved=624951296,
        memory_total=42949672960,
        power=301.5,
        power_limit=400.0,
        energy=(1_000_000 + index) * 1000,
        energy_source="counter",
        temperature=61,
        fan=30,
        performance_state=0,
        compute_mode="default",
        core_clock=1410,
        memory_clock=1215,
        clock_reasons=4,
        ecc_corrected=2,
        ecc_uncorrected=0,
        remapped_rows=3,
    )
    return {key: value for key, value in {**row, **changed}.items() if key not in without}
