"""What sacct says of a job or a step, as a row (sacct(1))."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO

from vmsonar_archive.records import BatchJobRow

#: What is asked for, as far as the release knows it.
FIELDS = (
    "JobIDRaw", "JobID", "Cluster", "JobName", "State", "User", "Account", "WCKey", "QOS", "Partition", "Reservation",
    "NodeList", "Priority", "Layout", "Submit", "Start", "End", "Suspended", "ElapsedRaw", "TimelimitRaw", "ExitCode",
    "ReqCPUS", "ReqNodes", "ReqTRES", "AllocTRES", "NTasks", "UserCPU", "SystemCPU", "AveCPU", "MinCPU", "MaxRSS",
    "AveRSS", "MaxVMSize", "AveVMSize", "AveDiskRead", "AveDiskWrite",
)  # fmt: skip
#: Fields whose text is taken over as it is.
_TEXTS = {
    "Cluster": "cluster_name", "JobName": "job_name", "User": "user_name", "Account": "account", "WCKey": "project",
    "QOS": "qos", "Partition": "partition_name", "Reservation": "reservation",
    "Layout": "distribution", "ReqTRES": "requested_resources", "AllocTRES": "allocated_resources",
}  # fmt: skip
_TIMES = {"Submit": "submit_time", "Start": "start_time", "End": "end_time"}
_SPANS = {"Suspended": "suspended_time", "UserCPU": "user_time", "SystemCPU": "system_time",
          "AveCPU": "mean_cpu_time", "MinCPU": "least_cpu_time"}  # fmt: skip
_COUNTS = {
    "Priority": "priority",
    "ReqCPUS": "requested_cpus",
    "ReqNodes": "requested_nodes",
    "NTasks": "tasks",
}
_SIZES = {"MaxRSS": "memory_peak", "AveRSS": "mean_memory", "MaxVMSize": "virtual_peak", "AveVMSize": "mean_virtual",
          "AveDiskRead": "mean_read_bytes", "AveDiskWrite": "mean_write_bytes"}  # fmt: skip
_RESOURCES = {"cpu": "cpus", "node": "nodes", "mem": "memory", "gres/gpu": "gpus"}

_LONGEST = 1024
# A list of nodes that is cut would name others: a longer one is not told.
_LONGEST_LIST = 64 * 1024
_JOB = re.compile(r"([0-9]{1,10})(?:\+[0-9]+)?(?:\.([0-9A-Za-z_+]{1,24}))?")
_PLACE = re.compile(r"([0-9]{1,10})(?:_(?:([0-9]{1,10})|\[.*\])|\+([0-9]{1,6}))?(?:\..*)?", re.DOTALL)
_SPAN = re.compile(r"(?:(?:([0-9]{1,6})-)?([0-9]{1,2}):)?([0-9]{1,4}):([0-9]{1,2})(?:\.[0-9]+)?")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)([KMGTP]?)[nc]?")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNSAID = {"", "Unknown", "None", "None assigned", "UNLIMITED", "Partition_Limit", "INVALID"}
_CHUNK = 256 * 1024
# A field that is longer ends the answer: it is no field of Slurm's.
_MOST_FIELD = 1024 * 1024


class NotSacct(Exception):
    """The answer is not what sacct says."""


def records(said: IO[bytes], delimiter: str, width: int) -> Iterator[list[str]]:
    """The values of each line of an answer in which every field ends in the delimiter.

    A name may hold line feeds and whatever else its user likes, but not the delimiter, which nobody could know.
    """
    mark, rest, values = delimiter.encode(), b"", list[str]()
    while chunk := said.read(_CHUNK):
        *ends, rest = (rest + chunk).split(mark)
        for end in ends:
            text = end.decode("utf-8", "replace")
            values.append(text if values else text.removeprefix("\n"))
            if len(values) == width:
                yield values
                values = []
        if len(rest) > _MOST_FIELD:
            break
    if rest.strip() or values:
        raise NotSacct("sacct says what is not a table of its fields")


def job_row(told: dict[str, str]) -> BatchJobRow | None:
    """The row; None for a line that names no job."""
    match = _JOB.fullmatch(told.get("JobIDRaw", ""))
    if match is None:
        return None
    row = BatchJobRow(batch_job=match[1], batch_step=match[2])
    row.job_state = _known(told.get("State", "")).partition(" ")[0][:32] or None
    for parse, names in (
        (_text, _TEXTS),
        (_time, _TIMES),
        (_span, _SPANS),
        (_count, _COUNTS),
        (_size, _SIZES),
    ):
        for field, name in names.items():
            setattr(row, name, parse(told.get(field, "")))
    nodes = _known(told.get("NodeList", ""))
    row.node_names = nodes if 0 < len(nodes) <= _LONGEST_LIST else None
    minutes = _count(told.get("TimelimitRaw", ""))
    row.time_limit = None if minutes is None else minutes * 60
    if row.end_time is not None:
        row.elapsed_time = _count(told.get("ElapsedRaw", ""))
        code, _, number = told.get("ExitCode", "").partition(":")
        row.exit_code, row.exit_signal = _count(code), _count(number) or None
    _place(row, told.get("JobID", ""))
    for field, when in (("ReqTRES", "requested"), ("AllocTRES", "allocated")):
        _resources(row, told.get(field, ""), when)
    return row


def _place(row: BatchJobRow, text: str) -> None:
    """Array and heterogeneous jobs have a second number, of their place in the whole."""
    match = _PLACE.fullmatch(text)
    if match is None:
        return
    if "_" in text:
        row.array_job, row.array_task = match[1], _count(match[2] or "")
    elif match[3] is not None:
        row.het_job, row.het_offset = match[1], int(match[3])


def _resources(row: BatchJobRow, text: str, when: str) -> None:
    """`billing=2,cpu=2,gres/gpu=1,gres/gpu:a100=1,mem=400M,node=1`; GPUs by type where there is no sum."""
    by_type = 0
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key in _RESOURCES and f"{when}_{_RESOURCES[key]}" in BatchJobRow.__struct_fields__:
            setattr(row, f"{when}_{_RESOURCES[key]}", _size(value) if key == "mem" else _count(value))
        elif key.startswith("gres/gpu:"):
            by_type += _count(value) or 0
    name = f"{when}_gpus"
    if getattr(row, name) is None and by_type:
        setattr(row, name, by_type)


def _known(text: str) -> str:
    return "" if text in _UNSAID else text


def _text(text: str) -> str | None:
    return _known(text)[:_LONGEST] or None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _time(text: str) -> datetime | None:
    seconds = _count(text)
    return datetime.fromtimestamp(seconds, UTC) if seconds and seconds < 2**36 else None


def _span(text: str) -> int | None:
    """`[DD-]HH:MM:SS` or `MM:SS.mmm`, in whole seconds, rounded."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    rest = text.partition(".")[2]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds + (1 if rest[:1] >= "5" else 0)


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else round(float(match[1]) * 1024 ** _POWERS[match[2]])
