-- How long a reading of something that has no counter, such as power, is believed.
SELECT
    archive, -- archive that holds the records
    boot, -- boot id of the kernel
    GREATEST(900.0, 2.5 * COALESCE(percentile_cont(0.5) WITHIN GROUP (ORDER BY interval_seconds), 0.0)) AS longest_seconds -- seconds before a sample for which its readings speak at most: a quarter of an hour, or 2.5 usual intervals
FROM sample_intervals
GROUP BY archive, boot
