-- The machine between two samples: CPU, memory, disks, network, pressure.
WITH stepped AS (
    SELECT
        node.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        context_switches - LAG(context_switches) OVER w AS switches_step,
        forks - LAG(forks) OVER w AS forks_step,
        major_page_faults - LAG(major_page_faults) OVER w AS faults_step,
        pages_swapped_in - LAG(pages_swapped_in) OVER w AS swapped_in_step,
        pages_swapped_out - LAG(pages_swapped_out) OVER w AS swapped_out_step,
        oom_kills - LAG(oom_kills) OVER w AS oom_step
    FROM node
    WINDOW w AS (PARTITION BY archive, boot ORDER BY boottime)
),

paced AS (
    SELECT
        s.*, c.user_step, c.system_step, c.idle_step, c.iowait_step, c.steal_step, c.ticks_per_second AS tick_rate,
        c.ticks_per_second * COALESCE(c.counted_seconds, s.seconds) AS pace
    FROM stepped AS s
    JOIN node_clocks AS c ON s.archive = c.archive AND s.run = c.run AND s.boot = c.boot AND s.seq = c.seq
),

-- Devices made of other devices would count twice.
disks AS (
    SELECT
        archive, run, boot, seq,
        SUM(read_bytes_per_second) AS disk_read,
        SUM(write_bytes_per_second) AS disk_write,
        SUM(reads_per_second + writes_per_second) AS disk_operations,
        MAX(busy_share) AS disk_busy
    FROM disk_rates
    WHERE
        device NOT LIKE 'dm-%' AND device NOT LIKE 'md%' AND device NOT LIKE 'loop%'
        AND device NOT LIKE 'zram%' AND device NOT LIKE 'drbd%'
    GROUP BY archive, run, boot, seq
),

-- Out of the machine lead its own devices; what is built upon them (bridges, VLANs, tunnels) would count twice. A machine
-- without devices of its own, such as a container, has the interfaces of its default routes.
devices AS (
    SELECT archive, run, boot, seq, MAX(CASE WHEN interface_kind = 'physical' THEN 1 ELSE 0 END) AS has_devices
    FROM net
    GROUP BY archive, run, boot, seq
),

nets AS (
    SELECT
        n.archive, n.run, n.boot, n.seq,
        SUM(n.received_bytes_per_second) AS net_received,
        SUM(n.sent_bytes_per_second) AS net_sent
    FROM net_rates AS n
    JOIN devices AS v ON n.archive = v.archive AND n.run = v.run AND n.boot = v.boot AND n.seq = v.seq
    WHERE n.interface_kind = 'physical' OR (v.has_devices = 0 AND n.default_route) OR {named_outward}
    GROUP BY n.archive, n.run, n.boot, n.seq
),

pressures AS (
    SELECT
        archive, run, boot, seq,
        MAX(CASE WHEN resource = 'cpu' THEN some_share END) AS cpu_some,
        MAX(CASE WHEN resource = 'memory' THEN some_share END) AS memory_some,
        MAX(CASE WHEN resource = 'memory' THEN full_share END) AS memory_full,
        MAX(CASE WHEN resource = 'io' THEN some_share END) AS io_some,
        MAX(CASE WHEN resource = 'io' THEN full_share END) AS io_full
    FROM pressure_rates
    GROUP BY archive, run, boot, seq
)

SELECT
    {sample_columns}
    d.seconds AS interval_seconds, -- seconds since the row before; null for the first of a boot, as are all rates
    d.cpus_online AS cpus, -- logical CPUs
    CASE WHEN user_step >= 0 AND system_step >= 0 THEN LEAST((user_step + system_step) / pace, COALESCE(d.cpus_online, 1e9)) END AS cpu_busy_cores, -- cores: user and kernel; never more than there are
    CASE WHEN user_step >= 0 AND system_step >= 0 THEN (user_step + system_step) / d.tick_rate END AS cpu_seconds, -- seconds of CPU time since the row before
    CASE WHEN user_step >= 0 THEN user_step / pace END AS cpu_user_cores, -- cores: user mode, nice included
    CASE WHEN system_step >= 0 THEN system_step / pace END AS cpu_system_cores, -- cores: kernel, interrupts included
    CASE WHEN iowait_step >= 0 THEN iowait_step / pace END AS cpu_iowait_cores, -- cores: idle while I/O was outstanding
    CASE WHEN steal_step >= 0 THEN steal_step / pace END AS cpu_steal_cores, -- cores: taken by the hypervisor
    CASE WHEN idle_step >= 0 THEN idle_step / pace END AS cpu_idle_cores, -- cores: idle
    d.load1, -- load average over 1 minute
    d.memory_total, -- bytes of usable memory
    d.memory_total - d.memory_available AS memory_used, -- bytes that are not available
    d.memory_available, -- bytes available without swapping
    d.swap_total - d.swap_free AS swap_used, -- bytes in swap
    CASE WHEN swapped_in_step >= 0 THEN swapped_in_step / seconds END AS pages_swapped_in_per_second, -- pages per second
    CASE WHEN swapped_out_step >= 0 THEN swapped_out_step / seconds END AS pages_swapped_out_per_second, -- pages per second
    CASE WHEN faults_step >= 0 THEN faults_step / seconds END AS major_faults_per_second, -- faults with I/O per second
    CASE WHEN switches_step >= 0 THEN switches_step / seconds END AS context_switches_per_second, -- per second
    CASE WHEN forks_step >= 0 THEN forks_step / seconds END AS forks_per_second, -- per second
    CASE WHEN oom_step >= 0 THEN oom_step END AS oom_kills, -- processes killed for want of memory since the row before
    k.disk_read AS disk_read_bytes_per_second, -- bytes per second, all disks
    k.disk_write AS disk_write_bytes_per_second, -- bytes per second, all disks
    k.disk_operations AS disk_operations_per_second, -- reads and writes per second, all disks
    k.disk_busy AS disk_busy_share, -- share of time the busiest disk was busy
    n.net_received AS net_received_bytes_per_second, -- bytes per second, all outward interfaces
    n.net_sent AS net_sent_bytes_per_second, -- bytes per second, all outward interfaces
    p.cpu_some AS cpu_some_share, -- share of time in which some task waited for a CPU
    p.memory_some AS memory_some_share, -- share of time in which some task waited for memory
    p.memory_full AS memory_full_share, -- share of time in which all tasks waited for memory
    p.io_some AS io_some_share, -- share of time in which some task waited for I/O
    p.io_full AS io_full_share -- share of time in which all tasks waited for I/O
FROM paced AS d
LEFT JOIN disks AS k ON d.archive = k.archive AND d.run = k.run AND d.boot = k.boot AND d.seq = k.seq
LEFT JOIN nets AS n ON d.archive = n.archive AND d.run = n.run AND d.boot = n.boot AND d.seq = n.seq
LEFT JOIN pressures AS p ON d.archive = p.archive AND d.run = p.run AND d.boot = p.boot AND d.seq = p.seq
