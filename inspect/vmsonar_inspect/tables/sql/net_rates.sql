-- What every network interface moved between two samples.
WITH stepped AS (
    SELECT
        net.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        FALSE AS is_new,
        {values_before}
    FROM net
    WINDOW w AS (PARTITION BY archive, boot, interface ORDER BY boottime)
),

risen AS (
    SELECT
        s.*,
        {rises}
    FROM stepped AS s
)

SELECT
    {sample_columns}
    interface, -- name of the interface
    interface_kind, -- physical, lower (physical, below another one that counts its packets too), loopback or virtual
    default_route, -- a default route leads through it
    link_speed, -- megabits per second
    seconds AS interval_seconds, -- seconds since the row before
    received_bytes_rise / seconds AS received_bytes_per_second, -- bytes received per second
    sent_bytes_rise / seconds AS sent_bytes_per_second, -- bytes sent per second
    GREATEST(received_bytes_rise, sent_bytes_rise) / seconds * 8e-6 / link_speed AS link_share, -- share of the link's speed, of the busier direction
    received_packets_rise / seconds AS received_packets_per_second, -- packets received per second
    sent_packets_rise / seconds AS sent_packets_per_second, -- packets sent per second
    (received_errors_rise + sent_errors_rise + received_drops_rise + sent_drops_rise) / seconds AS errors_per_second, -- errors and drops, both ways, per second
    received_errors_rise AS received_errors, -- errors on receiving since the row before
    sent_errors_rise AS sent_errors, -- errors on sending since the row before
    received_drops_rise AS received_drops, -- packets dropped on receiving since the row before
    sent_drops_rise AS sent_drops, -- packets dropped on sending since the row before
    received_bytes_exceeded_rise AS received_bytes_exceeded, -- packets beyond the bytes that the cloud allows to receive, since the row before
    sent_bytes_exceeded_rise AS sent_bytes_exceeded, -- packets beyond the bytes that it allows to send, since the row before
    packets_exceeded_rise AS packets_exceeded, -- packets beyond those that it allows, since the row before
    connections_exceeded_rise AS connections_exceeded, -- packets of connections beyond those that it allows, since the row before
    link_local_exceeded_rise AS link_local_exceeded -- packets to the cloud's own services beyond those that it allows, since the row before
FROM risen AS d
