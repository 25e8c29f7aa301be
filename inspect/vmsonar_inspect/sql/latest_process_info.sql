-- The last info row of every process.
SELECT *
FROM (
    SELECT
        info.*,
        ROW_NUMBER() OVER (
            PARTITION BY archive, boot, pid, start_ticks ORDER BY boottime DESC, seq DESC
        ) AS place
    FROM process_info AS info
) AS placed
WHERE place = 1
