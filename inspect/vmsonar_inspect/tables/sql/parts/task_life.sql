-- When a process or job was seen, and its CPU time.
    r.first_time, -- first sample that shows it
    r.last_time, -- last sample that shows it
    r.samples, -- samples that show it
    r.runtime_seconds, -- seconds from its start to its last sample
    r.recorded_seconds, -- seconds of that which intervals cover
    r.cpu_seconds, -- seconds of CPU time while recorded
