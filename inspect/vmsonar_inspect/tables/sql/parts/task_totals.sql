-- What the rows of every {source} come to over its recorded life; columns that a view does not show cost nothing.
rolled AS (
    SELECT
        s.archive, s.boot, s.number AS {number}, s.start_ticks,
        MAX(s.series_id) AS series_id,
        {usage_columns},
        MAX(s.last_boottime) / 1e9 - s.start_ticks / MAX(t.ticks_per_second) AS runtime_seconds,
        MAX(CASE WHEN measure = 'cpu_user' THEN total END) AS cpu_user_seconds,
        MAX(CASE WHEN measure = 'cpu_system' THEN total END) AS cpu_system_seconds,
        MAX(CASE WHEN measure = 'cpu' THEN highest_value END) AS cpu_seconds_total,
        CAST(MAX(CASE WHEN measure = 'processes' THEN maximum END) AS BIGINT) AS processes_peak,
        CAST(MAX(CASE WHEN measure = 'processes_seen' THEN maximum END) AS BIGINT) AS processes_seen,
        CAST(MAX(CASE WHEN measure = 'threads' THEN maximum END) AS BIGINT) AS threads_peak,
        CAST(MAX(CASE WHEN measure = 'major_faults' THEN total END) AS BIGINT) AS major_faults,
        MAX(CASE WHEN measure = 'unattributed' THEN maximum END) > 0 AS unattributed,
        MAX(CASE WHEN measure = 'io_partial' THEN maximum END) > 0 AS io_partial
    FROM {totals} AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
    GROUP BY s.archive, s.boot, s.number, s.start_ticks
)
