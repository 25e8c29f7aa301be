-- What was recorded of every boot, and what is missing.
WITH {usual_intervals}
SELECT
    archive, -- archive that holds the records
    boot, -- boot id of the kernel
    MIN(time) AS first_time, -- first sample
    MAX(time) AS last_time, -- last sample
    COUNT(*) AS samples, -- samples that could be read
    COUNT(DISTINCT run) AS runs, -- starts of the daemon
    MAX(median) AS interval_seconds, -- seconds between two samples, as a rule
    (MAX(boottime) - MIN(boottime)) / 1e9 AS span_seconds, -- seconds from the first to the last sample
    COALESCE(SUM(interval_seconds) FILTER (WHERE interval_seconds <= 2.5 * usual), 0.0)
        AS recorded_seconds, -- seconds covered by intervals of ordinary length
    COUNT(*) FILTER (WHERE interval_seconds > 2.5 * usual) AS gaps, -- intervals of more than 2.5 times that
    COALESCE(SUM(interval_seconds) FILTER (WHERE interval_seconds > 2.5 * usual), 0.0)
        AS gap_seconds -- seconds covered by gaps
FROM sample_intervals
JOIN nominal USING (archive, run, boot, seq)
GROUP BY archive, boot
