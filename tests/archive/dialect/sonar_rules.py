"""What Sonar's consumers take, written from its format's description alone; shares no code with the converter."""

import json
import re
from typing import Any

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)")
U, P, F, S, N, T, B = "unsigned", "positive", "float", "string", "integer", "time", "bool"

# name: (type, required); a dict is an object, a one-element list an array of its element.
GPU_USE = {
    "index": (U, True), "uuid": (S, True), "gpu_util": (F, False), "gpu_memory": (U, False),
    "gpu_memory_util": (F, False),
}  # fmt: skip
PROCESS = {
    "pid": (U, True), "ppid": (U, False), "cmd": (S, False), "resident_memory": (U, False),
    "virtual_memory": (U, False), "num_threads": (U, False), "cpu_avg": (F, False), "cpu_util": (F, False),
    "cpu_time": (U, False), "data_read": (U, False), "data_written": (U, False), "data_cancelled": (U, False),
    "in_container": (B, False), "rolledup": (N, False), "gpus": ([GPU_USE], False),
}  # fmt: skip
JOB = {"job": (U, True), "user": (S, True), "epoch": (U, True), "processes": ([PROCESS], False)}
GPU = {
    "index": (U, True), "uuid": (S, True), "failing": (U, False), "fan": (U, False), "compute_mode": (S, False),
    "performance_state": (U, False), "memory": (U, False), "ce_util": (U, False), "memory_util": (U, False),
    "temperature": (N, False), "power": (U, False), "power_limit": (U, False), "ce_clock": (U, False),
    "memory_clock": (U, False),
}  # fmt: skip
DISK = {"name": (S, True), "major": (U, True), "minor": (U, True), "stats": ([U], True)}
SYSTEM = {
    "boot": (T, True), "cpus": ([U], False), "gpus": ([GPU], False), "disks": ([DISK], False),
    "used_memory": (U, False), "load1": (F, False), "load5": (F, False), "load15": (F, False),
    "runnable_entities": (U, False), "existing_entities": (U, False),
}  # fmt: skip
ERROR = {"time": (T, True), "detail": (S, True), "cluster": (S, True), "node": (S, True)}
HEAD = {"time": (T, True), "cluster": (S, True), "node": (S, True)}
SAMPLE = {**HEAD, "system": (SYSTEM, True), "jobs": ([JOB], False), "errors": ([ERROR], False)}
CARD = {
    "index": (U, True), "uuid": (S, False), "address": (S, False), "manufacturer": (S, False), "model": (S, False),
    "architecture": (S, False), "driver": (S, False), "firmware": (S, False), "memory": (U, False),
    "power_limit": (U, False), "max_power_limit": (U, False), "min_power_limit": (U, False),
    "max_ce_clock": (U, False), "max_memory_clock": (U, False),
}  # fmt: skip
SYSINFO = {
    **HEAD, "os_name": (S, True), "os_release": (S, True), "architecture": (S, True), "cpu_model": (S, True),
    "numa_nodes": (P, True), "sockets": (P, True), "cores_per_socket": (P, True), "threads_per_core": (P, True),
    "memory": (P, True),
    "distances": ([[U]], False), "cards": ([CARD], False),
}  # fmt: skip
KINDS = {"sample": SAMPLE, "sysinfo": SYSINFO}


def validate(message: bytes | str) -> dict[str, Any]:
    """The attributes of a message that every known consumer takes; raises AssertionError otherwise."""
    text = message.decode() if isinstance(message, bytes) else message
    assert "\n" not in text, "more than one line"
    whole = json.loads(text)
    assert set(whole) == {"meta", "data"}, set(whole)
    assert set(whole["meta"]) == {"producer", "version"}, whole["meta"]
    version = SEMVER.fullmatch(whole["meta"]["version"])
    assert version is not None, whole["meta"]
    assert tuple(map(int, version.groups())) >= (1, 0, 0), whole["meta"]
    assert set(whole["data"]) == {"type", "attributes"}
    check(whole["data"]["attributes"], KINDS[whole["data"]["type"]], whole["data"]["type"])
    return whole["data"]["attributes"]


def check(value: Any, rule: Any, where: str) -> None:
    if isinstance(rule, list):
        assert isinstance(value, list), where
        for number, element in enumerate(value):
            check(element, rule[0], f"{where}[{number}]")
    elif isinstance(rule, dict):
        assert isinstance(value, dict), where
        assert not set(value) - set(rule), f"{where}: unknown {set(value) - set(rule)}"
        for name, (kind, required) in rule.items():
            assert name in value or not required, f"{where}: no {name}"
            if name in value:
                check(value[name], kind, f"{where}.{name}")
    else:
        assert _is(value, rule), f"{where}: {value!r} is not {rule}"


def _is(value: Any, kind: str) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind in (U, N, P):
        return whole and (kind == N or value >= (1 if kind == P else 0))
    if kind == F:
        return (whole or isinstance(value, float)) and value >= 0
    if kind == T:
        return isinstance(value, str) and TIME.fullmatch(value) is not None
    return isinstance(value, bool) if kind == B else isinstance(value, str) and value != ""
