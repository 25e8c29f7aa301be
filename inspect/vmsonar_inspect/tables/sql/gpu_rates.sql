-- Every GPU in every sample, with its energy since the sample before.
WITH stepped AS (
    SELECT
        gpu.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        energy - LAG(energy) OVER w AS energy_step
    FROM gpu
    WINDOW w AS (PARTITION BY archive, boot, gpu_uuid ORDER BY boottime)
)

SELECT
    {sample_columns}
    series_id, -- series of the GPU
    gpu_uuid, -- UUID of the device or instance
    parent_uuid, -- the GPU that this instance is a part of
    gpu_index, -- number the driver gives it
    seconds AS interval_seconds, -- seconds since the row before
    CASE WHEN seconds <= l.longest_seconds THEN seconds END AS seen_seconds, -- seconds for which the readings speak; null after a hole
    gpu_util, -- percent of time with a kernel running
    memory_util, -- percent of time with memory traffic
    memory_used, -- bytes of device memory allocated
    memory_total, -- bytes of device memory
    power, -- watts drawn now
    power_limit, -- watts it may draw
    CASE WHEN energy_step >= 0 THEN energy_step / 1e6 WHEN energy IS NULL AND seconds <= l.longest_seconds THEN power * seconds END AS joules, -- joules since the row before
    CASE WHEN energy_step >= 0 THEN energy_step / 1e6 / seconds ELSE power END AS watts, -- mean power since the row before
    temperature, -- degrees celsius
    core_clock, -- megahertz
    clock_reasons, -- why the clock is not higher, bit mask
    error -- why the device cannot be read
FROM stepped AS d
JOIN reading_limits AS l ON d.archive = l.archive AND d.boot = l.boot
