"""What names a series within a boot, per table: the order in which rows are stored."""

#: Rows of a table without a line here are stored in the order in which they were taken.
SERIES_KEYS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_index",),
    "disk": ("device", "device_major", "device_minor"),
    "net": ("interface",),
    "pressure": ("resource",),
    "energy": ("meter",),
    "gpu": ("gpu_uuid",),
    "gpu_process": ("gpu_uuid", "pid"),
    "container": ("container_id",),
    "container_info": ("container_id",),
    "job": ("pgid", "start_ticks"),
    "job_info": ("pgid", "start_ticks"),
    "process": ("pid", "start_ticks"),
    "process_info": ("pid", "start_ticks"),
}
