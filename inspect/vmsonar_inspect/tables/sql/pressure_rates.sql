-- Share of time lost to contention between two samples.
WITH stepped AS (
    SELECT
        pressure.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        some_time - LAG(some_time) OVER w AS some_step,
        full_time - LAG(full_time) OVER w AS full_step
    FROM pressure
    WINDOW w AS (PARTITION BY archive, boot, resource ORDER BY boottime)
)

SELECT
    {sample_columns}
    resource, -- cpu, memory, io or irq
    seconds AS interval_seconds, -- seconds since the row before
    CASE WHEN some_step >= 0 THEN LEAST(some_step / 1e6 / seconds, 1.0) END AS some_share, -- share of time in which some task waited
    CASE WHEN full_step >= 0 THEN LEAST(full_step / 1e6 / seconds, 1.0) END AS full_share -- share of time in which all tasks waited
FROM stepped AS d
