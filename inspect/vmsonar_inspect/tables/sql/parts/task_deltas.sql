-- The rises of the counters of every {source} since the row before, or since its own start.
stepped AS (
    SELECT
        rows_.*,
        LAG(boottime) OVER w AS before,
        {until} AS until,
        {is_alive} AS is_alive,
        {values_before}
    FROM {source} AS rows_
    WINDOW w AS (PARTITION BY archive, boot, {number}, start_ticks ORDER BY boottime)
),

placed AS (
    SELECT
        s.*,
        t.ticks_per_second AS ticks,
        t.cpus,
        -- Processes are read with the counters of the CPUs, whose own clock tells how long that was after the read before.
        CASE WHEN s.before = i.previous_boottime AND s.until = s.boottime THEN c.counted_seconds END AS counted_seconds,
        COALESCE(s.before IS NULL AND s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7, FALSE) AS starts,
        COALESCE(s.before IS NULL AND {counts_anew}, FALSE) AS counts_anew,
        CASE
            WHEN s.before IS NOT NULL THEN s.before / 1e9
            WHEN s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7 THEN s.start_ticks / t.ticks_per_second
            ELSE i.previous_boottime / 1e9
        END AS since
    FROM stepped AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    LEFT JOIN node_clocks AS c ON s.archive = c.archive AND s.run = c.run AND s.boot = c.boot AND s.seq = c.seq
    {seen_before}
),

-- What began after the sample before has counted from zero since; of anything older only the rise counts.
begun AS (
    SELECT
        p.*,
        p.starts OR p.counts_anew AS is_new,
        CASE WHEN p.before IS NOT NULL OR p.starts OR p.counts_anew THEN GREATEST(p.until / 1e9 - p.since, 0.0) END
            AS seconds,
        -- The seconds that rates are taken over: ticks are too coarse for less than one at the beginning and the end.
        CASE
            WHEN p.until / 1e9 <= p.since OR p.before IS NULL AND NOT p.starts AND NOT p.counts_anew THEN NULL
            WHEN p.before IS NULL OR p.until < p.boottime THEN GREATEST(p.until / 1e9 - p.since, 1.0)
            ELSE COALESCE(p.counted_seconds, p.until / 1e9 - p.since)
        END AS paced
    FROM placed AS p
),

deltas AS (
    SELECT
        begun.*,
        {rises}
    FROM begun
)
