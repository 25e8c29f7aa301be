-- The I/O of a process or job since the row before, and where its rows and names come from.
    d.read_bytes_rise AS read_bytes, -- bytes fetched from storage since then
    d.write_bytes_rise AS write_bytes, -- bytes sent to storage since then
    d.read_bytes_rise / d.paced AS read_bytes_per_second, -- bytes per second
    d.write_bytes_rise / d.paced AS write_bytes_per_second, -- bytes per second
    d.major_faults_rise AS major_faults -- faults with I/O since then
FROM deltas AS d
LEFT JOIN latest_{source}_info AS n
    ON d.archive = n.archive AND d.boot = n.boot AND d.{number} = n.{number} AND d.start_ticks = n.start_ticks
