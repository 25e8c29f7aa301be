-- What every container did between two samples; its first interval begins at its own start.
WITH stepped AS (
    SELECT
        c.*,
        LAG(boottime) OVER w AS before,
        LAG(cpu_time) OVER w AS cpu_before,
        LAG(cpu_user_time) OVER w AS user_before,
        LAG(cpu_system_time) OVER w AS system_before,
        LAG(periods) OVER w AS periods_before,
        LAG(throttled_periods) OVER w AS throttled_before,
        LAG(throttled_time) OVER w AS throttled_time_before,
        LAG(read_bytes) OVER w AS read_before,
        LAG(write_bytes) OVER w AS write_before,
        LAG(received_bytes) OVER w AS received_before,
        LAG(sent_bytes) OVER w AS sent_before,
        LAG(oom_kills) OVER w AS oom_before,
        LAG(cpu_some_time) OVER w AS cpu_some_before,
        LAG(memory_some_time) OVER w AS memory_some_before,
        LAG(io_some_time) OVER w AS io_some_before
    FROM container AS c
    WINDOW w AS (PARTITION BY archive, boot, container_id ORDER BY boottime)
),

starts AS (
    SELECT DISTINCT archive, container_id, started
    FROM container_info
    WHERE started IS NOT NULL
),

news AS (
    SELECT s.archive, s.run, s.boot, s.seq, s.container_id
    FROM stepped AS s
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    JOIN starts AS b ON s.archive = b.archive AND s.container_id = b.container_id
    WHERE s.before IS NULL AND b.started > i.previous_time AND b.started <= s.time
    GROUP BY s.archive, s.run, s.boot, s.seq, s.container_id
),

begun AS (
    SELECT
        s.*,
        x.container_id IS NOT NULL AS is_new,
        CASE
            -- Started again, at the earliest after the sample before: it did not stand idle until then.
            WHEN s.cpu_time < s.cpu_before THEN LEAST((s.boottime - s.before) / 1e9, i.interval_seconds)
            WHEN s.before IS NOT NULL THEN (s.boottime - s.before) / 1e9
            WHEN x.container_id IS NOT NULL THEN i.interval_seconds
        END AS seconds
    FROM stepped AS s
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    LEFT JOIN news AS x
        ON s.archive = x.archive AND s.run = x.run AND s.boot = x.boot AND s.seq = x.seq
        AND s.container_id = x.container_id
),

-- The counters of a control group begin at zero when the container is started again.
deltas AS (
    SELECT
        begun.*,
        CASE WHEN is_new OR cpu_time < cpu_before THEN cpu_time ELSE cpu_time - cpu_before END AS cpu_step,
        CASE WHEN is_new OR cpu_user_time < user_before THEN cpu_user_time ELSE cpu_user_time - user_before END AS user_step,
        CASE WHEN is_new OR cpu_system_time < system_before THEN cpu_system_time ELSE cpu_system_time - system_before END AS system_step,
        CASE WHEN is_new OR periods < periods_before THEN periods ELSE periods - periods_before END AS periods_step,
        CASE WHEN is_new OR throttled_periods < throttled_before THEN throttled_periods ELSE throttled_periods - throttled_before END AS throttled_step,
        CASE WHEN is_new OR throttled_time < throttled_time_before THEN throttled_time ELSE throttled_time - throttled_time_before END AS throttled_time_step,
        CASE WHEN is_new OR read_bytes < read_before THEN read_bytes ELSE read_bytes - read_before END AS read_step,
        CASE WHEN is_new OR write_bytes < write_before THEN write_bytes ELSE write_bytes - write_before END AS write_step,
        CASE WHEN is_new OR received_bytes < received_before THEN received_bytes ELSE received_bytes - received_before END AS received_step,
        CASE WHEN is_new OR sent_bytes < sent_before THEN sent_bytes ELSE sent_bytes - sent_before END AS sent_step,
        CASE WHEN is_new OR oom_kills < oom_before THEN oom_kills ELSE oom_kills - oom_before END AS oom_step,
        CASE WHEN is_new OR cpu_some_time < cpu_some_before THEN cpu_some_time ELSE cpu_some_time - cpu_some_before END AS cpu_some_step,
        CASE WHEN is_new OR memory_some_time < memory_some_before THEN memory_some_time ELSE memory_some_time - memory_some_before END AS memory_some_step,
        CASE WHEN is_new OR io_some_time < io_some_before THEN io_some_time ELSE io_some_time - io_some_before END AS io_some_step
    FROM begun
)

