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
    n.batch_step, -- step of the batch job
    n.batch_task, -- task of that step, the rank of MPI; null where no control group tells
    n.sluid, -- the batch job's SLUID, where its control group has that name
    b.account, -- account that is charged for the batch job, as Slurm tells
    b.project, -- its workload characterization key
    {owner_columns}
    CASE WHEN o.user_name IS NULL THEN n.user_source ELSE CONCAT('container_', COALESCE(o.user_source, 'info')) END AS user_source, -- what the owner was inferred from; container_… where the container's was
    n.program, -- name of the first member
    n.command, -- command line of the first member
    n.container_id, -- container of the first member
    n.session_id, -- session of the first member
    n.started, -- start as wall time
    {task_life}
    {cpu_bounds}
    r.cpu_source, -- what told the time of members that ended, the weakest: accounts, lifeline or samples
    r.cpu_user_seconds, -- of these in user mode
    r.cpu_system_seconds, -- of these in the kernel
    CASE WHEN NOT r.unattributed AND r.cpu_doubt = 0 THEN r.cpu_seconds_total END AS cpu_seconds_total, -- seconds of CPU time since its start, recorded or not; null where that is not known exactly
    {task_cores}
    r.memory_mean, -- bytes, mean of the samples
    r.memory_median, -- bytes, median
    r.memory_p95, -- bytes, 95th percentile
    CASE WHEN r.memory_peak_source IS NULL THEN r.memory_peak ELSE r.memory_peak_told END AS memory_peak, -- bytes, highest since its start: of the samples and what the kernel kept of its members; null if nobody knows
    r.memory_peak_low, -- bytes, least that the peak can be, where that is another figure
    r.memory_peak_high, -- bytes, most that the peak can be, where that is another figure and known
    r.memory_peak_source, -- sampled (the peak is a lower bound), high_water or accounts; null in old records, whose peak is the highest sample
    r.memory_charged_peak, -- bytes, peak of the control group that holds only this job, page cache included
    r.memory_source, -- how sharing was resolved, the weakest: sum, pss or estimate
    r.processes_peak, -- most members at once
    r.processes_seen, -- members ever seen
    r.processes_unseen, -- members that ended before a sample could show them, where the kernel told
    r.threads_peak, -- most threads at once
    r.read_bytes, -- bytes fetched from storage while recorded
    {read_bounds}
    r.write_bytes, -- bytes sent to storage while recorded
    {write_bounds}
    r.io_source, -- what told the I/O of members that ended, the weakest: accounts, lifeline or samples
    r.major_faults, -- faults with I/O while recorded
    r.unattributed, -- the CPU time is not exact: see its bounds, without them it is a lower bound
    r.io_partial, -- the I/O is not exact: see its bounds, without them it is a lower bound
    COALESCE(r.is_gone, FALSE) AS ended -- a sample found nobody left
FROM rolled AS r
LEFT JOIN latest_job_info AS n
    ON r.archive = n.archive AND r.boot = n.boot AND r.pgid = n.pgid AND r.start_ticks = n.start_ticks
{owners}
LEFT JOIN (
    -- Where several clusters number alike, it is not said here which one a machine is of.
    SELECT batch_job, user_name, MIN(account) AS account, MIN(project) AS project
    FROM latest_batch_job
    GROUP BY batch_job, user_name
    HAVING COUNT(*) = 1
) AS b
    ON n.job_source = 'slurm' AND n.job_id = b.batch_job AND n.user_name = b.user_name
