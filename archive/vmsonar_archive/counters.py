"""By how much a counter rose between two readings, when counters wrap or begin again."""


def rise(before: int | None, after: int | None, wrap: int | None = None) -> int | None:
    """The rise, or None where either reading is missing.

    A counter that wraps (RAPL's at its `max_energy_range_uj`) has passed its end once: a lower reading is the
    rest up to `wrap` and the part after it. Any other counter that is lower began again at 0.
    """
    if before is None or after is None:
        return None
    if after >= before:
        return after - before
    if wrap is not None and before <= wrap:
        return wrap - before + after
    return after
