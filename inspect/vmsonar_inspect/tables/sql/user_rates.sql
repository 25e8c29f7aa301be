-- What all jobs of a user did together between two samples.
SELECT
    {sample_columns}
    user_name, -- user; null when unknown
    user_id, -- uid
    COUNT(CASE WHEN pgid > 0 AND COALESCE(processes, 1) > 0 THEN 1 END) AS jobs, -- jobs now
    CAST(SUM(processes) AS BIGINT) AS processes, -- members of these now
    SUM(cpu_seconds) AS cpu_seconds, -- seconds of CPU time since the rows before
    SUM(cpu_cores) AS cpu_cores, -- cores in use
    CAST(SUM(memory) AS BIGINT) AS memory, -- bytes of all jobs at this moment
    MIN(memory_source) AS memory_source, -- how sharing was resolved, the weakest: sum, pss or estimate
    CAST(SUM(read_bytes) AS BIGINT) AS read_bytes, -- bytes fetched from storage since the rows before
    CAST(SUM(write_bytes) AS BIGINT) AS write_bytes -- bytes sent to storage since the rows before
FROM job_rates AS d
GROUP BY archive, run, boot, seq, time, boottime, user_name, user_id
