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
        stepped.*,
        CASE
            WHEN energy_step >= 0 THEN energy_step / 1e6
            WHEN energy_step + energy_range >= 0 THEN (energy_step + energy_range) / 1e6
            WHEN energy IS NULL THEN power * seconds
        END AS joules
    FROM stepped
)

SELECT
    archive, -- archive that holds the record
    run, -- start of the daemon that recorded it
    boot, -- boot id of the kernel
    seq, -- number of the sample
    time, -- wall clock of the sample
    boottime, -- nanoseconds since boot
    meter, -- name of the meter
    energy_source, -- who measured
    seconds AS interval_seconds, -- seconds since the row before
    joules, -- joules since the row before
    joules / seconds AS watts -- mean power since the row before
FROM unwrapped