SELECT
    d.archive, -- archive that holds the record
    d.run, -- start of the daemon that recorded it
    d.boot, -- boot id of the kernel
    d.seq, -- number of the sample
    d.time, -- wall clock of the sample
    d.boottime, -- nanoseconds since boot
    n.series_id, -- series of the container
    d.container_id, -- 64 hexadecimal digits
    n.name, -- name given by the engine
    n.image, -- image as it was asked for
    n.user_name, -- owner
    d.seconds AS interval_seconds, -- seconds since the row before, or since the sample before its start
    d.cpu_step / 1e9 AS cpu_seconds, -- seconds of CPU time since then
    d.cpu_step / 1e9 / d.seconds AS cpu_cores, -- cores in use
    d.user_step / 1e9 / d.seconds AS cpu_user_cores, -- cores: user mode
    d.system_step / 1e9 / d.seconds AS cpu_system_cores, -- cores: kernel
    CASE WHEN d.cpu_quota IS NOT NULL AND d.cpu_period > 0 THEN d.cpu_quota / CAST(d.cpu_period AS DOUBLE) END AS cpu_limit_cores, -- cores it may use; null without a quota
    CASE WHEN d.periods_step > 0 THEN d.throttled_step / CAST(d.periods_step AS DOUBLE) END AS throttled_share, -- share of periods in which it was throttled
    d.throttled_time_step / 1e9 AS throttled_seconds, -- seconds throttled since then
    d.memory_used, -- bytes charged, page cache included
    CASE WHEN d.memory_used < d.memory_inactive_file THEN 0 ELSE d.memory_used - d.memory_inactive_file END AS memory_working, -- bytes charged without cache that can be dropped at once
    d.memory_anonymous, -- bytes of anonymous memory
    d.memory_limit, -- bytes it may use; null without a limit
    d.swap_used, -- bytes in swap
    d.processes, -- tasks now
    d.oom_step AS oom_kills, -- processes killed for want of memory since then
    d.read_step AS read_bytes, -- bytes read from block devices since then
    d.write_step AS write_bytes, -- bytes written since then
    d.received_step AS received_bytes, -- bytes received since then
    d.sent_step AS sent_bytes, -- bytes sent since then
    d.read_step / d.seconds AS read_bytes_per_second, -- bytes per second
    d.write_step / d.seconds AS write_bytes_per_second, -- bytes per second
    d.received_step / d.seconds AS received_bytes_per_second, -- bytes per second
    d.sent_step / d.seconds AS sent_bytes_per_second, -- bytes per second
    d.network_shared, -- the network is the host's or another container's: do not add up
    CASE WHEN d.cpu_some_step >= 0 THEN LEAST(d.cpu_some_step / 1e6 / d.seconds, 1.0) END AS cpu_some_share, -- share of time in which some task waited for a CPU
    CASE WHEN d.memory_some_step >= 0 THEN LEAST(d.memory_some_step / 1e6 / d.seconds, 1.0) END AS memory_some_share, -- share of time in which some task waited for memory
    CASE WHEN d.io_some_step >= 0 THEN LEAST(d.io_some_step / 1e6 / d.seconds, 1.0) END AS io_some_share -- share of time in which some task waited for I/O
FROM deltas AS d
LEFT JOIN latest_container_info AS n ON d.archive = n.archive AND d.container_id = n.container_id
