-- What Slurm told last of every batch job of each cluster, whoever recorded it; steps are left out.
SELECT
    batch_job, -- number of the job
    cluster_name, -- name of the cluster
    job_name, -- name of the job
    job_state, -- state, the last that was told
    array_job, -- number of the array it is a task of
    array_task, -- its number in that array
    user_name, -- who submitted it
    account, -- account that is charged
    project, -- workload characterization key
    partition_name, -- partition
    node_names, -- nodes it has
    submit_time, -- when it was submitted
    start_time, -- when it started, the last time
    end_time, -- when it ended; null while it is not over
    time_limit, -- seconds it may run; null without a limit
    exit_code, -- exit code
    exit_signal, -- signal that ended it
    requested_cpus, -- CPUs asked for
    requested_memory, -- bytes asked for, over all nodes
    requested_gpus, -- GPUs asked for
    allocated_nodes, -- nodes given
    allocated_cpus, -- CPUs given
    allocated_memory, -- bytes given, over all nodes
    allocated_gpus -- GPUs given
FROM (
    -- A job that was put back into the queue has not started again: that row is newer than the one of its last start.
    SELECT told.*, ROW_NUMBER() OVER (
        PARTITION BY cluster_name, batch_job, user_name ORDER BY time DESC, start_time DESC NULLS FIRST
    ) AS place
    FROM batch_job AS told
    WHERE batch_step IS NULL
) AS placed
WHERE place = 1
