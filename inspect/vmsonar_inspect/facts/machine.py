"""The machine and its parts: what it is, what was covered, how busy it, its containers and its GPUs were."""

from operator import itemgetter
from typing import Any

from vmsonar_inspect.facts.model import ContainerUse, Coverage, GpuUse, Machine, NodeUse
from vmsonar_inspect.facts.queries import (
    LIMIT_RISES,
    SATURATED,
    Queries,
    Record,
    grouped,
    number,
    struct_of,
    use_columns,
    weighted_mean,
)

#: Columns of node_steps by the fields that show them.
RATES = {
    "disk_read_rate": "disk_read_bytes_per_second",
    "disk_write_rate": "disk_write_bytes_per_second",
    "received_rate": "net_received_bytes_per_second",
    "sent_rate": "net_sent_bytes_per_second",
}
PRESSURES = {
    "pressure_cpu": "cpu_some_share",
    "pressure_memory": "memory_some_share",
    "pressure_io": "io_some_share",
}
_USES = {
    "cores": "cpu_busy_cores",
    "memory_bytes": "memory_used",
    "swap_bytes": "swap_used",
    "runnable": "tasks_runnable",
    **RATES,
}
_MEANS = {
    "steal_share": "cpu_steal_cores / NULLIF(cpus, 0)",
    "forks_per_second": "forks_per_second",
    "swap_rate": "pages_swapped_in_per_second + pages_swapped_out_per_second",
    "major_faults_per_second": "major_faults_per_second",
    "saturated_share": SATURATED,
    **PRESSURES,
}
_SUMS = {
    "cpu_seconds": "cpu_seconds",
    **{name.replace("_rate", "_bytes"): f"{column} * interval_seconds" for name, column in RATES.items()},
}


def query_machines(
    queries: Queries, sources: dict[str, str], hosts: dict[str, str | None]
) -> dict[str, Machine]:
    """Every machine of the archives that were given."""
    rows = queries.by("archive", "SELECT * FROM latest_sysinfo")
    machines = {}
    for archive, source in sources.items():
        told = rows.get(archive, {})
        cards: list[dict[str, Any]] = told.get("cards") or []
        machines[archive] = struct_of(
            Machine,
            told,
            {"memory_bytes": "memory_total", "swap_bytes": "swap_total"},
            archive=archive,
            source=source,
            hostname=told.get("hostname_short") or hosts.get(archive),
            gpus=sum(1 for card in cards if not card.get("parent_uuid")),
            gpu_models=sorted({str(card.get("model")) for card in cards if card.get("model")}),
        )
    return machines


def query_coverage(queries: Queries) -> dict[str, Coverage]:
    """What was recorded of each archive."""
    rows = queries.rows("SELECT * FROM coverage ORDER BY first_time")
    return {archive: _coverage(boots) for archive, boots in grouped(rows, itemgetter("archive")).items()}


def _coverage(boots: list[Record]) -> Coverage:
    first, last = min(row["first_time"] for row in boots), max(row["last_time"] for row in boots)
    # A stepped clock must not stretch or shrink the time within a boot.
    span = boots[0]["span_seconds"] if len(boots) == 1 else (last - first).total_seconds()
    covered = sum(row["recorded_seconds"] for row in boots)
    return Coverage(
        first=first,
        last=last,
        span_seconds=float(span),
        covered_seconds=float(covered),
        coverage=min(1.0, covered / span) if span else None,
        samples=sum(row["samples"] for row in boots),
        interval_seconds=number(max(boots, key=itemgetter("samples"))["interval_seconds"]),
        boots=len(boots),
        runs=sum(row["runs"] for row in boots),
        holes=sum(row["gaps"] for row in boots) + len(boots) - 1,
    )


def query_node_use(queries: Queries) -> dict[str, NodeUse]:
    """How busy each machine was."""
    queries.require_node_steps()
    columns = [use_columns(column, name) for name, column in _USES.items()]
    columns += [f"{weighted_mean(column)} AS {name}" for name, column in _MEANS.items()]
    columns += [f"SUM({column}) AS {name}" for name, column in _SUMS.items()]
    rows = queries.by(
        "archive",
        "SELECT archive, MAX(cpus) AS cpus, MAX(memory_total) AS memory_total_bytes, SUM(oom_kills) AS oom_kills, "  # noqa: S608
        f"{', '.join(columns)} FROM node_steps GROUP BY archive",
    )
    ceilings = queries.by("archive", _CEILINGS)
    cards = queries.by("archive", _CARDS) if queries.has("gpu") else {}
    pairs = _query_pairs(queries)
    return {
        archive: struct_of(
            NodeUse, {**row, **ceilings[archive], **cards.get(archive, {}), **pairs.get(archive, {})}
        )
        for archive, row in rows.items()
    }


