"""The smallest machine that would have held what was used."""

import math

from vmsonar_inspect.model_advice import Size
from vmsonar_inspect.rules import Sizes

_GIB = 2**30


def fitting(sizes: Sizes, cores: float | None, memory: float | None, gpus: int | None) -> Size | None:
    """The smallest size with that many busy cores, that much memory and headroom, and that many GPUs."""
    if cores is None and memory is None:
        return None
    need = None if memory is None else memory * (1 + sizes.headroom) / _GIB
    return Size(
        cores=None if cores is None else _step(sizes.cores, cores_needed(cores)),
        memory_gib=None if need is None else _step(sizes.memory_gib, need),
        gpus=gpus,
        flavour=_flavour(sizes, cores, need, gpus),
    )


def cores_needed(busy: float) -> int:
    """Whole cores for that much busy time; a twentieth of a core above is noise of the sampling."""
    return max(1, math.ceil(busy - 0.05))


def _step(ladder: list[int], need: float) -> int:
    for step in sorted(ladder):
        if step >= need:
            return step
    return math.ceil(need)


def _flavour(sizes: Sizes, cores: float | None, memory_gib: float | None, gpus: int | None) -> str | None:
    for flavour in sizes.flavours:
        if (
            flavour.cpus >= cores_needed(cores or 0)
            and flavour.memory_gib >= (memory_gib or 0)
            and flavour.gpus >= (gpus or 0)
        ):
            return flavour.name
    return None
