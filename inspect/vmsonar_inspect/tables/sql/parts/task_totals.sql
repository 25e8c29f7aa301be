-- What the rows of every {source} come to over its recorded life; columns that a view does not show cost nothing.
rolled AS (
    SELECT
        s.archive, s.boot, s.number AS {number}, s.start_ticks,
        MAX(s.series_id) AS series_id,
        {usage_columns},
        CAST(MAX(t.cpus) AS DOUBLE) AS cpus,
        COALESCE(
            MAX(CASE WHEN measure = '{alive}' THEN samples END),
            MAX(CASE WHEN measure = 'gone' THEN 0 END),
            MAX(samples)
        ) AS samples_alive,
        BOOL_OR(measure = 'gone') AS is_gone,
        GREATEST(
            COALESCE(
                MAX(CASE WHEN measure = 'end' THEN last_value END),
                MAX(CASE WHEN measure = 'end_high' THEN last_value END),
                MAX(s.last_boottime) / 1e9
            ) - s.start_ticks / MAX(t.ticks_per_second), 0.0
        ) AS runtime_seconds,
        CASE
            WHEN BOOL_OR(measure = 'gone') AND MAX(CASE WHEN measure = 'end' THEN last_value END) IS NULL
                THEN GREATEST(
                    COALESCE(
                        MAX(CASE WHEN measure = 'end_low' THEN last_value END),
                        MAX(CASE WHEN measure = '{alive}' THEN s.last_boottime END) / 1e9
                    ) - s.start_ticks / MAX(t.ticks_per_second), 0.0
                )
        END AS runtime_seconds_low,
        MAX(CASE WHEN measure = 'cpu_user' THEN total END) AS cpu_user_seconds,
        MAX(CASE WHEN measure = 'cpu_system' THEN total END) AS cpu_system_seconds,
        MAX(CASE WHEN measure = 'cpu' THEN highest_value END) AS cpu_seconds_total,
        CAST(MAX(CASE WHEN measure = 'processes' THEN maximum END) AS BIGINT) AS processes_peak,
        CAST(MAX(CASE WHEN measure = 'processes_seen' THEN maximum END) AS BIGINT) AS processes_seen,
        CAST(MAX(CASE WHEN measure = 'processes_unseen' THEN maximum END) AS BIGINT) AS processes_unseen,
        CAST(MAX(CASE WHEN measure = 'threads' THEN maximum END) AS BIGINT) AS threads_peak,
        CAST(MAX(CASE WHEN measure = 'major_faults' THEN total END) AS BIGINT) AS major_faults,
        {doubts}
    FROM {totals} AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
    GROUP BY s.archive, s.boot, s.number, s.start_ticks
)
