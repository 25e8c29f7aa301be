"""The machine: what it is, what was covered, how busy it was."""

from typing import Any

from vmsonar_inspect.facts.model import Coverage, Machine, NodeUse
from vmsonar_inspect.facts.queries import Queries, Record, number, use_columns, use_of, weighted_mean, whole

_USES = {
    # Ticks and clocks of a short interval can show more than there is.
    "cores": "CASE WHEN cpu_busy_cores > cpus THEN cpus ELSE cpu_busy_cores END",
    "memory": "memory_used",
    "swap": "swap_used",
    "disk_read": "disk_read_bytes_per_second",
    "disk_write": "disk_write_bytes_per_second",
    "received": "net_received_bytes_per_second",
    "sent": "net_sent_bytes_per_second",
}
_MEANS = {
    "steal": "cpu_steal_cores / NULLIF(cpus, 0)",
    "pressure_cpu": "cpu_some_share",
    "pressure_memory": "memory_some_share",
    "pressure_io": "io_some_share",
    "forks": "forks_per_second",
    "swapping": "pages_swapped_in_per_second + pages_swapped_out_per_second",
    "faults": "major_faults_per_second",
}
_SUMS = {
    **{name: _USES[name] for name in ("disk_read", "disk_write", "received", "sent")},
    "cores": "cpu_busy_cores",
}


#: Fields of a machine that its sysinfo record has under the same name.
_AS_RECORDED = ("machine_id", "instance_id", "cloud_provider", "instance_type", "region", "virtualization", "os_name",
                "kernel_release", "cpu_model", "cpus", "vmsonar_version")  # fmt: skip


def query_machines(queries: Queries, sources: dict[str, str], hosts: dict[str, str | None]) -> list[Machine]:
    """Every machine of the archives that were given."""
    told = {row["archive"]: row for row in queries.rows("SELECT * FROM latest_sysinfo")}
    return [
        _machine(archive, source, hosts.get(archive), told.get(archive, {}))
        for archive, source in sources.items()
    ]


def _machine(archive: str, source: str, host: str | None, told: Record) -> Machine:
    cards: list[dict[str, Any]] = told.get("cards") or []
    return Machine(
        archive=archive,
        source=source,
        hostname=told.get("hostname_short") or host,
        memory_bytes=told.get("memory_total"),
        swap_bytes=told.get("swap_total"),
        gpus=sum(1 for card in cards if not card.get("parent_uuid")),
        gpu_models=sorted({str(card.get("model")) for card in cards if card.get("model")}),
        **{name: told.get(name) for name in _AS_RECORDED},
    )


def query_coverage(queries: Queries) -> dict[str, Coverage]:
    """What was recorded of each archive."""
    boots: dict[str, list[Record]] = {}
    for row in queries.rows("SELECT * FROM coverage ORDER BY first_time"):
        boots.setdefault(row["archive"], []).append(row)
    return {archive: _coverage(rows) for archive, rows in boots.items()}


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
        interval_seconds=number(max(boots, key=lambda row: row["samples"])["interval_seconds"]),
        boots=len(boots),
        runs=sum(row["runs"] for row in boots),
        holes=sum(row["gaps"] for row in boots) + len(boots) - 1,
    )


def query_node_use(queries: Queries) -> dict[str, NodeUse]:
    """How busy each machine was."""
    queries.require_node_steps()
    columns = [use_columns(column, name) for name, column in _USES.items()]
    columns.append(use_columns("tasks_runnable", "runnable"))
    columns += [f"{weighted_mean(column)} AS {name}" for name, column in _MEANS.items()]
    columns += [f"SUM({column} * interval_seconds) AS {name}_sum" for name, column in _SUMS.items()]
    rows = queries.rows(
        f"SELECT archive, MAX(cpus) AS cpus, MAX(memory_total) AS memory_total, SUM(oom_kills) AS oom_kills, "  # noqa: S608
        f"{', '.join(columns)} FROM node_steps GROUP BY archive"
    )
    cards = queries.by("archive", _CARDS) if queries.has("gpu") else {}
    found = {}
    for row in rows:
        name = row["archive"]
        found[name] = _node_use({**row, **cards.get(name, {})})
    return found


# All cards of a sample together, then over time; the parts of a divided card are in the card already.
_CARDS = f"""
    WITH samples_ AS (
        SELECT archive, run, seq, AVG(gpu_util) AS util, SUM(memory_used) AS memory,
            MAX(seen_seconds) AS interval_seconds
        FROM gpu_rates WHERE parent_uuid IS NULL GROUP BY archive, run, seq
    )
    SELECT archive, {use_columns("util", "gpu_util")}, {use_columns("memory", "gpu_memory")}
    FROM samples_ GROUP BY archive"""  # noqa: S608


def _node_use(row: Record) -> NodeUse:
    return NodeUse(
        cores=use_of(row, "cores"),
        memory_bytes=use_of(row, "memory"),
        swap_bytes=use_of(row, "swap"),
        disk_read_rate=use_of(row, "disk_read"),
        disk_write_rate=use_of(row, "disk_write"),
        received_rate=use_of(row, "received"),
        sent_rate=use_of(row, "sent"),
        runnable=use_of(row, "runnable"),
        gpu_util=use_of(row, "gpu_util"),
        gpu_memory_bytes=use_of(row, "gpu_memory"),
        cpus=whole(row["cpus"]),
        memory_total_bytes=whole(row["memory_total"]),
        cpu_seconds=number(row["cores_sum"]),
        steal_share=number(row["steal"]),
        pressure_cpu=number(row["pressure_cpu"]),
        pressure_memory=number(row["pressure_memory"]),
        pressure_io=number(row["pressure_io"]),
        forks_per_second=number(row["forks"]),
        swap_rate=number(row["swapping"]),
        major_faults_per_second=number(row["faults"]),
        oom_kills=whole(row["oom_kills"]),
        disk_read_bytes=number(row["disk_read_sum"]),
        disk_write_bytes=number(row["disk_write_sum"]),
        received_bytes=number(row["received_sum"]),
        sent_bytes=number(row["sent_sum"]),
    )
