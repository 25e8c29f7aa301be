-- The last {described}.
SELECT *
FROM (
    SELECT info.*, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {newest}) AS place
    FROM {table} AS info
) AS placed
WHERE place = 1
