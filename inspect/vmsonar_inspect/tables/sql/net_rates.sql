-- What every network interface moved between two samples.
WITH stepped AS (
    SELECT
        net.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        received_bytes - LAG(received_bytes) OVER w AS received_step,
        sent_bytes - LAG(sent_bytes) OVER w AS sent_step,
        received_packets - LAG(received_packets) OVER w AS received_packets_step,
        sent_packets - LAG(sent_packets) OVER w AS sent_packets_step,
        received_errors + sent_errors + received_drops + sent_drops
        - LAG(received_errors + sent_errors + received_drops + sent_drops) OVER w AS trouble_step
    FROM net
    WINDOW w AS (PARTITION BY archive, boot, interface ORDER BY boottime)
)

SELECT
    {sample_columns}
    interface, -- name of the interface
    interface_kind, -- physical, lower (physical, below another one that counts its packets too), loopback or virtual
    default_route, -- a default route leads through it
    seconds AS interval_seconds, -- seconds since the row before
    CASE WHEN received_step >= 0 THEN received_step / seconds END AS received_bytes_per_second, -- bytes received per second
    CASE WHEN sent_step >= 0 THEN sent_step / seconds END AS sent_bytes_per_second, -- bytes sent per second
    CASE WHEN received_packets_step >= 0 THEN received_packets_step / seconds END AS received_packets_per_second, -- packets received per second
    CASE WHEN sent_packets_step >= 0 THEN sent_packets_step / seconds END AS sent_packets_per_second, -- packets sent per second
    CASE WHEN trouble_step >= 0 THEN trouble_step / seconds END AS errors_per_second -- errors and drops, both ways, per second
FROM stepped AS d
