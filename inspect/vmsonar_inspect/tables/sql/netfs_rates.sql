-- What every network file system did between two samples; one that was mounted since then counted from zero.
WITH counted AS (
    SELECT
        netfs.*,
        COALESCE(read_bytes + COALESCE(direct_read_bytes, 0), server_read_bytes) AS program_read,
        COALESCE(write_bytes + COALESCE(direct_write_bytes, 0), server_write_bytes) AS program_write,
        read_operations + write_operations + metadata_operations + COALESCE(other_operations, 0) AS operations,
        COALESCE(read_execute_time + write_execute_time + metadata_execute_time, rpc_time) AS execute_time,
        read_queue_time + write_queue_time + metadata_queue_time AS queue_time,
        COALESCE(read_round_trip_time + write_round_trip_time + metadata_round_trip_time, rpc_time) AS round_trip_time
    FROM netfs
),

begun AS (
    SELECT archive, run, boot, MIN(boottime) AS run_begin
    FROM samples
    GROUP BY archive, run, boot
),

stepped AS (
    SELECT
        c.*,
        (c.boottime - LAG(c.boottime) OVER w) / 1e9 AS since_row,
        -- Its age is cut to whole seconds.
        CASE WHEN LAG(c.boottime) OVER w IS NULL THEN COALESCE(c.boottime - (age + 1) * 1e9 >= b.run_begin, FALSE)
            ELSE COALESCE(age < LAG(age) OVER w, FALSE) END AS is_new,
        {values_before}
    FROM counted AS c
    JOIN begun AS b ON c.archive = b.archive AND c.run = b.run AND c.boot = b.boot
    WINDOW w AS (PARTITION BY c.archive, c.boot, device_major, device_minor ORDER BY c.boottime)
),

risen AS (
    SELECT
        s.*,
        CASE WHEN since_row IS NULL AND is_new THEN GREATEST(age, 1) ELSE since_row END AS seconds,
        {rises}
    FROM stepped AS s
)

SELECT
    {sample_columns}
    device_major, -- major number of its device
    device_minor, -- minor number
    fs_type, -- type of the file system
    mount_point, -- where it is mounted
    server, -- who serves it
    export, -- what of it is mounted
    seconds AS interval_seconds, -- seconds since the row before, or since it was mounted while recording
    program_read_rise / seconds AS read_bytes_per_second, -- bytes that programs read per second, from the cache too; from the server where only that is counted
    program_write_rise / seconds AS write_bytes_per_second, -- bytes that programs wrote per second; to the server where only that is counted
    server_read_bytes_rise / seconds AS server_read_bytes_per_second, -- bytes fetched from the server per second
    server_write_bytes_rise / seconds AS server_write_bytes_per_second, -- bytes sent to the server per second
    read_operations_rise / seconds AS read_operations_per_second, -- reads per second
    write_operations_rise / seconds AS write_operations_per_second, -- writes and commits per second
    metadata_operations_rise / seconds AS metadata_operations_per_second, -- operations on names, attributes, opening and locks per second
    operations_rise / seconds AS operations_per_second, -- all operations per second
    read_execute_time_rise / NULLIF(read_operations_rise, 0) AS read_milliseconds, -- milliseconds a read took, from the call to its end
    write_execute_time_rise / NULLIF(write_operations_rise, 0) AS write_milliseconds, -- milliseconds a write took
    metadata_execute_time_rise / NULLIF(metadata_operations_rise, 0) AS metadata_milliseconds, -- milliseconds an operation on metadata took
    queue_time_rise / NULLIF(operations_rise, 0) AS queue_milliseconds, -- of these before it was sent
    round_trip_time_rise / NULLIF(COALESCE(rpc_operations_rise, operations_rise), 0) AS round_trip_milliseconds, -- from sending to the reply
    execute_time_rise / 1e3 / seconds AS operations_waiting, -- mean number of operations that waited for their end; one that takes longer than an interval counts when it ends
    retransmissions_rise AS retransmissions, -- requests sent again since the row before
    timeouts_rise AS timeouts, -- times the server did not answer for long, since the row before
    errors_rise AS errors -- operations that ended with an error, since the row before
FROM risen AS d
