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
    netfs_source: Annotated[Choice | None, about("mountstats, llite, ceph or cifs; none: nobody counts")] = (
        None
    )
    age: Annotated[Seconds | None, about("since it was mounted; falls at a remount")] = None
    read_bytes: Annotated[Bytes | None, about("read by programs; NFS: without O_DIRECT")] = None
    write_bytes: Annotated[Bytes | None, about("written by programs; NFS: without O_DIRECT")] = None
    direct_read_bytes: Annotated[Bytes | None, about("asked for by programs with O_DIRECT")] = None
    direct_write_bytes: Annotated[Bytes | None, about("written by programs with O_DIRECT")] = None
    server_read_bytes: Annotated[Bytes | None, about("fetched from the server, or all targets")] = None
    server_write_bytes: Annotated[Bytes | None, about("sent to the server, or all targets")] = None
    read_operations: Annotated[Count | None, about("requests; Lustre: calls of programs")] = None
    write_operations: Annotated[Count | None, about("the same")] = None
    metadata_operations: Annotated[Count | None, about("the same")] = None
    other_operations: Annotated[Count | None, about("the same")] = None
    read_queue_time: Annotated[Milliseconds | None, about("before they were sent, summed")] = None
    write_queue_time: Annotated[Milliseconds | None, about("the same")] = None
    metadata_queue_time: Annotated[Milliseconds | None, about("the same")] = None
    read_round_trip_time: Annotated[Milliseconds | None, about("from sending to the reply, summed")] = None
    write_round_trip_time: Annotated[Milliseconds | None, about("the same")] = None
    metadata_round_trip_time: Annotated[Milliseconds | None, about("the same")] = None
    read_execute_time: Annotated[Milliseconds | None, about("from the call to its end, summed")] = None
    write_execute_time: Annotated[Milliseconds | None, about("the same")] = None
    metadata_execute_time: Annotated[Milliseconds | None, about("the same")] = None
    rpc_operations: Annotated[Count | None, about("Lustre: requests to all targets")] = None
    rpc_time: Annotated[Milliseconds | None, about("Lustre: their time until the reply, summed")] = None
    retransmissions: Annotated[Count | None, about("requests that were sent again")] = None
    timeouts: Annotated[Count | None, about("major ones: the server did not answer for long")] = None
    errors: Annotated[Count | None, about("operations that failed, for want of a file too")] = None
    connects: Annotated[Count | None, about("to the server, by all its mounts; CIFS: again")] = None
    in_flight: Annotated[Count | None, about("CIFS: requests that wait now, of all shares")] = None


class FabricRow(Row, kw_only=True):
    """One port of an InfiniBand, RoCE or EFA device; counters below /sys/class/infiniband."""

    fabric_device: Annotated[Text, about("name of the device; /sys/class/infiniband", Sensitivity.HOST)]
    fabric_port: Annotated[Ident, about("number of the port")]
    link_layer: Annotated[Choice | None, about("InfiniBand or Ethernet (RoCE); link_layer")] = None
    link_state: Annotated[Choice | None, about("down, init, armed or active; state")] = None
    link_speed: Annotated[MegabitsPerSecond | None, about("rate of the link; rate")] = None
    received_bytes: Annotated[Bytes | None, about("4 * port_rcv_data; EFA: rx_bytes")] = None
    sent_bytes: Annotated[Bytes | None, about("4 * port_xmit_data; EFA: tx_bytes")] = None
    received_packets: Annotated[Count | None, about("port_rcv_packets; EFA: rx_pkts")] = None
    sent_packets: Annotated[Count | None, about("port_xmit_packets; EFA: tx_pkts")] = None
    received_errors: Annotated[Count | None, about("port_rcv_errors")] = None
    received_drops: Annotated[Count | None, about("out_of_buffer; EFA: rx_drops")] = None
    sent_drops: Annotated[Count | None, about("port_xmit_discards")] = None
    sent_waits: Annotated[Count | None, about("ticks without credits; port_xmit_wait")] = None
    symbol_errors: Annotated[Count | None, about("symbol_error; may stop at its highest value")] = None
    link_recoveries: Annotated[Count | None, about("link_error_recovery")] = None
    link_failures: Annotated[Count | None, about("link_downed")] = None
    sequence_errors: Annotated[Count | None, about("out of order, asked for again; packet_seq_err")] = None
    acknowledge_timeouts: Annotated[Count | None, about("sent again; local_ack_timeout_err")] = None
    congestions: Annotated[Count | None, about("notices that slowed us; rp_cnp_handled")] = None
    retransmitted_bytes: Annotated[Bytes | None, about("EFA: retrans_bytes")] = None
