-- Every user over the whole record, over all their jobs.
WITH named AS (
    SELECT
        j.archive, j.run, j.boot, j.seq, j.memory,
        {owner_columns}
        j.processes
    FROM job AS j
    LEFT JOIN latest_job_info AS n
        ON j.archive = n.archive AND j.boot = n.boot AND j.pgid = n.pgid AND j.start_ticks = n.start_ticks
    {owners}
    WHERE COALESCE(j.processes, 1) > 0
),

moments AS (
    SELECT archive, run, boot, seq, user_name, user_id, CAST(SUM(memory) AS BIGINT) AS memory
    FROM named
    GROUP BY archive, run, boot, seq, user_name, user_id
),

peaks AS (
    SELECT archive, user_name, user_id, MAX(memory) AS memory_peak
    FROM moments
    GROUP BY archive, user_name, user_id
),

summed AS (
    SELECT
        archive, user_name, user_id,
        COUNT(CASE WHEN COALESCE(job_source, '') <> 'no_group' THEN 1 END) AS jobs,
        MIN(first_time) AS first_time,
        MAX(last_time) AS last_time,
        SUM(cpu_seconds) AS cpu_seconds,
        SUM(COALESCE(cpu_seconds_low, cpu_seconds)) AS cpu_seconds_low,
        SUM(COALESCE(cpu_seconds_high, cpu_seconds)) AS cpu_seconds_most,
        SUM(CASE WHEN cpu_source = 'samples' THEN COALESCE(cpu_seconds_high, cpu_seconds, 0.0) ELSE 0.0 END)
            AS unheard_seconds,
        COUNT(CASE WHEN unattributed AND cpu_seconds_low IS NULL AND cpu_seconds_high IS NULL THEN 1 END) AS unbounded,
        MAX(cpu_source) AS cpu_source,
        MIN(memory_source) AS memory_source,
        MAX(cores_peak) AS job_cores_peak,
        MAX(memory_peak) AS job_memory_peak,
        SUM(memory_mean * recorded_seconds) AS memory_byte_seconds,
        CAST(SUM(read_bytes) AS BIGINT) AS read_bytes,
        CAST(SUM(write_bytes) AS BIGINT) AS write_bytes,
        BOOL_OR(unattributed) AS unattributed,
        BOOL_OR(io_partial) AS io_partial
    FROM job_usage
    GROUP BY archive, user_name, user_id
),

-- What began and ended between two samples, unheard, is in the time of whoever waited for it: perhaps of another user.
unheard AS (
    SELECT archive, SUM(unheard_seconds) AS seconds
    FROM summed
    GROUP BY archive
),

had AS (
    SELECT i.archive, SUM(i.interval_seconds * t.cpus) AS seconds
    FROM sample_intervals AS i
    JOIN tick_lengths AS t ON i.archive = t.archive AND i.boot = t.boot
    GROUP BY i.archive
),

bounded AS (
    SELECT
        s.*,
        u.seconds - s.unheard_seconds > 1e-6 AS is_unheard,
        GREATEST(
            LEAST(s.cpu_seconds_most + GREATEST(u.seconds - s.unheard_seconds, 0.0), h.seconds), s.cpu_seconds
        ) AS cpu_seconds_high
    FROM summed AS s
    JOIN unheard AS u ON s.archive = u.archive
    LEFT JOIN had AS h ON s.archive = h.archive
)

SELECT
    s.archive, -- archive that holds the records
    s.user_name, -- user; null when unknown
    s.user_id, -- uid
    s.jobs, -- jobs seen
    s.first_time, -- first sample with a job of theirs
    s.last_time, -- last sample with a job of theirs
    s.cpu_seconds, -- seconds of CPU time while recorded
    CASE WHEN s.cpu_seconds_low < s.cpu_seconds_high THEN s.cpu_seconds_low END AS cpu_seconds_low, -- least that it can be, where it is not exact
    CASE WHEN s.unbounded = 0 AND s.cpu_seconds_low < s.cpu_seconds_high THEN s.cpu_seconds_high END AS cpu_seconds_high, -- most that it can be, where it is not exact and that is known; what was heard of by samples alone may be any user's
    s.cpu_source, -- what told the time of processes that ended, the weakest of the jobs
    s.cpu_seconds / 3600.0 AS core_hours, -- the same in core hours
    s.job_cores_peak, -- cores in use by one job, busiest interval
    p.memory_peak, -- bytes of all their jobs together, highest sample: a lower bound
    s.memory_source, -- how sharing was resolved, the weakest of the jobs: sum, pss or estimate
    s.job_memory_peak, -- bytes, largest job
    s.memory_byte_seconds, -- memory times time
    s.read_bytes, -- bytes fetched from storage
    s.write_bytes, -- bytes sent to storage
    s.unattributed OR s.is_unheard AS unattributed, -- the CPU time of some jobs is not exact, or jobs that lived between two samples may be missing: see the bounds, without an upper one it is a lower bound
    s.io_partial -- the I/O of some jobs is not exact
FROM bounded AS s
LEFT JOIN peaks AS p
    ON s.archive = p.archive
    AND s.user_name IS NOT DISTINCT FROM p.user_name
    AND s.user_id IS NOT DISTINCT FROM p.user_id
