-- What every block device did between two samples.
WITH stepped AS (
    SELECT
        disk.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        reads - LAG(reads) OVER w AS reads_step,
        writes - LAG(writes) OVER w AS writes_step,
        read_sectors - LAG(read_sectors) OVER w AS read_step,
        write_sectors - LAG(write_sectors) OVER w AS write_step,
        busy_time - LAG(busy_time) OVER w AS busy_step
    FROM disk
    WINDOW w AS (PARTITION BY archive, boot, device, device_major, device_minor ORDER BY boottime)
)

SELECT
    {sample_columns}
    device, -- kernel name of the device
    seconds AS interval_seconds, -- seconds since the row before
    CASE WHEN reads_step >= 0 THEN reads_step / seconds END AS reads_per_second, -- reads completed per second
    CASE WHEN writes_step >= 0 THEN writes_step / seconds END AS writes_per_second, -- writes completed per second
    CASE WHEN read_step >= 0 THEN read_step * 512 / seconds END AS read_bytes_per_second, -- bytes read per second
    CASE WHEN write_step >= 0 THEN write_step * 512 / seconds END AS write_bytes_per_second, -- bytes written per second
    CASE WHEN busy_step >= 0 THEN LEAST(busy_step / 1e3 / seconds, 1.0) END AS busy_share -- share of time with a request under way
FROM stepped AS d
