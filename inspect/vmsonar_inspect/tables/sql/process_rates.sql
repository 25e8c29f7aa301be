-- What every process did between two samples; its first interval begins at its own start.
WITH {task_deltas}

SELECT
    {sample_columns}
    d.series_id, -- series of the process
    d.pid, -- process id
    d.start_ticks, -- start, ticks after boot
    d.pgid, -- process group: its job
    d.ppid, -- parent
    n.user_name, -- owner
    n.program, -- kernel's name of the process
    n.command, -- command line
    n.container_id, -- container
    d.state, -- R, S, D, Z, T
    d.threads, -- threads now
    d.seconds AS interval_seconds, -- seconds since the row before, or since its start
    {task_cpu_rates}
    d.resident, -- bytes resident
    CASE WHEN d.resident < d.shared THEN 0 ELSE d.resident - d.shared END AS memory, -- bytes resident that are its own
    d.resident_peak, -- bytes resident, the kernel's own peak since its last exec, where it was read
    CASE WHEN d.read_bytes_rise < d.child_read_bytes_rise THEN 0 ELSE d.read_bytes_rise - COALESCE(d.child_read_bytes_rise, 0) END AS own_read_bytes, -- bytes fetched since then without what waited-for children did
    CASE WHEN d.write_bytes_rise < d.child_write_bytes_rise THEN 0 ELSE d.write_bytes_rise - COALESCE(d.child_write_bytes_rise, 0) END AS own_write_bytes, -- bytes sent since then without what waited-for children did
    {task_io_rates}
