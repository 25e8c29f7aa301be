-- Every job over its recorded life.
WITH rolled AS (
    SELECT
        r.archive, r.boot, r.pgid, r.start_ticks,
        MAX(r.series_id) AS series_id,
        MIN(r.time) AS first_time,
        MAX(r.time) AS last_time,
        COUNT(*) AS samples,
        (MAX(r.boottime) / 1e9) - r.start_ticks / MAX(t.ticks_per_second) AS runtime_seconds,
        SUM(r.interval_seconds) AS recorded_seconds,
        SUM(r.cpu_seconds) AS cpu_seconds,
        SUM(r.cpu_user_cores * r.interval_seconds) AS cpu_user_seconds,
        SUM(r.cpu_system_cores * r.interval_seconds) AS cpu_system_seconds,
        SUM(r.cpu_seconds) / SUM(CASE WHEN r.cpu_seconds IS NOT NULL THEN r.interval_seconds END) AS cores_mean,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY r.cpu_cores) AS cores_median,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY r.cpu_cores) AS cores_p95,
        MAX(r.cpu_cores) AS cores_peak,
        CAST(AVG(r.memory) AS BIGINT) AS memory_mean,
        CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY r.memory) AS BIGINT) AS memory_median,
        CAST(percentile_cont(0.95) WITHIN GROUP (ORDER BY r.memory) AS BIGINT) AS memory_p95,
        MAX(r.memory) AS memory_peak,
        MAX(r.processes) AS processes_peak,
        MAX(r.threads) AS threads_peak,
        SUM(r.read_bytes) AS read_bytes,
        SUM(r.write_bytes) AS write_bytes,
        SUM(r.major_faults) AS major_faults
    FROM job_rates AS r
    JOIN tick_lengths AS t ON r.archive = t.archive AND r.boot = t.boot
    GROUP BY r.archive, r.boot, r.pgid, r.start_ticks
),

totals AS (
    SELECT
        j.archive, j.boot, j.pgid, j.start_ticks,
        MAX(j.user_ticks + j.system_ticks) / MAX(t.ticks_per_second) AS cpu_seconds_total,
        MAX(j.processes_seen) AS processes_seen,
        BOOL_OR(j.unattributed) AS unattributed,
        BOOL_OR(j.io_partial) AS io_partial
    FROM job AS j
    JOIN tick_lengths AS t ON j.archive = t.archive AND j.boot = t.boot
    GROUP BY j.archive, j.boot, j.pgid, j.start_ticks
)

SELECT
    r.archive, -- archive that holds the records
    r.boot, -- boot id of the kernel
    r.series_id, -- series of the job
    r.pgid, -- process group
    r.start_ticks, -- start of its first member, ticks after boot
    n.job_id, -- name for people
    n.job_source, -- where job_id comes from
    n.user_id, -- uid of the owner
    n.user_name, -- owner
    n.user_source, -- what the owner was inferred from
    n.program, -- name of the first member
    n.command, -- command line of the first member
    n.container_id, -- container of the first member
    n.started, -- start as wall time
    r.first_time, -- first sample that shows it
    r.last_time, -- last sample that shows it
    r.samples, -- samples that show it
    r.runtime_seconds, -- seconds from its start to its last sample
    r.recorded_seconds, -- seconds of that which intervals cover
    r.cpu_seconds, -- seconds of CPU time while recorded
    r.cpu_user_seconds, -- of these in user mode
    r.cpu_system_seconds, -- of these in the kernel
    o.cpu_seconds_total, -- seconds of CPU time since its start, recorded or not
    r.cores_mean, -- cores in use, mean over the recorded time
    r.cores_median, -- cores in use, median of the intervals
    r.cores_p95, -- cores in use, 95th percentile
    r.cores_peak, -- cores in use, busiest interval
    r.memory_mean, -- bytes, mean of the samples
    r.memory_median, -- bytes, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.processes_peak, -- most members at once
    o.processes_seen, -- members ever seen
    r.threads_peak, -- most threads at once
    r.read_bytes, -- bytes fetched from storage while recorded
    r.write_bytes, -- bytes sent to storage while recorded
    r.major_faults, -- faults with I/O while recorded
    o.unattributed, -- the CPU figures are a lower bound
    o.io_partial -- the I/O figures are a lower bound
FROM rolled AS r
JOIN totals AS o
    ON r.archive = o.archive AND r.boot = o.boot AND r.pgid = o.pgid AND r.start_ticks = o.start_ticks
LEFT JOIN latest_job_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pgid = n.pgid AND r.start_ticks = n.start_ticks
