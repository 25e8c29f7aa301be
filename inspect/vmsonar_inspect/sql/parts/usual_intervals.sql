-- The seconds between two samples of a boot, as a rule.
nominal AS (
    SELECT archive, boot, percentile_cont(0.5) WITHIN GROUP (ORDER BY interval_seconds) AS usual
    FROM sample_intervals
    GROUP BY archive, boot
)
