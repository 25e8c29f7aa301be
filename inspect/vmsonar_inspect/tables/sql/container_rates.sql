-- What every container did between two samples; the first interval of each life begins at its own start.
WITH stepped AS (
    SELECT
        c.*,
        COALESCE(end_boottime, boottime) AS read_at,
        LAG(COALESCE(end_boottime, boottime)) OVER w AS before,
        {values_before}
    FROM container AS c
    -- A life that was never read has no rates.
    WHERE cpu_source IS NULL OR cpu_source <> 'events'
    WINDOW w AS (
        -- Another control group is another life; older records do not tell them apart.
        PARTITION BY archive, boot, container_id, COALESCE(cgroup_inode, 0)
        ORDER BY boottime, COALESCE(end_boottime, boottime)
    )
),

starts AS (
    SELECT DISTINCT archive, container_id, started
    FROM container_info
    WHERE started IS NOT NULL
),

firsts AS (
    SELECT archive, boot, MIN(boottime) AS first_boottime
    FROM sample_intervals
    GROUP BY archive, boot
),

news AS (
    SELECT s.archive, s.run, s.boot, s.seq, s.container_id
    FROM stepped AS s
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    JOIN starts AS b ON s.archive = b.archive AND s.container_id = b.container_id
    WHERE s.start_boottime IS NULL AND s.before IS NULL AND b.started > i.previous_time AND b.started <= s.time
    GROUP BY s.archive, s.run, s.boot, s.seq, s.container_id
),

begun AS (
    SELECT
        s.*,
        s.before IS NULL AND (s.start_boottime >= f.first_boottime OR x.container_id IS NOT NULL) AS is_new,
        CASE
            -- Started again, at the earliest after the sample before: it did not stand idle until then.
            WHEN s.cpu_time < s.cpu_time_before THEN LEAST((s.boottime - s.before) / 1e9, i.interval_seconds)
            WHEN s.before IS NOT NULL THEN NULLIF((s.read_at - s.before) / 1e9, 0)
            WHEN s.start_boottime >= f.first_boottime THEN GREATEST((s.read_at - s.start_boottime) / 1e9, 0.1)
            WHEN x.container_id IS NOT NULL THEN i.interval_seconds
        END AS seconds
    FROM stepped AS s
    JOIN firsts AS f ON s.archive = f.archive AND s.boot = f.boot
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    LEFT JOIN news AS x
        ON s.archive = x.archive AND s.run = x.run AND s.boot = x.boot AND s.seq = x.seq
        AND s.container_id = x.container_id
),

deltas AS (
    SELECT
        begun.*,
        {rises}
    FROM begun
)

SELECT
    {sample_columns}
    n.series_id, -- series of the container
    d.container_id, -- 64 hexadecimal digits
    n.name, -- name given by the engine
    n.image, -- image as it was asked for
    n.user_name, -- owner
    d.seconds AS interval_seconds, -- seconds of its life since the row before, or since its start
    d.cpu_time_rise / 1e9 AS cpu_seconds, -- seconds of CPU time since then
    (d.cpu_time_rise + d.cpu_time_high - d.cpu_time) / 1e9 AS cpu_seconds_high, -- the most that can be, where it was read before its end
    d.end_boottime, -- end of this life, nanoseconds after boot; null in samples of a container that goes on
    CASE WHEN d.cpu_time_rise / 1e9 / d.seconds > t.cpus THEN t.cpus ELSE d.cpu_time_rise / 1e9 / d.seconds END AS cpu_cores, -- cores in use; never more than there are
    d.cpu_user_time_rise / 1e9 / d.seconds AS cpu_user_cores, -- cores: user mode
    d.cpu_system_time_rise / 1e9 / d.seconds AS cpu_system_cores, -- cores: kernel
    CASE WHEN d.cpu_quota IS NOT NULL AND d.cpu_period > 0 THEN d.cpu_quota / CAST(d.cpu_period AS DOUBLE) END AS cpu_limit_cores, -- cores it may use; null without a quota
    CASE WHEN d.periods_rise > 0 THEN d.throttled_periods_rise / CAST(d.periods_rise AS DOUBLE) END AS throttled_share, -- share of periods in which it was throttled
    d.throttled_time_rise / 1e9 AS throttled_seconds, -- seconds throttled since then
    d.memory_used, -- bytes charged, page cache included
    CASE WHEN d.memory_used < d.memory_inactive_file THEN 0 ELSE d.memory_used - d.memory_inactive_file END AS memory_working, -- bytes charged without cache that can be dropped at once
    d.memory_anonymous, -- bytes of anonymous memory
    d.memory_peak AS memory_charged_peak, -- bytes, the kernel's own peak of this life, page cache included
    d.memory_limit, -- bytes it may use; null without a limit
    d.swap_used, -- bytes in swap
    d.processes, -- tasks now
    d.oom_kills_rise AS oom_kills, -- processes killed for want of memory since then
    d.read_bytes_rise AS read_bytes, -- bytes read from block devices since then
    d.write_bytes_rise AS write_bytes, -- bytes written since then
    d.received_bytes_rise AS received_bytes, -- bytes received since then
    d.sent_bytes_rise AS sent_bytes, -- bytes sent since then
    d.read_bytes_rise / d.seconds AS read_bytes_per_second, -- bytes per second
    d.write_bytes_rise / d.seconds AS write_bytes_per_second, -- bytes per second
    d.received_bytes_rise / d.seconds AS received_bytes_per_second, -- bytes per second
    d.sent_bytes_rise / d.seconds AS sent_bytes_per_second, -- bytes per second
    d.network_shared, -- the network is the host's or another container's: do not add up
    CASE WHEN d.cpu_some_time_rise >= 0 THEN LEAST(d.cpu_some_time_rise / 1e6 / d.seconds, 1.0) END AS cpu_some_share, -- share of time in which some task waited for a CPU
    CASE WHEN d.memory_some_time_rise >= 0 THEN LEAST(d.memory_some_time_rise / 1e6 / d.seconds, 1.0) END AS memory_some_share, -- share of time in which some task waited for memory
    CASE WHEN d.io_some_time_rise >= 0 THEN LEAST(d.io_some_time_rise / 1e6 / d.seconds, 1.0) END AS io_some_share -- share of time in which some task waited for I/O
FROM deltas AS d
JOIN tick_lengths AS t ON d.archive = t.archive AND d.boot = t.boot
LEFT JOIN latest_container_info AS n ON d.archive = n.archive AND d.container_id = n.container_id
