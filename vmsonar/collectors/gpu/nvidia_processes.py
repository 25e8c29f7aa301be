"""Which processes use an NVIDIA GPU, how much of its memory they hold and of its time they take."""

from datetime import datetime
from struct import Struct

from vmsonar.collectors.gpu.nvidia_device import Device, in_range
from vmsonar.collectors.gpu.reading import Use

_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# At the first reading the driver's buffer holds the past; only so much of it is of now.
_FIRST_WINDOW = 10_000_000
#: nvmlProcessUtilizationSample_t: process, time in µs, share of the compute engines and of memory.
_SAMPLE = Struct("@IQII8x")


def read_processes(device: Device, time: datetime) -> list[Use]:
    """The processes of one GPU or MIG instance, in order of their ids."""
    uses: dict[int, Use] = {}
    for usage, function in _LISTS:
        for pid, memory in _running(device, function):
            _note(uses, Use(device.uuid, pid), usage, in_range(memory))
    if device.parent is None:
        _add_utilisation(device, uses, round(time.timestamp() * 1e6))
    return [uses[pid] for pid in sorted(uses)]


def _running(device: Device, function: str) -> list[tuple[int, int]]:
    found = device.processes(f"{function}_v3")
    if found is None:
        # driver 470 and before
        found = device.processes(f"{function}_v2")
    return found or []


def _note(uses: dict[int, Use], use: Use, usage: str, memory: int | None) -> None:
    use = uses.setdefault(use.pid, use)
    if usage not in use.usages:
        use.usages.append(usage)
    if memory is not None:
        # a process in two lists is shown with the same memory in both
        use.memory = max(memory, use.memory or 0)


def _add_utilisation(device: Device, uses: dict[int, Use], now: int) -> None:
    since = device.memory.sampled
    if not 0 < since <= now + _FIRST_WINDOW:
        # the first time, or the clock was set back
        since = now - _FIRST_WINDOW
    for _, pid, share, memory_share in _fresh_samples(device, since):
        use = uses.get(pid)
        if use is None:
            use = uses[pid] = Use(device.uuid, pid)
        use.gpu_util, use.memory_util = share, memory_share
        use.util_source = "nvml_process_samples"


def _fresh_samples(device: Device, since: int) -> list[tuple[int, int, int, int]]:
    """The driver's samples in order of time, without those that are old or impossible."""
    name = "nvmlDeviceGetProcessUtilization"
    found = device.ask_once((name,), name, since) or []
    # pynvml's structures are slow to ask for single fields: that was a third of the cost of a sample
    fields = [_SAMPLE.unpack(each) for each in found]
    fresh = sorted((time, pid, sm, memory) for pid, time, sm, memory in fields if time > since)
    if fresh:
        device.memory.sampled = fresh[-1][0]
    return [each for each in fresh if each[2] <= 100 and each[3] <= 100]
