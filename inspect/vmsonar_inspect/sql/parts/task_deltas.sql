-- The rises of the counters of every {source} since the row before, or since its own start.
stepped AS (
    SELECT
        rows_.*,
        LAG(boottime) OVER w AS before,
        LAG(user_ticks) OVER w AS user_before,
        LAG(system_ticks) OVER w AS system_before,
        LAG(read_bytes) OVER w AS read_before,
        LAG(write_bytes) OVER w AS write_before,
        LAG(major_faults) OVER w AS faults_before
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
        CASE WHEN is_new THEN user_ticks WHEN user_ticks >= user_before THEN user_ticks - user_before END AS user_step,
        CASE WHEN is_new THEN system_ticks WHEN system_ticks >= system_before THEN system_ticks - system_before END AS system_step,
        CASE WHEN is_new THEN read_bytes WHEN read_bytes >= read_before THEN read_bytes - read_before END AS read_step,
        CASE WHEN is_new THEN write_bytes WHEN write_bytes >= write_before THEN write_bytes - write_before END AS write_step,
        CASE WHEN is_new THEN major_faults WHEN major_faults >= faults_before THEN major_faults - faults_before END AS faults_step
    FROM begun
)
