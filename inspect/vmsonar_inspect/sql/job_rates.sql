-- What every job did between two samples; its first interval begins at its own start.
WITH {task_deltas}

SELECT
    d.archive, -- archive that holds the record
    d.run, -- start of the daemon that recorded it
    d.boot, -- boot id of the kernel
    d.seq, -- number of the sample
    d.time, -- wall clock of the sample
    d.boottime, -- nanoseconds since boot
    d.series_id, -- series of the job
    d.pgid, -- process group
    d.start_ticks, -- start of its first member, ticks after boot
    n.job_id, -- name for people
    n.user_id, -- uid of the owner
    n.user_name, -- owner
    n.program, -- name of the first member
    n.command, -- command line of the first member
    n.container_id, -- container of the first member
    d.seconds AS interval_seconds, -- seconds since the row before, or since its start
    d.processes, -- members now
    d.threads, -- threads now
    (d.user_step + d.system_step) / d.ticks AS cpu_seconds, -- seconds of CPU time since then
    (d.user_step + d.system_step) / d.ticks / d.seconds AS cpu_cores, -- cores in use
    d.user_step / d.ticks / d.seconds AS cpu_user_cores, -- cores: user mode
    d.system_step / d.ticks / d.seconds AS cpu_system_cores, -- cores: kernel
    d.memory, -- bytes: anonymous memory of all members, shared memory once
    d.resident, -- bytes resident, shared pages counted per member
    d.read_step AS read_bytes, -- bytes fetched from storage since then
    d.write_step AS write_bytes, -- bytes sent to storage since then
    d.read_step / d.seconds AS read_bytes_per_second, -- bytes per second
    d.write_step / d.seconds AS write_bytes_per_second, -- bytes per second
    d.faults_step AS major_faults -- faults with I/O since then
FROM deltas AS d
LEFT JOIN latest_job_info AS n
    ON d.archive = n.archive AND d.boot = n.boot AND d.pgid = n.pgid AND d.start_ticks = n.start_ticks
