-- What every port of a fabric moved between two samples.
WITH stepped AS (
    SELECT
        fabric.*,
        (boottime - LAG(boottime) OVER w) / 1e9 AS seconds,
        FALSE AS is_new,
        {values_before}
    FROM fabric
    WINDOW w AS (PARTITION BY archive, boot, fabric_device, fabric_port ORDER BY boottime)
),

risen AS (
    SELECT
        s.*,
        {rises}
    FROM stepped AS s
)

SELECT
    {sample_columns}
    fabric_device, -- name of the device
    fabric_port, -- number of the port
    link_layer, -- InfiniBand or Ethernet
    link_state, -- down, init, armed or active
    link_speed, -- megabits per second
    seconds AS interval_seconds, -- seconds since the row before
    received_bytes_rise / seconds AS received_bytes_per_second, -- bytes received per second
    sent_bytes_rise / seconds AS sent_bytes_per_second, -- bytes sent per second
    GREATEST(received_bytes_rise, sent_bytes_rise) / seconds * 8e-6 / link_speed AS link_share, -- share of the link's rate, of the busier direction
    received_packets_rise / seconds AS received_packets_per_second, -- packets received per second
    sent_packets_rise / seconds AS sent_packets_per_second, -- packets sent per second
    received_drops_rise AS received_drops, -- packets dropped on receiving since the row before
    sent_drops_rise AS sent_drops, -- packets dropped on sending since the row before
    sent_waits_rise AS sent_waits, -- ticks in which data waited for credits since the row before
    CASE
        WHEN COALESCE(received_errors_rise, symbol_errors_rise, link_recoveries_rise, link_failures_rise) IS NOT NULL
            THEN COALESCE(received_errors_rise, 0) + COALESCE(symbol_errors_rise, 0) + COALESCE(link_recoveries_rise, 0)
                + COALESCE(link_failures_rise, 0)
    END AS link_errors, -- errors of the link since the row before, of those that the device counts
    COALESCE(sequence_errors_rise + acknowledge_timeouts_rise, sequence_errors_rise, acknowledge_timeouts_rise) AS repeats, -- packets that had to be sent again since the row before
    congestions_rise AS congestions -- notifications that slowed a sender here since the row before
FROM risen AS d
