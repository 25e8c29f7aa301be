-- Every container over its recorded life.
WITH rolled AS (
    SELECT
        archive, container_id,
        {usage_columns},
        MAX(CASE WHEN measure = 'cpu_user' THEN total END) AS cpu_user_seconds,
        MAX(CASE WHEN measure = 'cpu_system' THEN total END) AS cpu_system_seconds,
        MAX(CASE WHEN measure = 'cpu_doubt' THEN total END) / 1e9 AS cpu_doubt_seconds,
        CAST(MAX(CASE WHEN measure = 'memory_charged_peak' THEN maximum END) AS BIGINT) AS memory_charged_peak,
        MAX(CASE WHEN measure = 'cpu_quota' THEN maximum END)
        / MAX(CASE WHEN measure = 'cpu_period' AND maximum > 0 THEN maximum END) AS cpu_limit_cores,
        MAX(CASE WHEN measure = 'throttled' THEN total END) AS throttled_seconds,
        CAST(MAX(CASE WHEN measure = 'memory_limit' THEN maximum END) AS BIGINT) AS memory_limit,
        MAX(CASE WHEN measure = 'memory_unlimited' THEN maximum END) > 0 AS memory_unlimited,
        CAST(MAX(CASE WHEN measure = 'processes' THEN maximum END) AS BIGINT) AS processes_peak,
        CAST(MAX(CASE WHEN measure = 'oom_kills' THEN total END) AS BIGINT) AS oom_kills,
        CAST(MAX(CASE WHEN measure = 'received_bytes' THEN total END) AS BIGINT) AS received_bytes,
        CAST(MAX(CASE WHEN measure = 'sent_bytes' THEN total END) AS BIGINT) AS sent_bytes,
        MAX(CASE WHEN measure = 'network_shared' THEN maximum END) > 0 AS network_shared
    FROM container_totals
    GROUP BY archive, container_id
)

SELECT
    r.archive, -- archive that holds the records
    n.series_id, -- series of the container
    r.container_id, -- 64 hexadecimal digits
    n.engine, -- docker, podman, containerd, crio or unknown
    n.name, -- name given by the engine
    n.image, -- image as it was asked for
    n.command, -- command line
    n.user_name, -- owner
    n.user_source, -- what the owner was inferred from
    n.compose_project, -- label com.docker.compose.project
    n.compose_service, -- label com.docker.compose.service
    n.created, -- creation, as the engine says
    n.started, -- last start, as the engine says
    n.restart_count, -- restarts by the engine
    r.first_time, -- first sample that shows it
    r.last_time, -- last sample that shows it
    r.samples, -- samples that show it
    r.recorded_seconds, -- seconds of its lives that intervals cover
    r.cpu_seconds, -- seconds of CPU time while recorded
    COALESCE(r.cpu_seconds, 0) + r.cpu_doubt_seconds AS cpu_seconds_high, -- the most that can be, where lives were last read before their end
    r.cpu_user_seconds, -- of these in user mode
    r.cpu_system_seconds, -- of these in the kernel
    {core_columns}
    r.cpu_limit_cores, -- cores it may use; null without a quota
    r.throttled_seconds, -- seconds throttled
    r.memory_median, -- bytes without cache that can be dropped at once, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample: a lower bound
    r.memory_charged_peak, -- bytes, the kernel's own peak, page cache included
    r.memory_limit, -- bytes it may use; null without a limit
    r.memory_unlimited, -- it had no memory limit of its own, at least at times
    r.processes_peak, -- most tasks at once
    r.oom_kills, -- processes killed for want of memory
    r.read_bytes, -- bytes read from block devices
    r.write_bytes, -- bytes written
    r.received_bytes, -- bytes received
    r.sent_bytes, -- bytes sent
    r.network_shared -- the network is the host's or another container's: do not add up
FROM rolled AS r
LEFT JOIN latest_container_info AS n ON r.archive = n.archive AND r.container_id = n.container_id
