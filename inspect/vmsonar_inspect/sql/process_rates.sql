-- What every process did between two samples; its first interval begins at its own start.
WITH {task_deltas}

SELECT
    d.archive, -- archive that holds the record
    d.run, -- start of the daemon that recorded it
    d.boot, -- boot id of the kernel
    d.seq, -- number of the sample
    d.time, -- wall clock of the sample
    d.boottime, -- nanoseconds since boot
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
    (d.user_step + d.system_step) / d.ticks AS cpu_seconds, -- seconds of CPU time since then
    (d.user_step + d.system_step) / d.ticks / d.seconds AS cpu_cores, -- cores in use
    d.user_step / d.ticks / d.seconds AS cpu_user_cores, -- cores: user mode
    d.system_step / d.ticks / d.seconds AS cpu_system_cores, -- cores: kernel
    d.resident, -- bytes resident
    CASE WHEN d.resident < d.shared THEN 0 ELSE d.resident - d.shared END AS memory, -- bytes resident that are its own
    d.read_step AS read_bytes, -- bytes fetched from storage since then
    d.write_step AS write_bytes, -- bytes sent to storage since then
    d.read_step / d.seconds AS read_bytes_per_second, -- bytes per second
    d.write_step / d.seconds AS write_bytes_per_second, -- bytes per second
    d.faults_step AS major_faults -- faults with I/O since then
FROM deltas AS d
LEFT JOIN latest_process_info AS n
    ON d.archive = n.archive AND d.boot = n.boot AND d.pid = n.pid AND d.start_ticks = n.start_ticks
