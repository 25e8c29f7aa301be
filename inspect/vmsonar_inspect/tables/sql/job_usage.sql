-- Every job over its recorded life.
WITH {task_totals}

SELECT
    r.archive, -- archive that holds the records
    r.boot, -- boot id of the kernel
    r.series_id, -- series of the job
    r.pgid, -- process group
    r.start_ticks, -- start of its first member, ticks after boot
    n.job_id, -- name for people
    n.job_source, -- where job_id comes from
    n.user_id, -- uid of the owner
    n.user_name, -- owner
    n.user_source, -- what the owner was inferred from
    n.program, -- name of the first member
    n.command, -- command line of the first member
    n.container_id, -- container of the first member
    n.started, -- start as wall time
    {task_life}
    r.cpu_user_seconds, -- of these in user mode
    r.cpu_system_seconds, -- of these in the kernel
    r.cpu_seconds_total, -- seconds of CPU time since its start, recorded or not
    {core_columns}
    r.memory_mean, -- bytes, mean of the samples
    r.memory_median, -- bytes, median
    r.memory_p95, -- bytes, 95th percentile
    r.memory_peak, -- bytes, highest sample
    r.processes_peak, -- most members at once
    r.processes_seen, -- members ever seen
    r.threads_peak, -- most threads at once
    r.read_bytes, -- bytes fetched from storage while recorded
    r.write_bytes, -- bytes sent to storage while recorded
    r.major_faults, -- faults with I/O while recorded
    r.unattributed, -- the CPU figures are a lower bound
    r.io_partial -- the I/O figures are a lower bound
FROM rolled AS r
LEFT JOIN latest_job_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pgid = n.pgid AND r.start_ticks = n.start_ticks
