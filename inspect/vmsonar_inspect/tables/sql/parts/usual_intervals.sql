-- The seconds between two samples of a boot, as a rule.
medians AS (
    SELECT archive, boot, percentile_cont(0.5) WITHIN GROUP (ORDER BY interval_seconds) AS median
    FROM sample_intervals
    GROUP BY archive, boot
),

-- The configuration may have been changed in between: each description of the machine holds until the next.
configured AS (
    SELECT
        archive, seq AS first_seq, interval / 1000.0 AS seconds,
        LEAD(seq) OVER (PARTITION BY archive ORDER BY seq) AS next_seq
    FROM sysinfo
),

nominal AS (
    SELECT i.archive, i.run, i.boot, i.seq, m.median, GREATEST(m.median, COALESCE(c.seconds, 0.0)) AS usual
    FROM sample_intervals AS i
    JOIN medians AS m ON i.archive = m.archive AND i.boot = m.boot
    LEFT JOIN configured AS c
        ON i.archive = c.archive AND i.seq > c.first_seq AND (c.next_seq IS NULL OR i.seq < c.next_seq)
)
