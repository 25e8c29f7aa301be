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
    n.libraries, -- packages that a Python has loaded, joined by commas, where that could be seen
    n.container_id, -- container
    {task_life}
    {task_cores}
    r.memory_median, -- bytes resident that are its own, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.resident_peak, -- bytes resident, file and shared memory included: the kernel's own peak since its last exec, where it was read
    r.read_bytes, -- bytes fetched from storage while recorded, by it and the children it waited for
    r.write_bytes, -- bytes sent to storage while recorded, by it and the children it waited for
    CASE WHEN r.read_bytes < r.child_read_bytes THEN 0 ELSE r.read_bytes - r.child_read_bytes END AS own_read_bytes, -- bytes fetched by it alone, as far as children are known
    CASE WHEN r.write_bytes < r.child_write_bytes THEN 0 ELSE r.write_bytes - r.child_write_bytes END AS own_write_bytes -- bytes sent by it alone, as far as children are known
FROM rolled AS r
LEFT JOIN latest_process_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pid = n.pid AND r.start_ticks = n.start_ticks
