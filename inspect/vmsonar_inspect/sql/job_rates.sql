-- What every job did between two samples; its first interval begins at its own start.
WITH stepped AS (
    SELECT
        rows_.*,
        LAG(boottime) OVER w AS before,
        LAG(user_ticks) OVER w AS user_before,
        LAG(system_ticks) OVER w AS system_before,
        LAG(read_bytes) OVER w AS read_before,
        LAG(write_bytes) OVER w AS write_before,
        LAG(major_faults) OVER w AS faults_before
    FROM job AS rows_
    WINDOW w AS (PARTITION BY archive, boot, pgid, start_ticks ORDER BY boottime)
),

-- Something that started after the sample before has counted from zero since; of anything older only the rise counts.
begun AS (
    SELECT
        s.*,
        t.ticks_per_second AS ticks,
        s.before IS NULL AND s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7 AS is_new,
        CASE
            WHEN s.before IS NOT NULL THEN (s.boottime - s.before) / 1e9
            WHEN s.start_ticks / t.ticks_per_second * 1e9 >= i.previous_boottime - 2e7
                THEN GREATEST(s.boottime / 1e9 - s.start_ticks / t.ticks_per_second, 1.0)
        END AS seconds
    FROM stepped AS s
    JOIN tick_lengths AS t ON s.archive = t.archive AND s.boot = t.boot
    JOIN sample_intervals AS i
        ON s.archive = i.archive AND s.run = i.run AND s.boot = i.boot AND s.seq = i.seq
),

deltas AS (
    SELECT
        begun.*,
        CASE WHEN is_new THEN user_ticks WHEN user_ticks >= user_before THEN user_ticks - user_before END AS user_step,
        CASE WHEN is_new THEN system_ticks WHEN system_ticks >= system_before THEN system_ticks - system_before END AS system_step,
        CASE WHEN is_new THEN read_bytes WHEN read_bytes >= read_before THEN read_bytes - read_before END AS read_step,
        CASE WHEN is_new THEN write_bytes WHEN write_bytes >= write_before THEN write_bytes - write_before END AS write_step,
        CASE WHEN is_new THEN major_faults WHEN major_faults >= faults_before THEN major_faults - faults_before END AS faults_step
    FROM begun
)

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
