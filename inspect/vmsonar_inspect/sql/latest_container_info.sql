-- The last info row of every container.
SELECT *
FROM (
    SELECT
        info.*,
        ROW_NUMBER() OVER (PARTITION BY archive, container_id ORDER BY seq DESC) AS place
    FROM container_info AS info
) AS placed
WHERE place = 1
