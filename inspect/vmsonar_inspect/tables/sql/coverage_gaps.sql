-- Every gap: no sample for more than 2.5 intervals, or a reboot.
WITH {usual_intervals},

boots AS (
    SELECT
        archive, run, boot, seq, time,
        LAG(boot) OVER (PARTITION BY archive ORDER BY seq, time) AS previous_boot,
        LAG(time) OVER (PARTITION BY archive ORDER BY seq, time) AS previous_time
    FROM samples
)

SELECT
    archive, -- archive that holds the records
    boot, -- boot id of the sample that ended the gap
    seq, -- number of the sample that ended the gap
    previous_time AS since, -- last sample before the gap
    time AS until_time, -- first sample after the gap
    interval_seconds AS seconds, -- length of the gap
    CASE WHEN run <> previous_run THEN 'restart' ELSE 'missing' END AS reason -- missing, restart of the daemon, or reboot
FROM sample_intervals
JOIN nominal USING (archive, run, boot, seq)
WHERE interval_seconds > 2.5 * usual
UNION ALL
SELECT
    archive, boot, seq, previous_time AS since, time AS until_time,
    (unix_micros(time) - unix_micros(previous_time)) / 1e6 AS seconds,
    'reboot' AS reason
FROM boots
WHERE boot <> previous_boot
