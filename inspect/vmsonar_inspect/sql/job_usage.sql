-- Every job over its recorded life.
WITH rolled AS (
    SELECT
        j.archive, j.boot, j.number AS pgid, j.start_ticks,
        MAX(j.series_id) AS series_id,
        {usage_columns},
        MAX(j.last_boottime) / 1e9 - j.start_ticks / MAX(t.ticks_per_second) AS runtime_seconds,
        MAX(CASE WHEN measure = 'cpu_user' THEN total END) AS cpu_user_seconds,
        MAX(CASE WHEN measure = 'cpu_system' THEN total END) AS cpu_system_seconds,
        MAX(CASE WHEN measure = 'cpu' THEN highest_value END) AS cpu_seconds_total,
        CAST(MAX(CASE WHEN measure = 'processes' THEN maximum END) AS BIGINT) AS processes_peak,
        CAST(MAX(CASE WHEN measure = 'processes_seen' THEN maximum END) AS BIGINT) AS processes_seen,
        CAST(MAX(CASE WHEN measure = 'threads' THEN maximum END) AS BIGINT) AS threads_peak,
        CAST(MAX(CASE WHEN measure = 'major_faults' THEN total END) AS BIGINT) AS major_faults,
        MAX(CASE WHEN measure = 'unattributed' THEN maximum END) > 0 AS unattributed,
        MAX(CASE WHEN measure = 'io_partial' THEN maximum END) > 0 AS io_partial
    FROM job_totals AS j
    JOIN tick_lengths AS t ON j.archive = t.archive AND j.boot = t.boot
    GROUP BY j.archive, j.boot, j.number, j.start_ticks
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
    r.cpu_seconds_total, -- seconds of CPU time since its start, recorded or not
    r.cores_mean, -- cores in use, mean over the recorded time
    r.cores_median, -- cores in use, median of the intervals
    r.cores_p95, -- cores in use, 95th percentile
    r.cores_peak, -- cores in use, busiest interval
    r.memory_mean, -- bytes, mean of the samples
    r.memory_median, -- bytes, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.processes_peak, -- most members at once
    r.processes_seen, -- members ever seen
    r.threads_peak, -- most threads at once
    r.read_bytes, -- bytes fetched from storage while recorded
    r.write_bytes, -- bytes sent to storage while recorded
    r.major_faults, -- faults with I/O while recorded
    r.unattributed, -- the CPU figures are a lower bound
    r.io_partial -- the I/O figures are a lower bound
FROM rolled AS r
LEFT JOIN latest_job_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pgid = n.pgid AND r.start_ticks = n.start_ticks
