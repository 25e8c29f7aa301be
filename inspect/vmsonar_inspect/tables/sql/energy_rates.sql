-- What every meter measured between two samples.
WITH stepped AS (
    SELECT
        energy.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        energy - LAG(energy) OVER w AS energy_step
    FROM energy
    WINDOW w AS (PARTITION BY archive, boot, meter ORDER BY boottime)
),

unwrapped AS (
    SELECT
        s.*,
        CASE
            -- At 500 W the counter may have gone round in that time, nobody knows how often.
            WHEN energy_range > 0 AND seconds * 500 > energy_range / 1e6 THEN NULL
            WHEN energy_step >= 0 THEN energy_step / 1e6
            WHEN energy_step + energy_range >= 0 THEN (energy_step + energy_range) / 1e6
            -- A power speaks of the time since the last sample, not of a hole, nor of a time in which the meter was silent.
            WHEN energy IS NULL AND i.interval_seconds <= l.longest_seconds THEN power * i.interval_seconds
        END AS joules
    FROM stepped AS s
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
    JOIN reading_limits AS l ON s.archive = l.archive AND s.boot = l.boot
)

SELECT
    {sample_columns}
    meter, -- name of the meter
    energy_source, -- who measured
    seconds AS interval_seconds, -- seconds since the row before
    joules, -- joules since the row before, or since the sample before where the meter gives power; null where nobody can tell
    CASE WHEN energy IS NULL THEN power ELSE joules / seconds END AS watts -- mean power since the row before, or the power now
FROM unwrapped AS d
