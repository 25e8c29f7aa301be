-- The last info row of every job.
SELECT *
FROM (
    SELECT
        info.*,
        ROW_NUMBER() OVER (
            PARTITION BY archive, boot, pgid, start_ticks ORDER BY boottime DESC, seq DESC
        ) AS place
    FROM job_info AS info
) AS placed
WHERE place = 1
