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
        SUM(COALESCE(cpu_seconds_high, cpu_seconds)) AS cpu_seconds_high,
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

-- Where only samples told what ended, whole jobs may be missing.
heard AS (
    SELECT archive, MAX(CASE WHEN cpu_source = 'samples' THEN 1 ELSE 0 END) = 1 AS is_deaf
    FROM job_usage
    GROUP BY archive
)

SELECT
    s.archive, -- archive that holds the records
    s.user_name, -- user; null when unknown
    s.user_id, -- uid
    s.jobs, -- jobs seen
    s.first_time, -- first sample with a job of theirs
    s.last_time, -- last sample with a job of theirs
    s.cpu_seconds, -- seconds of CPU time while recorded
    CASE WHEN s.cpu_seconds_low < s.cpu_seconds THEN s.cpu_seconds_low END AS cpu_seconds_low, -- least that it can be, where that is another figure
    CASE WHEN s.unbounded = 0 AND NOT h.is_deaf AND s.cpu_seconds_high > s.cpu_seconds THEN s.cpu_seconds_high END AS cpu_seconds_high, -- most that it can be, where that is another figure and known
    s.cpu_source, -- what told the time of processes that ended, the weakest of the jobs
    s.cpu_seconds / 3600.0 AS core_hours, -- the same in core hours
    s.job_cores_peak, -- cores in use by one job, busiest interval
    p.memory_peak, -- bytes of all their jobs together, highest sample: a lower bound
    s.memory_source, -- how sharing was resolved, the weakest of the jobs: sum, pss or estimate
    s.job_memory_peak, -- bytes, largest job
    s.memory_byte_seconds, -- memory times time
    s.read_bytes, -- bytes fetched from storage
    s.write_bytes, -- bytes sent to storage
    s.unattributed OR h.is_deaf AS unattributed, -- the CPU time of some jobs is not exact, or jobs that lived between two samples are missing: see the bounds, without an upper one it is a lower bound
    s.io_partial -- the I/O of some jobs is not exact
FROM summed AS s
JOIN heard AS h ON s.archive = h.archive
LEFT JOIN peaks AS p
    ON s.archive = p.archive
    AND s.user_name IS NOT DISTINCT FROM p.user_name
    AND s.user_id IS NOT DISTINCT FROM p.user_id
