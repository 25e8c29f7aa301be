-- The cores that a process or job used: never more than there are, and of a life under a second the mean of it.
    CASE WHEN r.cores_mean > r.cpus THEN r.cpus ELSE r.cores_mean END AS cores_mean, -- cores in use, mean over the recorded life
    CASE WHEN r.cores_median > r.cpus THEN r.cpus WHEN r.recorded_seconds < 1 AND r.cores_mean < r.cpus THEN r.cores_mean ELSE r.cores_median END AS cores_median, -- cores in use, median of the intervals
    CASE WHEN r.cores_p95 > r.cpus THEN r.cpus WHEN r.recorded_seconds < 1 AND r.cores_mean < r.cpus THEN r.cores_mean ELSE r.cores_p95 END AS cores_p95, -- cores in use, 95th percentile
    CASE WHEN r.cores_peak > r.cpus OR r.cores_mean > r.cpus THEN r.cpus WHEN r.cores_mean > r.cores_peak THEN r.cores_mean ELSE r.cores_peak END AS cores_peak, -- cores in use, busiest interval; a second at least
