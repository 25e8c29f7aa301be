-- Every life of every container: from a start to the end that follows it.
WITH lived AS (
    SELECT
        archive, boot, container_id,
        -- What was never read has no group, but its start.
        COALESCE(cgroup_inode, -start_boottime, 0) AS life,
        MIN(time) AS first_time,
        MAX(time) AS last_time,
        COUNT(*) AS row_count,
        MAX(start_boottime) AS start_boottime,
        MAX(end_boottime) AS end_boottime,
        MIN(COALESCE(end_boottime, boottime)) AS first_boottime,
        MAX(COALESCE(end_boottime, boottime)) AS last_boottime,
        MAX(cpu_time) AS cpu_time,
        MAX(cpu_time_high) AS cpu_time_high,
        MAX(cpu_source) AS cpu_source,
        MAX(memory_peak) AS memory_peak,
        MAX(memory_limit) AS memory_limit,
        MAX(oom_kills) AS oom_kills
    FROM container
    GROUP BY archive, boot, container_id, COALESCE(cgroup_inode, -start_boottime, 0)
)

SELECT
    d.archive, -- archive that holds the records
    d.boot, -- boot id of the kernel
    d.container_id, -- 64 hexadecimal digits
    n.name, -- name given by the engine
    d.first_time, -- first sample that shows this life
    d.last_time, -- last sample that shows it
    d.row_count, -- rows about it
    d.start_boottime, -- start, nanoseconds after boot
    d.end_boottime, -- end, nanoseconds after boot; null while it goes on
    (d.last_boottime - COALESCE(d.start_boottime, d.first_boottime)) / 1e9 AS runtime_seconds, -- seconds from its start to its end or last sample
    d.cpu_time / 1e9 AS cpu_seconds, -- seconds of CPU time since its start, recorded or not
    d.cpu_time_high / 1e9 AS cpu_seconds_high, -- the most that can be, where it was last read before its end
    d.cpu_source, -- of a life that ended: final (read after its last process), parent (the group above it tells), reading (before its end) or events (never read)
    d.memory_peak AS memory_charged_peak, -- bytes, the kernel's own peak, page cache included
    d.memory_limit, -- bytes it may use; null without a limit
    d.oom_kills -- processes killed for want of memory
FROM lived AS d
LEFT JOIN latest_container_info AS n ON d.archive = n.archive AND d.container_id = n.container_id
