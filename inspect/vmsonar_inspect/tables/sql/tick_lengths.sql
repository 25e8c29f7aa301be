-- Clock ticks per second and CPUs of every boot.
SELECT
    archive, -- archive that holds the record
    boot, -- boot id of the kernel
    CAST(COALESCE(MAX(ticks), 100) AS DOUBLE) AS ticks_per_second, -- ticks in a second
    MAX(cpus) AS cpus -- logical CPUs, the most that there were
FROM (
    SELECT archive, boot, ticks_per_second AS ticks, cpus FROM sysinfo
    UNION ALL
    SELECT archive, boot, ticks_per_second AS ticks, cpus_online AS cpus FROM node
    UNION ALL
    SELECT archive, boot, CAST(NULL AS BIGINT) AS ticks, CAST(NULL AS BIGINT) AS cpus FROM samples
) AS told
GROUP BY archive, boot
