-- What every series of the table {source} comes to over all days, a row per measure.
WITH placed AS (
    SELECT
        d.*,
        LAG(last_value) OVER w AS value_before,
        LAG(last_boottime) OVER w AS boottime_before,
        LEAD(first_boottime) OVER w AS boottime_after,
        MIN(first_boottime) OVER (PARTITION BY archive, boot, number, start_ticks, container_id) AS series_boottime
    FROM {source}_day AS d
    WINDOW w AS (
        PARTITION BY archive, boot, number, start_ticks, container_id, measure ORDER BY first_boottime
    )
),

-- The boot clock in seconds at the death of the last member, where it is known.
deaths AS (
    SELECT archive, boot, number, start_ticks, MAX(last_value) AS died
    FROM {source}_day
    WHERE measure = 'end'
    GROUP BY archive, boot, number, start_ticks
),

-- The last samples of days that have such rows.
eves AS (
    SELECT DISTINCT archive, boot, last_boottime
    FROM {source}_day
    WHERE measure = 'cpu'
),

-- Between two days lies an interval that neither of them knows; a series may also begin just there.
approached AS (
    SELECT
        p.*, i.interval_seconds,
        COALESCE(p.value_before IS NULL AND p.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7, FALSE)
            AS starts,
        COALESCE(p.value_before IS NULL AND p.first_boottime = p.series_boottime AND {counts_anew}, FALSE) AS counts_anew,
        CASE WHEN e.died < p.first_boottime / 1e9 THEN e.died ELSE p.first_boottime / 1e9 END AS until,
        COALESCE(e.died < p.first_boottime / 1e9, FALSE) AS ends,
        p.start_ticks / t.ticks_per_second AS started,
        i.previous_boottime / 1e9 AS previous
    FROM placed AS p
    JOIN tick_lengths AS t ON p.archive = t.archive AND p.boot = t.boot
    LEFT JOIN sample_intervals AS i
        ON p.archive = i.archive AND p.boot = i.boot AND p.first_boottime = i.boottime
    LEFT JOIN eves AS b ON p.archive = b.archive AND p.boot = b.boot AND i.previous_boottime = b.last_boottime
    LEFT JOIN deaths AS e
        ON p.archive = e.archive AND p.boot = e.boot AND p.number = e.number AND p.start_ticks = e.start_ticks
),

crossed AS (
    SELECT
        p.archive,
        CASE WHEN p.container_id IS NULL THEN p.boot ELSE '' END AS boot,
        COALESCE(p.number, -1) AS number,
        COALESCE(p.start_ticks, -1) AS start_ticks,
        COALESCE(p.container_id, '') AS container_id,
        p.series_id, p.measure, p.counter, p.samples, p.first_time, p.last_time, p.first_boottime, p.last_boottime,
        p.total, p.seconds, p.minimum, p.maximum, p.highest_value, p.histogram,
        CASE WHEN p.value_before IS NULL THEN p.first_value END AS earliest_value,
        CASE WHEN p.boottime_after IS NULL THEN p.last_value END AS latest_value,
        p.begins OR p.starts OR p.counts_anew AS begins,
        p.starts OR p.counts_anew OR p.ends AS is_edge,
        CASE
            WHEN NOT p.counter OR p.begins THEN NULL
            WHEN p.first_value >= p.value_before THEN p.first_value - p.value_before
            WHEN p.value_before IS NOT NULL AND p.container_id IS NOT NULL THEN p.first_value
            WHEN p.starts OR p.counts_anew THEN p.first_value
        END AS border_rise,
        CASE
            WHEN p.container_id IS NOT NULL AND p.first_value < p.value_before
                THEN LEAST((p.first_boottime - p.boottime_before) / 1e9, p.interval_seconds)
            WHEN p.value_before IS NOT NULL THEN GREATEST(p.until - p.boottime_before / 1e9, 0.0)
            WHEN p.starts THEN GREATEST(p.until - p.started, 0.0)
            ELSE GREATEST(p.until - p.previous, 0.0)
        END AS border_seconds
    FROM approached AS p
),

bordered AS (
    SELECT
        crossed.*,
        CASE
            WHEN border_seconds <= 0 THEN NULL
            WHEN is_edge AND border_seconds < 1 THEN border_rise
            ELSE border_rise / border_seconds
        END AS border_rate
    FROM crossed
),

frequencies AS (
    SELECT
        archive,
        CASE WHEN container_id IS NULL THEN boot ELSE '' END AS boot,
        COALESCE(number, -1) AS number,
        COALESCE(start_ticks, -1) AS start_ticks,
        COALESCE(container_id, '') AS container_id,
        measure, bucket, frequency
    FROM {source}_histogram
    UNION ALL
    SELECT
        archive, boot, number, start_ticks, container_id, measure,
        CASE
            WHEN border_rate > 0 THEN CAST(FLOOR(LN(border_rate) / LN(1.02)) AS BIGINT)
            ELSE -100000
        END AS bucket,
        CAST(1 AS BIGINT) AS frequency
    FROM bordered
    WHERE border_rate IS NOT NULL AND histogram IS NOT NULL
),

