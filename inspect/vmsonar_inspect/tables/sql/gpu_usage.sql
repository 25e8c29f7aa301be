-- Every GPU over the whole record, used against available.
SELECT
    archive, -- archive that holds the records
    gpu_uuid, -- UUID of the device or instance
    MAX(series_id) AS series_id, -- series of the GPU
    MAX(gpu_index) AS gpu_index, -- number the driver gives it
    MIN(time) AS first_time, -- first sample
    MAX(time) AS last_time, -- last sample
    COUNT(*) AS samples, -- samples
    SUM(seen_seconds) AS recorded_seconds, -- seconds for which the readings speak
    SUM(gpu_util * seen_seconds) / SUM(CASE WHEN gpu_util IS NOT NULL THEN seen_seconds END) AS util_mean, -- percent busy, mean over time
    percentile_cont(0.5) WITHIN GROUP (ORDER BY gpu_util) AS util_median, -- percent busy, median of the samples
    percentile_cont(0.95) WITHIN GROUP (ORDER BY gpu_util) AS util_p95, -- percent busy, 95th percentile
    MAX(gpu_util) AS util_peak, -- percent busy, busiest sample
    COALESCE(SUM(CASE WHEN gpu_util >= 5 THEN seen_seconds END), 0.0) AS busy_seconds, -- seconds with at least 5 percent
    CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY memory_used) AS BIGINT) AS memory_median, -- bytes of device memory, median
    CAST(percentile_cont(0.95) WITHIN GROUP (ORDER BY memory_used) AS BIGINT) AS memory_p95, -- bytes, 95th percentile
    MAX(memory_used) AS memory_peak, -- bytes, highest sample
    MAX(memory_total) AS memory_total, -- bytes of device memory
    SUM(watts * seen_seconds) / SUM(CASE WHEN watts IS NOT NULL THEN seen_seconds END) AS power_mean, -- watts, mean over time
    MAX(watts) AS power_peak, -- watts, highest interval
    SUM(joules) AS joules, -- energy while recorded
    MAX(temperature) AS temperature_peak, -- degrees celsius
    COUNT(error) AS errors -- samples in which it could not be read
FROM gpu_rates
GROUP BY archive, gpu_uuid
