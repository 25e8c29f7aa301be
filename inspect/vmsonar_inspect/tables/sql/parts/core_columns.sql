-- The cores that a series used.
    r.cores_mean, -- cores in use, mean over the recorded time
    r.cores_median, -- cores in use, median of the intervals
    r.cores_p95, -- cores in use, 95th percentile
    r.cores_peak, -- cores in use, busiest interval