counted AS (
    SELECT archive, boot, number, start_ticks, container_id, measure, bucket, SUM(frequency) AS frequency
    FROM frequencies
    GROUP BY archive, boot, number, start_ticks, container_id, measure, bucket
),

heaped AS (
    SELECT
        counted.*,
        CASE WHEN bucket = -100000 THEN 0.0 ELSE EXP((bucket + 0.5) * LN(1.02)) END AS middle,
        SUM(frequency) OVER (
            PARTITION BY archive, boot, number, start_ticks, container_id, measure ORDER BY bucket
        ) AS upto,
        SUM(frequency) OVER (
            PARTITION BY archive, boot, number, start_ticks, container_id, measure
        ) AS whole
    FROM counted
),

ranked AS (
    SELECT
        archive, boot, number, start_ticks, container_id, measure,
        MIN(CASE WHEN upto > FLOOR(0.5 * (whole - 1)) THEN middle END) AS median_low,
        MIN(CASE WHEN upto > CEIL(0.5 * (whole - 1)) THEN middle END) AS median_high,
        MAX(0.5 * (whole - 1) - FLOOR(0.5 * (whole - 1))) AS median_part,
        MIN(CASE WHEN upto > FLOOR(0.95 * (whole - 1)) THEN middle END) AS p95_low,
        MIN(CASE WHEN upto > CEIL(0.95 * (whole - 1)) THEN middle END) AS p95_high,
        MAX(0.95 * (whole - 1) - FLOOR(0.95 * (whole - 1))) AS p95_part
    FROM heaped
    GROUP BY archive, boot, number, start_ticks, container_id, measure
),

summed AS (
    SELECT
        archive, boot, number, start_ticks, container_id, measure,
        MAX(series_id) AS series_id,
        CAST(SUM(samples) AS BIGINT) AS samples,
        MIN(first_time) AS first_time,
        MAX(last_time) AS last_time,
        MIN(first_boottime) AS first_boottime,
        MAX(last_boottime) AS last_boottime,
        MAX(earliest_value) AS first_value,
        MAX(latest_value) AS last_value,
        COALESCE(BOOL_OR(earliest_value IS NOT NULL AND begins), FALSE) AS begins,
        COALESCE(SUM(total) + SUM(border_rise), SUM(total), SUM(border_rise)) AS total,
        COALESCE(SUM(seconds), 0.0)
        + COALESCE(SUM(CASE WHEN border_rise IS NOT NULL THEN border_seconds END), 0.0) AS seconds,
        LEAST(
            COALESCE(MIN(minimum), MIN(border_rate)),
            COALESCE(MIN(border_rate), MIN(minimum))
        ) AS minimum,
        GREATEST(
            COALESCE(MAX(maximum), MAX(border_rate)),
            COALESCE(MAX(border_rate), MAX(maximum))
        ) AS maximum,
        MAX(highest_value) AS highest_value
    FROM bordered
    GROUP BY archive, boot, number, start_ticks, container_id, measure
)

SELECT
    s.archive, -- archive that holds the records
    s.boot, -- boot id of the kernel; empty for containers, which outlive a boot
    s.number, -- pid or pgid; -1 for containers
    s.start_ticks, -- start after boot; -1 for containers
    s.container_id, -- id of a container; empty for others
    s.series_id, -- series of a process or job
    s.measure, -- what is told here, such as cpu or memory
    s.samples, -- rows that had a value
    s.first_time, -- first sample that shows the series
    s.last_time, -- last sample that shows the series
    s.first_boottime, -- boot clock of the first value, nanoseconds
    s.last_boottime, -- boot clock of the last value, nanoseconds
    s.first_value, -- first value; of a container the highest of its boots' first ones
    s.last_value, -- last value; of a container the highest of its boots' last ones
    s.begins, -- the first value was counted from zero
    s.total, -- sum of a counter's rises, or of a gauge's values
    s.seconds, -- time over which the rises are known, or the number of values
    s.minimum, -- lowest rate of a counter, lowest value of a gauge
    s.maximum, -- highest rate of a counter, highest value of a gauge
    s.highest_value, -- highest value
    LEAST(GREATEST(r.median_low, s.minimum), s.maximum) + r.median_part * (LEAST(GREATEST(r.median_high, s.minimum), s.maximum) - LEAST(GREATEST(r.median_low, s.minimum), s.maximum)) AS median, -- median of the rates or values, within 1 %
    LEAST(GREATEST(r.p95_low, s.minimum), s.maximum) + r.p95_part * (LEAST(GREATEST(r.p95_high, s.minimum), s.maximum) - LEAST(GREATEST(r.p95_low, s.minimum), s.maximum)) AS p95 -- 95th percentile of the rates or values, within 1 %
FROM summed AS s
LEFT JOIN ranked AS r
    ON s.archive = r.archive AND s.boot = r.boot AND s.number = r.number AND s.start_ticks = r.start_ticks
    AND s.container_id = r.container_id AND s.measure = r.measure