_CEILINGS = """
    SELECT archive, MAX(open_files / NULLIF(open_files_limit, 0)) AS open_files_share,
        MAX(tasks_existing / NULLIF(tasks_limit, 0)) AS tasks_share,
        MAX(connections / NULLIF(connections_limit, 0)) AS connections_share
    FROM node GROUP BY archive"""


def _query_pairs(queries: Queries) -> dict[str, Record]:
    """How long two threads shared a core while another was idle; only machines with such cores are asked."""
    told = queries.rows("SELECT archive, core_siblings FROM latest_sysinfo WHERE core_siblings IS NOT NULL")
    places = [
        (row["archive"], cpu, core)
        for row in told
        for core, cpus in enumerate(row["core_siblings"])
        for cpu in cpus
    ]
    queries.keep("cpu_cores", "archive VARCHAR, cpu_index BIGINT, core BIGINT", places)
    return queries.by("archive", _PAIRS) if places else {}


_BUSY_TICKS = "user_ticks + nice_ticks + system_ticks + irq_ticks + softirq_ticks"
_PAIRS = f"""
    WITH ticked AS (
        SELECT archive, boot, cpu_index, seq, {_BUSY_TICKS} AS busy,
            {_BUSY_TICKS} + idle_ticks + iowait_ticks + COALESCE(steal_ticks, 0) AS every
        FROM cpu WHERE archive IN (SELECT archive FROM cpu_cores)
    ),
    shares AS (
        SELECT archive, boot, seq, cpu_index, (busy - LAG(busy) OVER w) / NULLIF(every - LAG(every) OVER w, 0) AS share
        FROM ticked WINDOW w AS (PARTITION BY archive, boot, cpu_index ORDER BY seq)
    ),
    cores AS (
        SELECT archive, boot, seq, core, COUNT(*) FILTER (WHERE share >= 0.8) >= 2 AS is_paired,
            MAX(share) <= 0.1 AS idles
        FROM shares JOIN cpu_cores USING (archive, cpu_index) WHERE share IS NOT NULL GROUP BY ALL
    ),
    moments AS (SELECT archive, BOOL_OR(is_paired) AND BOOL_OR(idles) AS wasted FROM cores GROUP BY archive, boot, seq)
    SELECT archive, AVG(CASE WHEN wasted THEN 1.0 ELSE 0.0 END) AS paired_share FROM moments GROUP BY archive"""  # noqa: S608


# All cards of a sample together, then over time; the parts of a divided card are in the card already.
_CARDS = f"""
    WITH samples_ AS (
        SELECT archive, run, seq, AVG(gpu_util) AS util, SUM(memory_used) AS memory,
            MAX(seen_seconds) AS interval_seconds
        FROM gpu_rates WHERE parent_uuid IS NULL GROUP BY archive, run, seq
    )
    SELECT archive, {use_columns("util", "gpu_util")}, {use_columns("memory", "gpu_memory_bytes")}
    FROM samples_ GROUP BY archive"""  # noqa: S608


# The shared rollup counts the container's working set; mean and throttling go by the same intervals.
_CONTAINER_MORE = f"""
    SELECT archive, container_id, {weighted_mean("COALESCE(memory_working, memory_used)")} AS memory_mean,
        SUM(COALESCE(memory_working, memory_used) * interval_seconds) AS memory_byte_seconds,
        {weighted_mean("throttled_share")} AS throttled_share,
        quantile_cont(memory_used / NULLIF(memory_limit, 0), 0.95) AS limit_share
    FROM container_rates GROUP BY archive, container_id"""  # noqa: S608

_LIVES = """
    SELECT archive, container_id, COUNT(*) AS lives,
        CASE WHEN COUNT(start_boottime) = COUNT(*) THEN SUM(runtime_seconds) END AS runtime_seconds
    FROM container_lives GROUP BY archive, container_id"""

_EXITS = """
    SELECT archive, container_id, arg_max(exit_code, seq) AS exit_code,
        COUNT(*) FILTER (WHERE event_type = 'container_oom') AS ooms
    FROM event WHERE container_id IS NOT NULL AND COALESCE(subject, 'container') = 'container'
    GROUP BY archive, container_id"""

_CONTAINER_COLUMNS = {
    "user": "user_name",
    "first": "first_time",
    "last": "last_time",
    "observed_seconds": "recorded_seconds",
    "quota_cores": "cpu_limit_cores",
    "memory_bytes": "memory",
    "memory_charged_peak_bytes": "memory_charged_peak",
    "memory_limit_bytes": "memory_limit",
}


_REFUSED = f"""
    WITH {LIMIT_RISES}
    SELECT archive, container_id, MAX(processes_limit) AS processes_limit, SUM(pids_max_events) AS forks_refused
    FROM limit_rises GROUP BY archive, container_id"""  # noqa: S608


