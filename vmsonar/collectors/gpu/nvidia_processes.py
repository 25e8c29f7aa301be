"""Which processes use an NVIDIA GPU, how much of its memory they hold and of its time they take."""

from datetime import datetime
from typing import Any

from vmsonar.collectors.gpu.nvidia_device import Device, in_range
from vmsonar.collectors.gpu.reading import Use

_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# At the first reading the driver's buffer holds the past; only so much of it is of now.
_FIRST_WINDOW = 10_000_000


def read_processes(device: Device, time: datetime) -> list[Use]:
    """The processes of one GPU or MIG instance, in order of their ids."""
    uses: dict[int, Use] = {}
    for usage, function in _LISTS:
        for process in _running(device, function):
            _note(uses, device.uuid, usage, process)
    if device.parent is None:
        _add_utilisation(device, uses, round(time.timestamp() * 1e6))
    return [uses[pid] for pid in sorted(uses)]


def _running(device: Device, function: str) -> list[Any]:
    found = device.ask(f"{function}_v3")
    if found is None:
        # driver 470 and before
        found = device.ask(f"{function}_v2")
    return found or []


def _note(uses: dict[int, Use], gpu_uuid: str, usage: str, process: Any) -> None:
    use = uses.get(process.pid)
    if use is None:
        use = uses[process.pid] = Use(gpu_uuid, process.pid)
    if usage not in use.usages:
        use.usages.append(usage)
    memory = in_range(process.usedGpuMemory)
    if memory is not None:
        # a process in two lists is shown with the same memory in both
        use.memory = max(memory, use.memory or 0)


def _add_utilisation(device: Device, uses: dict[int, Use], now: int) -> None:
    since = device.memory.sampled
    if not 0 < since <= now + _FIRST_WINDOW:
        # the first time, or the clock was set back
        since = now - _FIRST_WINDOW
    for sample in _fresh_samples(device, since):
        use = uses.get(sample.pid)
        if use is None:
            use = uses[sample.pid] = Use(device.uuid, sample.pid)
        use.gpu_util, use.memory_util = sample.smUtil, sample.memUtil
        use.util_source = "nvml_process_samples"


def _fresh_samples(device: Device, since: int) -> list[Any]:
    """The driver's samples in order of time, without those that are old or impossible."""
    name = "nvmlDeviceGetProcessUtilization"
    samples = device.ask_once((name,), name, since) or []
    fresh = sorted((each for each in samples if each.timeStamp > since), key=lambda each: each.timeStamp)
    if fresh:
        device.memory.sampled = fresh[-1].timeStamp
    return [each for each in fresh if each.smUtil <= 100 and each.memUtil <= 100]
