-- What every job did between two samples; its first interval begins at its own start.
WITH {task_deltas}

SELECT
    {sample_columns}
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
    {task_cpu_rates}
    d.memory, -- bytes: anonymous memory of all members, shared memory once
    d.resident, -- bytes resident, shared pages counted per member
    {task_io_rates}
