-- What every job did between two samples; its first interval begins at its own start.
WITH {task_deltas}

SELECT
    {sample_columns}
    d.series_id, -- series of the job
    d.pgid, -- process group
    d.start_ticks, -- start of its first member, ticks after boot
    n.job_id, -- name for people
    {owner_columns}
    n.program, -- name of the first member
    n.command, -- command line of the first member
    n.container_id, -- container of the first member
    d.seconds AS interval_seconds, -- seconds since the row before, or since its start, until this row or its end
    d.processes, -- members now; 0 in the row that tells its end
    CASE WHEN d.is_alive THEN d.threads END AS threads, -- threads now
    {task_cpu_rates}
    CASE WHEN d.is_alive THEN d.memory END AS memory, -- bytes: anonymous memory of all members, shared memory once
    CASE WHEN d.is_alive THEN d.memory_low END AS memory_low, -- bytes, least that memory can be, where it is not exact
    CASE WHEN d.is_alive THEN d.memory_high END AS memory_high, -- bytes, most that memory can be, where it is not exact
    CASE WHEN d.is_alive THEN d.memory_source END AS memory_source, -- how sharing was resolved: sum, pss or estimate
    CASE WHEN d.is_alive THEN d.resident END AS resident, -- bytes resident, shared pages counted per member
    {task_io_rates}
{owners}
