-- What every unit that is no container did between two samples: services, Slurm jobs and steps, sessions, scopes, pods.
WITH stepped AS (
    SELECT
        c.*,
        COALESCE(end_boottime, boottime) AS read_at,
        LAG(COALESCE(end_boottime, boottime)) OVER w AS before,
        {values_before}
    FROM cgroup AS c
    -- Another control group at the same path is another life, which counts from zero.
    WINDOW w AS (
        PARTITION BY archive, boot, cgroup, COALESCE(cgroup_inode, 0)
        ORDER BY boottime, COALESCE(end_boottime, boottime)
    )
),

begun AS (
    SELECT
        s.*,
        -- Not there in the sample before, of the same run: it began since then.
        s.before IS NULL AND COALESCE(i.previous_run = i.run, FALSE) AS is_new,
        CASE
            WHEN s.before IS NOT NULL THEN NULLIF((s.read_at - s.before) / 1e9, 0)
            WHEN i.previous_run = i.run THEN i.interval_seconds
        END AS seconds
    FROM stepped AS s
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
),

deltas AS (
    SELECT
        begun.*,
        {rises}
    FROM begun
)

SELECT
    {sample_columns}
    d.cgroup, -- control group path
    d.cgroup_kind, -- slurm, service, session, scope or pod
    d.unit_name, -- name of the service, session, scope or pod
    d.batch_job, -- number or SLUID of the batch job whose it is
    d.batch_step, -- its step; null in the row of the whole job, which contains its steps
    d.seconds AS interval_seconds, -- seconds since the row before; since the sample before for a unit that is new
    d.cpu_time_rise / 1e9 AS cpu_seconds, -- seconds of CPU time since then
    CASE WHEN d.cpu_time_rise / 1e9 / d.seconds > t.cpus THEN t.cpus ELSE d.cpu_time_rise / 1e9 / d.seconds END AS cpu_cores, -- cores in use; never more than there are
    CASE WHEN d.cpu_quota IS NOT NULL AND d.cpu_period > 0 THEN d.cpu_quota / CAST(d.cpu_period AS DOUBLE) END AS cpu_limit_cores, -- cores it may use; null without a quota
    CASE WHEN d.periods_rise > 0 THEN d.throttled_periods_rise / CAST(d.periods_rise AS DOUBLE) END AS throttled_share, -- share of periods in which it was throttled
    d.memory_used, -- bytes charged, page cache included
    CASE WHEN d.memory_used < d.memory_inactive_file THEN 0 ELSE d.memory_used - d.memory_inactive_file END AS memory_working, -- bytes charged without cache that can be dropped at once
    d.memory_peak AS memory_charged_peak, -- bytes, the kernel's own peak, page cache included
    d.memory_limit, -- bytes it may use; null without a limit
    d.swap_used, -- bytes in swap
    d.swap_limit, -- bytes of swap it may use; null without a limit
    d.processes, -- tasks now
    d.oom_kills_rise AS oom_kills, -- processes killed for want of memory since then
    d.read_bytes_rise AS read_bytes, -- bytes read from block devices since then
    d.write_bytes_rise AS write_bytes, -- bytes written since then
    CASE WHEN d.cpu_some_time_rise >= 0 THEN LEAST(d.cpu_some_time_rise / 1e6 / d.seconds, 1.0) END AS cpu_some_share, -- share of time in which some task waited for a CPU
    CASE WHEN d.memory_some_time_rise >= 0 THEN LEAST(d.memory_some_time_rise / 1e6 / d.seconds, 1.0) END AS memory_some_share, -- share of time in which some task waited for memory
    CASE WHEN d.io_some_time_rise >= 0 THEN LEAST(d.io_some_time_rise / 1e6 / d.seconds, 1.0) END AS io_some_share -- share of time in which some task waited for I/O
FROM deltas AS d
JOIN tick_lengths AS t ON d.archive = t.archive AND d.boot = t.boot
