"""Shares and links: what each network file system, interface and fabric port did, and how jobs fared meanwhile."""

from typing import Annotated

import msgspec
from vmsonar_archive.records import ALLOWANCES
from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.filesystems import place_of
from vmsonar_inspect.facts.quantities import (
    BYTES,
    COUNT,
    LATENCY,
    NOTHING,
    RATE,
    SECONDS,
    SHARE,
    TEXT,
    AnswerPart,
    Use,
)
from vmsonar_inspect.facts.queries import JOB_KEY, Key, Queries, struct_of, use_columns

_PROGRAMS = about("by programs; by the server's count where there is no other")


class ShareUse(AnswerPart):
    """What was done on one network file system, by the whole machine."""

    share: Annotated[str, TEXT, titled("share"), about("where it is mounted; type and device where redacted")]
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    fs_type: Annotated[str | None, TEXT, titled("type")] = None
    server: Annotated[str | None, TEXT, titled("server")] = None
    export: Annotated[str | None, TEXT, titled("export")] = None
    samples: Annotated[int, COUNT] = 0
    seconds: Annotated[float | None, SECONDS, titled("seen for")] = None
    read_bytes: Annotated[float | None, BYTES, titled("read"), _PROGRAMS] = None
    write_bytes: Annotated[float | None, BYTES, titled("written"), _PROGRAMS] = None
    server_read_bytes: Annotated[float | None, BYTES, titled("fetched"), about("from the server")] = None
    server_write_bytes: Annotated[float | None, BYTES, titled("sent"), about("to the server")] = None
    read_rate: Annotated[Use, RATE, titled("read")] = NOTHING
    write_rate: Annotated[Use, RATE, titled("written")] = NOTHING
    operations: Annotated[float | None, COUNT, titled("operations")] = None
    operations_rate: Annotated[float | None, COUNT, about("a second, mean")] = None
    metadata_share: Annotated[float | None, SHARE, titled("metadata"), about("of the operations")] = None
    bytes_per_operation: Annotated[float | None, BYTES, about("read and written by programs")] = None
    operation_seconds: Annotated[float | None, LATENCY, titled("per operation"), about("mean")] = None
    slowest_seconds: Annotated[float | None, LATENCY, titled("slowest"), about("mean of an interval")] = None
    waiting: Annotated[Use, COUNT, titled("waiting"), about("operations under way at a time")] = NOTHING
    retransmissions: Annotated[int | None, COUNT, titled("sent again")] = None
    timeouts: Annotated[int | None, COUNT, titled("timeouts"), about("no answer for long")] = None
    errors: Annotated[int | None, COUNT, titled("errors"), about("such as a file that is not there")] = None


class LinkUse(AnswerPart):
    """What went over one interface that leads out of the machine, or one port of a fabric."""

    link: Annotated[str, TEXT, titled("link"), about("name of the interface, or device and port")]
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    kind: Annotated[str | None, TEXT, titled("kind"), about("interface, or a fabric's link layer")] = None
    speed_rate: Annotated[float | None, RATE, titled("speed"), about("of the link")] = None
    samples: Annotated[int, COUNT] = 0
    seconds: Annotated[float | None, SECONDS] = None
    received_bytes: Annotated[float | None, BYTES, titled("received")] = None
    sent_bytes: Annotated[float | None, BYTES, titled("sent")] = None
    received_rate: Annotated[Use, RATE, titled("received")] = NOTHING
    sent_rate: Annotated[Use, RATE, titled("sent")] = NOTHING
    link_share: Annotated[Use, SHARE, titled("of the link"), about("the busier direction")] = NOTHING
    packets: Annotated[float | None, COUNT, about("both ways")] = None
    drops: Annotated[int | None, COUNT, titled("dropped"), about("packets, both ways")] = None
    errors: Annotated[int | None, COUNT, titled("errors"), about("both ways")] = None
    repeats: Annotated[int | None, COUNT, titled("sent again"), about("packets, of a fabric")] = None
    exceeded: Annotated[int | None, COUNT, titled("over allowance"), about("packets, held or dropped")] = None
    throttled_share: Annotated[float | None, SHARE, titled("throttled"), about("of the time")] = None


class ShareContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the whole machine did on shares while a job ran: nobody can say which of it was the job's."""

    share_waiting_mean: float | None = None
    share_bytes: float | None = None
    home_write_bytes: float | None = None
    disk_write_bytes: float | None = None
    blocked_share: float | None = None


def _sum(column: str) -> str:
    return f"SUM({column} * interval_seconds)"


_SHARES = f"""
    SELECT archive, boot, device_major, device_minor, mount_point, fs_type, server, export,
        COUNT(*) AS samples, SUM(interval_seconds) AS seconds,
        {_sum("read_bytes_per_second")} AS read_bytes, {_sum("write_bytes_per_second")} AS write_bytes,
        {_sum("server_read_bytes_per_second")} AS server_read_bytes,
        {_sum("server_write_bytes_per_second")} AS server_write_bytes,
        {use_columns("read_bytes_per_second", "read_rate")}, {use_columns("write_bytes_per_second", "write_rate")},
        {_sum("operations_per_second")} AS operations, operations / NULLIF(seconds, 0) AS operations_rate,
        {_sum("metadata_operations_per_second")} / NULLIF(operations, 0) AS metadata_share,
        COALESCE(read_bytes + write_bytes, read_bytes, write_bytes) / NULLIF(operations, 0) AS bytes_per_operation,
        {_sum("operations_waiting")} AS waited, waited / NULLIF(operations, 0) AS operation_seconds,
        GREATEST(MAX(read_milliseconds), MAX(write_milliseconds), MAX(metadata_milliseconds)) / 1e3 AS slowest_seconds,
        {use_columns("operations_waiting", "waiting")}, SUM(retransmissions) AS retransmissions,
        SUM(timeouts) AS timeouts, SUM(errors) AS errors
    FROM netfs_rates GROUP BY archive, boot, device_major, device_minor, mount_point, fs_type, server, export
    ORDER BY archive, waited DESC NULLS LAST, mount_point"""  # noqa: S608


