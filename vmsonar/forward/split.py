"""Divides a message that is too large by job; works on the encoded message, because it is needed so rarely."""

from collections.abc import Iterator
from typing import Any

import msgspec
from vmsonar_archive.lines import finish

#: Rows of a sample that belong to a job.
_OF_JOBS = ("gpu_process", "job", "job_info", "process", "process_info")
_encode = msgspec.json.Encoder().encode


def split_sonar(value: bytes, limit: int) -> list[bytes]:
    """The same sample in several messages with some of the jobs each; a part may be too large all the same."""
    whole = msgspec.json.decode(value)
    attributes = whole["data"]["attributes"]
    jobs = attributes.pop("jobs", [])
    if len(jobs) < 2:
        return [value]
    # The node's state stands in each, because readers demand it; they drop one of two for the same time.
    room = limit - len(_encode(whole)) - len(b',"jobs":[]')
    parts = []
    for number, group in enumerate(_packed([(job, len(_encode(job)) + 1) for job in jobs], room)):
        if number == 1:
            attributes.pop("errors", None)
        attributes["jobs"] = group
        parts.append(_encode(whole))
    return parts


def split_native(value: bytes, limit: int) -> list[bytes]:
    """The same sample in several messages: what belongs to no job stands in the first alone."""
    whole = msgspec.json.decode(value)
    whole.pop("crc", None)
    groups = _rows_by_job(whole)
    if not groups:
        return [value]
    stamp = {name: whole[name] for name in ("time", "seq", "run", "boot", "boottime")}
    rest = {name: rows for name, rows in whole.items() if name not in _OF_JOBS}
    sized = [(group, len(_encode(group))) for group in groups]
    room = limit - len(_encode(stamp)) - len(b',"crc":"01234567"')
    parts = [rest] if len(rest) > len(stamp) else []
    parts += [{**stamp, **_joined(some)} for some in _packed(sized, room)]
    return [finish(_encode(part)[:-1])[:-1] for part in parts] if len(parts) > 1 else [value]


def _rows_by_job(whole: dict[str, Any]) -> list[dict[str, list[Any]]]:
    """The rows of each process group, by kind."""
    group_of = {(row["pid"], row["start_ticks"]): row.get("pgid") for row in whole.get("process", ())}
    groups: dict[Any, dict[str, list[Any]]] = {}
    for kind in _OF_JOBS:
        for row in whole.get(kind, ()):
            group = row.get("pgid", group_of.get((row.get("pid"), row.get("start_ticks"))))
            groups.setdefault(group, {}).setdefault(kind, []).append(row)
    return list(groups.values())


def _joined(groups: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for group in groups:
        for kind, some in group.items():
            rows.setdefault(kind, []).extend(some)
    return rows


def _packed(sized: list[tuple[Any, int]], room: int) -> Iterator[list[Any]]:
    """Neighbours together as long as they fit; one that is too large stands alone."""
    group: list[Any] = []
    used = 0
    for item, size in sized:
        if group and used + size > room:
            yield group
            group, used = [], 0
        group.append(item)
        used += size
    if group:
        yield group
