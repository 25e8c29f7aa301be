-- One row per sample with the sample before it in the same boot.
SELECT
    archive, -- archive that holds the record
    run, -- start of the daemon that recorded it
    boot, -- boot id of the kernel
    seq, -- number of the sample in its archive
    time, -- wall clock of the sample
    boottime, -- nanoseconds since boot, suspend included
    LAG(run) OVER w AS previous_run, -- run of the sample before, null for the first of a boot
    LAG(time) OVER w AS previous_time, -- wall clock of the sample before
    LAG(boottime) OVER w AS previous_boottime, -- nanoseconds since boot of the sample before
    (boottime - LAG(boottime) OVER w) / 1e9 AS interval_seconds -- seconds since the sample before
FROM samples
WINDOW w AS (PARTITION BY archive, boot ORDER BY boottime, seq)