def query_shares(queries: Queries) -> list[ShareUse]:
    """Every network file system of each boot, those that were waited for most first."""
    return [struct_of(ShareUse, row, share=place_of(row)) for row in queries.rows(_SHARES)]


def _links(name: str, kind: str, table: str, more: str, exceeded: str, where: str = "") -> str:
    return f"""
    SELECT archive, {name} AS link, {kind} AS kind, COUNT(*) AS samples,
        MAX(link_speed) * 1e6 / 8 AS speed_rate, SUM(interval_seconds) AS seconds,
        {_sum("received_bytes_per_second")} AS received_bytes, {_sum("sent_bytes_per_second")} AS sent_bytes,
        {use_columns("received_bytes_per_second", "received_rate")},
        {use_columns("sent_bytes_per_second", "sent_rate")},
        {use_columns("link_share", "link_share")},
        {_sum("received_packets_per_second + sent_packets_per_second")} AS packets,
        SUM(COALESCE(received_drops + sent_drops, received_drops, sent_drops)) AS drops, {more},
        SUM({exceeded}) AS exceeded,
        SUM(CASE WHEN {exceeded} > 0 THEN interval_seconds WHEN {exceeded} = 0 THEN 0.0 END)
            / NULLIF(SUM(interval_seconds), 0) AS throttled_share
    FROM {table} {where} GROUP BY ALL ORDER BY archive, link"""  # noqa: S608


_EXCEEDED = " + ".join(f"COALESCE({name}, 0)" for name in ALLOWANCES)
_INTERFACES = _links(
    "interface",
    "'interface'",
    "net_rates",
    "SUM(received_errors + sent_errors) AS errors, CAST(NULL AS BIGINT) AS repeats",
    f"CASE WHEN COALESCE({', '.join(ALLOWANCES)}) IS NOT NULL THEN {_EXCEEDED} END",
    "WHERE interface_kind = 'physical' OR default_route",
)
_PORTS = _links(
    "CONCAT(fabric_device, '/', fabric_port)",
    "link_layer",
    "fabric_rates",
    "SUM(link_errors) AS errors, SUM(repeats) AS repeats",
    "CAST(NULL AS BIGINT)",
)


def query_links(queries: Queries) -> list[LinkUse]:
    """The interfaces that lead out, and the ports of fabrics."""
    ports = queries.rows(_PORTS) if queries.has("fabric") else []
    return [struct_of(LinkUse, row) for row in [*queries.rows(_INTERFACES), *ports]]


#: Where people's homes are, wherever a site mounts them.
_HOME = "(^|/)(home|homes|users)(/|$)"
# Joined by time; whoever is in state D waits for a disk or a share, and cannot be interrupted.
_CONTEXT = f"""
    WITH steps AS (
        SELECT archive, boot, seq, MIN(time) AS time, MAX(interval_seconds) AS interval_seconds,
            SUM(operations_waiting) AS waiting,
            {_sum("COALESCE(server_read_bytes_per_second, read_bytes_per_second, 0)")}
                + {_sum("COALESCE(server_write_bytes_per_second, write_bytes_per_second, 0)")} AS moved,
            SUM(CASE WHEN regexp_matches(lower(mount_point), '{_HOME}')
                THEN COALESCE(server_write_bytes_per_second, write_bytes_per_second) * interval_seconds END) AS home
        FROM netfs_rates GROUP BY archive, boot, seq
    ),
    shares AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, SUM(moved) AS share_bytes, SUM(home) AS home_write_bytes,
            SUM(waiting * interval_seconds) / NULLIF(SUM(interval_seconds), 0) AS share_waiting_mean
        FROM judged_jobs AS j JOIN steps AS s
            ON j.archive = s.archive AND j.boot = s.boot AND s.time BETWEEN first_time AND last_time
        GROUP BY ALL
    ),
    disks AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks, {_sum("disk_write_bytes_per_second")} AS disk_write_bytes
        FROM judged_jobs AS j JOIN node_steps AS n ON j.archive = n.archive AND n.time BETWEEN first_time AND last_time
        GROUP BY ALL
    ),
    states AS (
        SELECT j.archive, j.boot, j.pgid, j.start_ticks,
            COUNT(DISTINCT p.seq) FILTER (WHERE p.state = 'D') / COUNT(DISTINCT p.seq) AS blocked_share
        FROM judged_jobs AS j JOIN process AS p
            ON j.archive = p.archive AND j.boot = p.boot AND j.pgid = p.pgid AND p.time BETWEEN first_time AND last_time
        GROUP BY ALL
    )
    SELECT * FROM shares LEFT JOIN disks USING ({", ".join(JOB_KEY)}) LEFT JOIN states USING ({", ".join(JOB_KEY)})"""  # noqa: S608


def query_share_contexts(queries: Queries) -> dict[Key, ShareContext]:
    """What happened on shares while the jobs ran that were last judged (facts/jobs.py:query_contexts)."""
    return {key: struct_of(ShareContext, row) for key, row in queries.by(JOB_KEY, _CONTEXT).items()}
