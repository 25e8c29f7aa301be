-- Every user over the whole record, summed over their jobs.
SELECT
    archive, -- archive that holds the records
    user_name, -- user; null when unknown
    user_id, -- uid
    COUNT(*) AS jobs, -- jobs seen
    MIN(first_time) AS first_time, -- first sample with a job of theirs
    MAX(last_time) AS last_time, -- last sample with a job of theirs
    SUM(cpu_seconds) AS cpu_seconds, -- seconds of CPU time while recorded
    SUM(cpu_seconds) / 3600.0 AS core_hours, -- the same in core hours
    MAX(cores_peak) AS job_cores_peak, -- cores in use by one job, busiest interval
    MAX(memory_peak) AS job_memory_peak, -- bytes, largest job
    SUM(memory_mean * recorded_seconds) AS memory_byte_seconds, -- memory times time
    SUM(read_bytes) AS read_bytes, -- bytes fetched from storage
    SUM(write_bytes) AS write_bytes, -- bytes sent to storage
    BOOL_OR(unattributed) AS unattributed -- the CPU figures are a lower bound
FROM job_usage
GROUP BY archive, user_name, user_id
