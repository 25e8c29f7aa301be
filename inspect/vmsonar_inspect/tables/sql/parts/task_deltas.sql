-- The rises of the counters of every {source} since the row before, or since its own start.
stepped AS (
    SELECT
        rows_.*,
        LAG(boottime) OVER w AS before,
        {values_before}
    FROM {source} AS rows_
    WINDOW w AS (PARTITION BY archive, boot, {number}, start_ticks ORDER BY boottime)
),

-- Something that started after the sample before has counted from zero since; of anything older only the rise counts.
begun AS (
    SELECT
        s.*,
        t.ticks_per_second AS ticks,
        s.before IS NULL AND s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7 AS is_new,
        CASE
            WHEN s.before IS NOT NULL THEN (s.boottime - s.before) / 1e9
            WHEN s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7
                THEN GREATEST(s.boottime / 1e9 - s.start_ticks / t.ticks_per_second, 1.0)
        END AS seconds
    FROM stepped AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
),

deltas AS (
    SELECT
        begun.*,
        {rises}
    FROM begun
)
