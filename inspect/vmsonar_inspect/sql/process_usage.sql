-- Every process over its recorded life.
WITH rolled AS (
    SELECT
        p.archive, p.boot, p.number AS pid, p.start_ticks,
        MAX(p.series_id) AS series_id,
        {usage_columns},
        MAX(p.last_boottime) / 1e9 - p.start_ticks / MAX(t.ticks_per_second) AS runtime_seconds
    FROM process_totals AS p
    JOIN tick_lengths AS t ON p.archive = t.archive AND p.boot = t.boot
    GROUP BY p.archive, p.boot, p.number, p.start_ticks
)

SELECT
    r.archive, -- archive that holds the records
    r.boot, -- boot id of the kernel
    r.series_id, -- series of the process
    r.pid, -- process id
    r.start_ticks, -- start, ticks after boot
    n.user_name, -- owner
    n.program, -- kernel's name of the process
    n.command, -- command line
    n.container_id, -- container
    r.first_time, -- first sample that shows it
    r.last_time, -- last sample that shows it
    r.samples, -- samples that show it
    r.runtime_seconds, -- seconds from its start to its last sample
    r.recorded_seconds, -- seconds of that which intervals cover
    r.cpu_seconds, -- seconds of CPU time while recorded
    r.cores_mean, -- cores in use, mean over the recorded time
    r.cores_median, -- cores in use, median of the intervals
    r.cores_p95, -- cores in use, 95th percentile
    r.cores_peak, -- cores in use, busiest interval
    r.memory_median, -- bytes resident that are its own, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.read_bytes, -- bytes fetched from storage while recorded
    r.write_bytes -- bytes sent to storage while recorded
FROM rolled AS r
LEFT JOIN latest_process_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pid = n.pid AND r.start_ticks = n.start_ticks
