-- Every process over its recorded life.
WITH {task_totals}

SELECT
    r.archive, -- archive that holds the records
    r.boot, -- boot id of the kernel
    r.series_id, -- series of the process
    r.pid, -- process id
    r.start_ticks, -- start, ticks after boot
    n.user_name, -- owner
    n.program, -- kernel's name of the process
    n.command, -- command line
    n.container_id, -- container
    {task_life}
    {core_columns}
    r.memory_median, -- bytes resident that are its own, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.read_bytes, -- bytes fetched from storage while recorded
    r.write_bytes -- bytes sent to storage while recorded
FROM rolled AS r
LEFT JOIN latest_process_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pid = n.pid AND r.start_ticks = n.start_ticks
