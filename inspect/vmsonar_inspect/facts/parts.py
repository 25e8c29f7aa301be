"""What containers and GPUs used."""

from typing import Any

from vmsonar_inspect.facts.model import ContainerUse, GpuUse
from vmsonar_inspect.facts.queries import Queries, Record, number, use_columns, use_of, weighted_mean, whole

# The shared rollup counts the container's working set; mean and throttling go by the same intervals.
_CONTAINER_MORE = f"""
    SELECT archive, container_id, {weighted_mean("COALESCE(memory_working, memory_used)")} AS memory_mean,
        SUM(COALESCE(memory_working, memory_used) * interval_seconds) AS memory_byte_seconds,
        {weighted_mean("throttled_share")} AS throttled_share,
        quantile_cont(memory_used / NULLIF(memory_limit, 0), 0.95) AS limit_share
    FROM container_rates GROUP BY archive, container_id"""  # noqa: S608

_EXITS = """
    SELECT archive, container_id, arg_max(exit_code, seq) AS exit_code,
        COUNT(*) FILTER (WHERE event_type = 'container_oom') AS ooms
    FROM event WHERE container_id IS NOT NULL GROUP BY archive, container_id"""


def query_containers(queries: Queries) -> dict[tuple[str, str], tuple[ContainerUse, float | None]]:
    """Every container, with the 95th percentile of how full its memory limit was."""
    more = {(row["archive"], row["container_id"]): row for row in queries.rows(_CONTAINER_MORE)}
    exits = {(row["archive"], row["container_id"]): row for row in queries.rows(_EXITS)}
    found = {}
    for row in queries.rows("SELECT * FROM container_usage"):
        key = row["archive"], row["container_id"]
        extra = more.get(key, {})
        found[key] = _container(row, extra, exits.get(key, {})), number(extra.get("limit_share"))
    return found


def _container(row: Record, more: Record, end: Record) -> ContainerUse:
    kills = max(whole(row["oom_kills"]) or 0, end.get("ooms") or 0)
    seen = row["oom_kills"] is not None or bool(end.get("ooms"))
    shared = bool(row["network_shared"])
    return ContainerUse(
        container_id=row["container_id"],
        archive=row["archive"],
        name=row["name"],
        image=row["image"],
        engine=row["engine"],
        user=row["user_name"],
        compose_project=row["compose_project"],
        compose_service=row["compose_service"],
        first=row["first_time"],
        last=row["last_time"],
        runtime_seconds=(row["last_time"] - (row["started"] or row["first_time"])).total_seconds(),
        observed_seconds=number(row["recorded_seconds"]),
        samples=row["samples"],
        cpu_seconds=number(row["cpu_seconds"]),
        cores=use_of(row, "cores"),
        quota_cores=number(row["cpu_limit_cores"]),
        throttled_share=number(more.get("throttled_share")),
        memory_bytes=use_of({**row, "memory_mean": more.get("memory_mean")}, "memory"),
        memory_byte_seconds=number(more.get("memory_byte_seconds")),
        memory_limit_bytes=whole(row["memory_limit"]),
        oom_kills=kills if seen else None,
        exit_code=whole(end.get("exit_code")),
        read_bytes=number(row["read_bytes"]),
        write_bytes=number(row["write_bytes"]),
        received_bytes=None if shared else number(row["received_bytes"]),
        sent_bytes=None if shared else number(row["sent_bytes"]),
    )


_GPU = f"""
    SELECT archive, gpu_uuid, MAX(parent_uuid) AS parent_uuid, MAX(gpu_index) AS gpu_index, COUNT(*) AS samples,
        SUM(seen_seconds) AS seconds,
        {use_columns("gpu_util", "util", "seen_seconds")}, {use_columns("memory_used", "memory", "seen_seconds")},
        {use_columns("watts", "power", "seen_seconds")}, {use_columns("temperature", "temperature", "seen_seconds")},
        MAX(memory_total) AS memory_total, SUM(gpu_util / 100 * seen_seconds) AS gpu_seconds, COUNT(error) AS errors
    FROM gpu_rates GROUP BY archive, gpu_uuid ORDER BY archive, gpu_index, gpu_uuid"""  # noqa: S608


def query_gpus(queries: Queries) -> list[GpuUse]:
    """Every GPU."""
    troubles = {
        (row["archive"], row["gpu_uuid"]): row["times"]
        for row in queries.rows(
            "SELECT archive, gpu_uuid, COUNT(*) AS times FROM event "
            "WHERE event_type IN ('gpu_xid', 'gpu_lost') GROUP BY ALL"
        )
    }
    models = _models(queries)
    return [_gpu(row, models, troubles) for row in queries.rows(_GPU)]


def _models(queries: Queries) -> dict[str, str]:
    cards: list[Any] = [
        card for row in queries.rows("SELECT cards FROM latest_sysinfo") for card in row["cards"] or []
    ]
    return {card["gpu_uuid"]: card["model"] for card in cards if card.get("model")}


def _gpu(row: Record, models: dict[str, str], troubles: dict[tuple[str, str], int]) -> GpuUse:
    return GpuUse(
        gpu=row["gpu_uuid"],
        parent=row["parent_uuid"],
        archive=row["archive"],
        index=whole(row["gpu_index"]),
        model=models.get(row["gpu_uuid"]),
        samples=row["samples"],
        observed_seconds=number(row["seconds"]),
        gpu_util=use_of(row, "util"),
        gpu_seconds=number(row["gpu_seconds"]),
        memory_bytes=use_of(row, "memory"),
        memory_total_bytes=whole(row["memory_total"]),
        power_watts=use_of(row, "power"),
        temperature=use_of(row, "temperature"),
        errors=max(row["errors"], troubles.get((row["archive"], row["gpu_uuid"]), 0)),
    )
