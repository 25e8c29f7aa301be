-- The machine over the whole record, used against available.
SELECT
    archive, -- archive that holds the records
    MIN(time) AS first_time, -- first sample
    MAX(time) AS last_time, -- last sample
    COUNT(*) AS samples, -- samples
    SUM(interval_seconds) AS recorded_seconds, -- seconds covered by intervals
    MAX(cpus) AS cpus, -- logical CPUs
    SUM(cpu_seconds) AS cpu_seconds, -- seconds of CPU time used
    SUM(cpu_busy_cores * interval_seconds) / SUM(CASE WHEN cpu_busy_cores IS NOT NULL THEN interval_seconds END) AS cores_mean, -- cores in use, mean over time
    percentile_cont(0.5) WITHIN GROUP (ORDER BY cpu_busy_cores) AS cores_median, -- cores in use, median of the intervals
    percentile_cont(0.95) WITHIN GROUP (ORDER BY cpu_busy_cores) AS cores_p95, -- cores in use, 95th percentile
    MAX(cpu_busy_cores) AS cores_peak, -- cores in use, busiest interval
    MAX(memory_total) AS memory_total, -- bytes of usable memory
    CAST(AVG(memory_used) AS BIGINT) AS memory_mean, -- bytes used, mean
    CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY memory_used) AS BIGINT) AS memory_median, -- bytes used, median
    CAST(percentile_cont(0.95) WITHIN GROUP (ORDER BY memory_used) AS BIGINT) AS memory_p95, -- bytes used, 95th percentile
    MAX(memory_used) AS memory_peak, -- bytes used, highest sample
    CAST(SUM(disk_read_bytes_per_second * interval_seconds) AS BIGINT) AS disk_read_bytes, -- bytes read from disks
    CAST(SUM(disk_write_bytes_per_second * interval_seconds) AS BIGINT) AS disk_write_bytes, -- bytes written to disks
    CAST(SUM(net_received_bytes_per_second * interval_seconds) AS BIGINT) AS net_received_bytes, -- bytes received
    CAST(SUM(net_sent_bytes_per_second * interval_seconds) AS BIGINT) AS net_sent_bytes, -- bytes sent
    CAST(SUM(oom_kills) AS BIGINT) AS oom_kills -- processes killed for want of memory
FROM node_rates
GROUP BY archive
