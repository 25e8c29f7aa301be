"""What a recorded tree holds, told in a form that can be kept and compared."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import vmsonar_inspect

# Sums that would move if a row, a unit or a reset were read differently.
QUERIES = {
    "node": "select count(*) as samples, max(memory_total) as memory from node",
    "process": "select count(*) as n, sum(user_ticks) as ticks, sum(resident) as resident from process",
    "jobs": "select job_id, user_name, round(cpu_seconds, 3) as cpu from job_usage order by job_id, user_name, cpu",
    "containers": "select name, round(cpu_seconds, 3) as cpu from container_usage order by all",
    "disk": "select device, sum(read_sectors) as sectors from disk group by device order by device",
    "machines": "select hostname_short, count(*) as n from sysinfo group by all order by all",
}


def lines_of(archive: Path) -> dict[str, str]:
    """Every record's number with the SHA-256 of its line, by kind of segment; with nothing but zstd's own tool."""
    told = {}
    for path in sorted(archive.glob("*/*/*/*.jsonl.zst")):
        done = subprocess.run(
            ["zstdcat", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        for line in done.stdout.split(b"\n")[:-1]:
            told[f"{path.name.partition('-')[0]} {json.loads(line)['seq']}"] = hashlib.sha256(
                line
            ).hexdigest()
    return told


def answers(source: Path) -> dict[str, Any]:
    """What SQL says of it."""
    with vmsonar_inspect.open_tables([str(source)]) as tables:
        return {name: tables.arrow(query).to_pylist() for name, query in QUERIES.items()}
