-- The last description of every machine.
SELECT *
FROM (
    SELECT info.*, ROW_NUMBER() OVER (PARTITION BY archive ORDER BY seq DESC) AS place
    FROM sysinfo AS info
) AS placed
WHERE place = 1
