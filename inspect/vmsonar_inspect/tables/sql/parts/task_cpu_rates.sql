-- The CPU use of a process or job since the row before.
    (d.user_ticks_rise + d.system_ticks_rise) / d.ticks AS cpu_seconds, -- seconds of CPU time since then
    CASE WHEN (d.user_ticks_rise + d.system_ticks_rise) / d.ticks / d.paced > d.cpus THEN d.cpus ELSE (d.user_ticks_rise + d.system_ticks_rise) / d.ticks / d.paced END AS cpu_cores, -- cores in use; never more than there are
    d.user_ticks_rise / d.ticks / d.paced AS cpu_user_cores, -- cores: user mode
    d.system_ticks_rise / d.ticks / d.paced AS cpu_system_cores, -- cores: kernel
