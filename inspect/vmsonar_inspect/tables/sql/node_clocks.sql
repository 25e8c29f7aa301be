-- The counters of all CPUs between two samples, and how long they ran.
WITH stepped AS (
    SELECT
        archive, run, boot, seq, cpus_online,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        user_ticks + nice_ticks - LAG(user_ticks + nice_ticks) OVER w AS user_step,
        system_ticks + irq_ticks + softirq_ticks
        - LAG(system_ticks + irq_ticks + softirq_ticks) OVER w AS system_step,
        idle_ticks - LAG(idle_ticks) OVER w AS idle_step,
        iowait_ticks - LAG(iowait_ticks) OVER w AS iowait_step,
        steal_ticks - LAG(steal_ticks) OVER w AS steal_step
    FROM node
    WINDOW w AS (PARTITION BY archive, boot ORDER BY boottime)
),

-- The counters of a sample are read a little after its beginning, and later on a busy machine: all their ticks together tell
-- how long they ran.
ticked AS (
    SELECT
        s.*,
        t.ticks_per_second,
        (user_step + system_step + idle_step + iowait_step + COALESCE(steal_step, 0))
        / t.ticks_per_second / NULLIF(cpus_online, 0) AS ticked_seconds,
        LEAST(user_step, system_step, idle_step, iowait_step, COALESCE(steal_step, 0)) AS least_step
    FROM stepped AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
)

SELECT
    archive, -- archive that holds the record
    run, -- start of the daemon that recorded it
    boot, -- boot id of the kernel
    seq, -- number of the sample
    ticks_per_second, -- ticks in a second
    user_step, -- ticks in user mode since the sample before, nice included; null for the first of a boot, as are all
    system_step, -- ticks in the kernel, interrupts included
    idle_step, -- ticks idle
    iowait_step, -- ticks idle while I/O was outstanding
    steal_step, -- ticks taken by the hypervisor
    CASE WHEN least_step >= 0 AND ticked_seconds BETWEEN 0.25 * seconds AND 4.0 * seconds THEN ticked_seconds END AS counted_seconds -- seconds that the counters ran since the sample before; null where they cannot tell: at the first sample of a boot, after a suspend, when CPUs come and go
FROM ticked
