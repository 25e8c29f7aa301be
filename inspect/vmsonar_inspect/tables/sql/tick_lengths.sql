-- Clock ticks per second of every boot.
SELECT
    archive, -- archive that holds the record
    boot, -- boot id of the kernel
    CAST(COALESCE(MAX(ticks), 100) AS DOUBLE) AS ticks_per_second -- ticks in a second
FROM (
    SELECT archive, boot, ticks_per_second AS ticks FROM sysinfo
    UNION ALL
    SELECT archive, boot, ticks_per_second AS ticks FROM node
    UNION ALL
    SELECT archive, boot, CAST(NULL AS BIGINT) AS ticks FROM samples
) AS told
GROUP BY archive, boot
