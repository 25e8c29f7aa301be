"""Units that are no containers: services, Slurm jobs and steps, sessions, scopes and pods, by their control groups."""

from datetime import datetime
from typing import Annotated

from vmsonar_archive.records.fields import about

from vmsonar_inspect.facts.fields import titled
from vmsonar_inspect.facts.quantities import (
    BUSY,
    BYTES,
    CHOICE,
    CORES,
    COUNT,
    NOTHING,
    SECONDS,
    SHARE,
    TEXT,
    TIME,
    AnswerPart,
    Use,
)
from vmsonar_inspect.facts.queries import Queries, Record, struct_of, use_columns, weighted_mean

_CONTAINED = about("a batch job's row contains its steps: do not add both up")


class UnitUse(AnswerPart):
    """What one unit used, as its control group counted."""

    unit: Annotated[str, TEXT, titled("unit"), _CONTAINED]
    archive: str | None = None
    hostname: Annotated[str | None, TEXT, titled("machine")] = None
    cgroup: Annotated[str, TEXT, titled("control group"), about("its path")] = ""
    cgroup_kind: Annotated[str, CHOICE, titled("kind"), about("slurm, service, session, scope or pod")] = ""
    batch_job: str | None = None
    batch_step: str | None = None
    first: Annotated[datetime | None, TIME, titled("from")] = None
    last: Annotated[datetime | None, TIME] = None
    seconds: Annotated[float | None, SECONDS, titled("seen for")] = None
    cpu_seconds: Annotated[float | None, BUSY, titled("CPU time")] = None
    cores: Annotated[Use, CORES, titled("cores")] = NOTHING
    throttled_share: Annotated[float | None, SHARE, titled("throttled"), about("of its periods, mean")] = None
    memory_bytes: Annotated[Use, BYTES, titled("memory"), about("without cache that can be dropped")] = (
        NOTHING
    )
    memory_charged_peak_bytes: Annotated[
        float | None, BYTES, titled("memory charged"), about("highest, page cache included")
    ] = None
    memory_limit_bytes: Annotated[float | None, BYTES, titled("limit")] = None
    swap_peak_bytes: Annotated[float | None, BYTES, titled("swap")] = None
    swap_limit_bytes: Annotated[float | None, BYTES, titled("swap limit")] = None
    tasks_peak: Annotated[int | None, COUNT, titled("tasks")] = None
    oom_kills: Annotated[int | None, COUNT, titled("OOM kills")] = None
    read_bytes: Annotated[float | None, BYTES, titled("read")] = None
    write_bytes: Annotated[float | None, BYTES, titled("written")] = None
    pressure_cpu: Annotated[float | None, SHARE, titled("waited for CPU")] = None
    pressure_memory: Annotated[float | None, SHARE, titled("waited for memory")] = None
    pressure_io: Annotated[float | None, SHARE, titled("waited for I/O")] = None

    @property
    def met_limit(self) -> bool:
        """Whether it had as much memory as it may have; the kernel charges pages in batches."""
        limit = self.memory_limit_bytes
        return limit is not None and (self.memory_charged_peak_bytes or 0) >= 0.95 * limit


_UNITS = f"""
    SELECT archive, cgroup, cgroup_kind, MAX(unit_name) AS unit_name, MIN(batch_job) AS batch_job,
        MAX(batch_step) AS batch_step, MIN(time) AS first, MAX(time) AS last, SUM(interval_seconds) AS seconds,
        SUM(cpu_seconds) AS cpu_seconds, {use_columns("cpu_cores", "cores")},
        {use_columns("memory_working", "memory_bytes")}, {weighted_mean("throttled_share")} AS throttled_share,
        MAX(memory_charged_peak) AS memory_charged_peak_bytes, MAX(memory_limit) AS memory_limit_bytes,
        MAX(swap_used) AS swap_peak_bytes, MAX(swap_limit) AS swap_limit_bytes, MAX(processes) AS tasks_peak,
        SUM(oom_kills) AS oom_kills,
        SUM(read_bytes) AS read_bytes, SUM(write_bytes) AS write_bytes,
        {weighted_mean("cpu_some_share")} AS pressure_cpu, {weighted_mean("memory_some_share")} AS pressure_memory,
        {weighted_mean("io_some_share")} AS pressure_io
    FROM cgroup_rates GROUP BY archive, boot, cgroup, cgroup_kind
    ORDER BY archive, cpu_seconds DESC NULLS LAST, cgroup"""  # noqa: S608


def query_units(queries: Queries) -> list[UnitUse]:
    """Every unit of each boot, most CPU time first."""
    return [struct_of(UnitUse, row, unit=_name(row)) for row in queries.rows(_UNITS)]


def _name(row: Record) -> str:
    if row["batch_job"] is None:
        return str(row["unit_name"] or row["cgroup"])
    return f"job {row['batch_job']}" + (f" step {row['batch_step']}" if row["batch_step"] else "")