def query_containers(queries: Queries) -> dict[tuple[str, str], tuple[ContainerUse, float | None]]:
    """Every container, with the 95th percentile of how full its memory limit was."""
    key = ("archive", "container_id")
    queried = (_CONTAINER_MORE, _EXITS, _LIVES, _REFUSED)
    more, exits, lives, refused = (queries.by(key, query) for query in queried)
    return {
        name: (
            _container(
                {
                    **row,
                    **more.get(name, {}),
                    **lives.get(name, {}),
                    **exits.get(name, {}),
                    **refused.get(name, {}),
                }
            ),
            number(more.get(name, {}).get("limit_share")),
        )
        for name, row in queries.by(key, "SELECT * FROM container_usage").items()
    }


def _met_limit(row: Record) -> bool | None:
    """Whether a killed container ran into its own memory limit; None where its last figures are older than the kill.

    The row that counts a kill has the peak up to then. What only the engine told may have come after the last row. The
    kernel charges pages in batches, so the limit itself may not be met.
    """
    peak, limit = row["memory_charged_peak"], row["memory_limit"]
    if limit is None:
        return False if row["memory_unlimited"] else None
    if peak is not None and peak >= 0.9 * limit:
        return True
    return False if peak is not None and row["oom_kills"] else None


def _container(row: Record) -> ContainerUse:
    kills, ooms = row["oom_kills"], row.get("ooms") or 0
    if row["network_shared"]:
        row = {**row, "received_bytes": None, "sent_bytes": None}
    met = _met_limit(row) if kills or ooms else None
    runtime = row.get("runtime_seconds")
    if runtime is None:
        # Older records do not tell the starts and ends of lives.
        runtime = (row["last_time"] - (row["started"] or row["first_time"])).total_seconds()
    return struct_of(
        ContainerUse,
        row,
        _CONTAINER_COLUMNS,
        runtime_seconds=runtime,
        killed_below_limit=met is False,
        killed_at_limit=met is True,
        cpu_is_lower_bound=row["cpu_seconds_high"] is not None,
        oom_kills=None if kills is None and not ooms else max(int(kills or 0), ooms),
    )


_GPU = f"""
    SELECT archive, gpu_uuid AS gpu, MAX(parent_uuid) AS parent, MAX(gpu_index) AS index, COUNT(*) AS samples,
        SUM(seen_seconds) AS observed_seconds, {use_columns("gpu_util", "gpu_util", "seen_seconds")},
        {use_columns("memory_used", "memory_bytes", "seen_seconds")},
        {use_columns("watts", "power_watts", "seen_seconds")},
        {use_columns("temperature", "temperature", "seen_seconds")}, MAX(memory_total) AS memory_total_bytes,
        SUM(gpu_util / 100 * seen_seconds) AS gpu_seconds, COUNT(error) AS errors
    FROM gpu_rates GROUP BY archive, gpu_uuid ORDER BY archive, index, gpu_uuid"""  # noqa: S608

_GPU_TROUBLES = """
    SELECT archive, gpu_uuid, COUNT(*) AS times FROM event
    WHERE event_type IN ('gpu_xid', 'gpu_lost') GROUP BY ALL"""


# The driver of a part of a card (vGPU) names no process, and descriptors of others are read with rights alone. A sample
# in which a process has just gone says nothing.
VEILED_GPUS = f"""
    SELECT archive FROM gap WHERE collector = 'gpu' AND reason LIKE '%permission'
    UNION
    SELECT archive FROM gpu AS g
    LEFT JOIN (SELECT DISTINCT archive, run, seq, gpu_uuid, 1 AS named FROM gpu_process) AS p
        USING (archive, run, seq, gpu_uuid)
    WHERE (gpu_util >= 5 OR memory_used >= {2**30})
        AND gpu_uuid NOT IN (SELECT parent_uuid FROM gpu WHERE parent_uuid IS NOT NULL)
    GROUP BY archive, gpu_uuid HAVING COUNT(*) - COUNT(named) > 0.05 * COUNT(*)"""  # noqa: S608


def query_gpus(queries: Queries) -> list[GpuUse]:
    troubles = queries.by(("archive", "gpu_uuid"), _GPU_TROUBLES)
    told = queries.rows("SELECT cards FROM latest_sysinfo")
    cards = [card for row in told for card in row["cards"] or []]
    models = {card["gpu_uuid"]: card["model"] for card in cards if card.get("model")}
    found = [struct_of(GpuUse, row, model=models.get(row["gpu"])) for row in queries.rows(_GPU)]
    for gpu in found:
        gpu.errors = max(gpu.errors, troubles.get((gpu.archive, gpu.gpu), {}).get("times", 0))
    return found
