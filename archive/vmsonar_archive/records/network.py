"""Rows about shares and fabrics: what the clients of network file systems and the ports of fabrics have counted."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Ident,
    MegabitsPerSecond,
    Milliseconds,
    Row,
    Seconds,
    Sensitivity,
    Text,
    about,
)


class NetfsRow(Row, kw_only=True):
    """One mounted network file system; counters since it was mounted, null where its client does not tell them.

    At every sample where there are counters, else once a minute. Names of classes: read, write (with commits),
    metadata (names, attributes, folders, opening, locks), other (what keeps a session alive, copies on the server).
    """

    device_major: Annotated[Ident, about("major number of its device, as in filesystem; mountinfo")]
    device_minor: Annotated[Ident, about("minor number; mountinfo")]
    fs_type: Annotated[Text | None, about("type of the file system; mountinfo")] = None
    mount_point: Annotated[
        Text | None, about("where it is mounted, one place of several; mountinfo", Sensitivity.PATH)
    ] = None
    server: Annotated[
        Text | None, about("who serves it, as named when it was mounted; mountinfo", Sensitivity.HOST)
    ] = None
    export: Annotated[Text | None, about("what of it is mounted; mountinfo", Sensitivity.PATH)] = None
    protocol: Annotated[Text | None, about("version of the protocol; option vers of mountinfo")] = None
    netfs_source: Annotated[
        Choice | None,
        about("mountstats, llite, ceph, cifs or fuse: where the counters are from; none where nobody tells"),
    ] = None
    age: Annotated[Seconds | None, about("since it was mounted: lower than before after a remount")] = None
    read_bytes: Annotated[
        Bytes | None, about("read by programs through the page cache; Lustre: by all reads")
    ] = None
    write_bytes: Annotated[
        Bytes | None, about("written by programs through the page cache; Lustre: by all writes")
    ] = None
    direct_read_bytes: Annotated[Bytes | None, about("read by programs with O_DIRECT")] = None
    direct_write_bytes: Annotated[Bytes | None, about("written by programs with O_DIRECT")] = None
    server_read_bytes: Annotated[Bytes | None, about("fetched from the server; Lustre: from all targets")] = (
        None
    )
    server_write_bytes: Annotated[Bytes | None, about("sent to the server; Lustre: to all targets")] = None
    read_operations: Annotated[
        Count | None, about("requests for data; Lustre: calls, as are all its operations")
    ] = None
    write_operations: Annotated[Count | None, about("requests that bring data or commit it")] = None
    metadata_operations: Annotated[
        Count | None, about("requests about names, attributes, opening, locks")
    ] = None
    other_operations: Annotated[Count | None, about("all other requests")] = None
    read_queue_time: Annotated[Milliseconds | None, about("reads, before they were sent, summed")] = None
    write_queue_time: Annotated[Milliseconds | None, about("writes, before they were sent, summed")] = None
    metadata_queue_time: Annotated[Milliseconds | None, about("metadata, before it was sent, summed")] = None
    read_round_trip_time: Annotated[
        Milliseconds | None, about("reads, from sending to the reply, summed")
    ] = None
    write_round_trip_time: Annotated[
        Milliseconds | None, about("writes, from sending to the reply, summed")
    ] = None
    metadata_round_trip_time: Annotated[
        Milliseconds | None, about("metadata, from sending to the reply, summed")
    ] = None
    read_execute_time: Annotated[Milliseconds | None, about("reads, from the call to its end, summed")] = None
    write_execute_time: Annotated[Milliseconds | None, about("writes, from the call to its end, summed")] = (
        None
    )
    metadata_execute_time: Annotated[
        Milliseconds | None, about("metadata, from the call to its end, summed")
    ] = None
    rpc_operations: Annotated[
        Count | None, about("requests to all targets; Lustre: req_waittime of osc, mdc")
    ] = None
    rpc_time: Annotated[Milliseconds | None, about("their time until the reply, summed; Lustre")] = None
    retransmissions: Annotated[
        Count | None, about("requests sent again; NFS: transmissions less operations")
    ] = None
    timeouts: Annotated[Count | None, about("major timeouts: the server did not answer for long")] = None
    errors: Annotated[Count | None, about("operations that ended with an error, such as a missing file")] = (
        None
    )
    connects: Annotated[
        Count | None, about("connections made to the server, shared by mounts of one; CIFS: reconnections")
    ] = None
    in_flight: Annotated[
        Count | None, about("requests that wait for an answer now; CIFS of all shares, FUSE")
    ] = None


class FabricRow(Row, kw_only=True):
    """One port of an InfiniBand, RoCE or EFA device; counters below /sys/class/infiniband."""

    fabric_device: Annotated[Text, about("name of the device; /sys/class/infiniband", Sensitivity.HOST)]
    fabric_port: Annotated[Ident, about("number of the port")]
    link_layer: Annotated[Choice | None, about("InfiniBand or Ethernet (RoCE); link_layer")] = None
    link_state: Annotated[Choice | None, about("down, init, armed or active; state")] = None
    link_speed: Annotated[MegabitsPerSecond | None, about("rate of the link; rate")] = None
    received_bytes: Annotated[
        Bytes | None, about("received: port_rcv_data, which counts units of 4 bytes; EFA: rx_bytes")
    ] = None
    sent_bytes: Annotated[
        Bytes | None, about("sent: port_xmit_data, which counts units of 4 bytes; EFA: tx_bytes")
    ] = None
    received_packets: Annotated[Count | None, about("port_rcv_packets; EFA: rx_pkts")] = None
    sent_packets: Annotated[Count | None, about("port_xmit_packets; EFA: tx_pkts")] = None
    received_errors: Annotated[Count | None, about("port_rcv_errors")] = None
    received_drops: Annotated[Count | None, about("out_of_buffer; EFA: rx_drops")] = None
    sent_drops: Annotated[Count | None, about("port_xmit_discards")] = None
    sent_waits: Annotated[Count | None, about("ticks in which data waited for credits; port_xmit_wait")] = (
        None
    )
    symbol_errors: Annotated[
        Count | None, about("symbol_error; some devices stop at their highest value")
    ] = None
    link_recoveries: Annotated[Count | None, about("link_error_recovery")] = None
    link_failures: Annotated[Count | None, about("link_downed")] = None
    sequence_errors: Annotated[
        Count | None, about("packets out of order, asked for again; packet_seq_err")
    ] = None
    acknowledge_timeouts: Annotated[
        Count | None, about("sent again after silence; local_ack_timeout_err")
    ] = None
    congestions: Annotated[Count | None, about("notifications that slowed a sender here; rp_cnp_handled")] = (
        None
    )
    retransmitted_bytes: Annotated[Bytes | None, about("sent again; EFA: retrans_bytes")] = None
