-- When a process or job was seen, and its CPU time.
    r.first_time, -- first sample that knows of it
    r.last_time, -- last sample that knows of it: it shows it, or found it gone
    r.samples_alive AS samples, -- samples that show it alive; 0 for what lived between two
    {runtime}, -- seconds from its start to its end; to the sample that found it gone where nobody told the end
    r.runtime_seconds_low, -- seconds to the last sample that shows it alive, where its end is not known
    r.recorded_seconds, -- seconds of that which intervals cover, while it lived
    {cpu_time}, -- seconds of CPU time while recorded
