"""Jobs and processes of a few samples, or none: ends, bounds, and time that cannot be told apart."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from vmsonar_archive.records import JobInfoRow, JobRow, ProcessInfoRow, ProcessRow

from tests.making.worlds import Machine

MIB = 2**20
ONCE, TWICE, BETWEEN, HASTY, OLD, YOUNG, FLAGGED, MOVED, RESOLVED, EARLIER = (10 * n for n in range(1, 11))
_ALIVE = {"processes": 2, "threads": 4}
_GONE = {"processes": 0, "threads": 0, "memory": 0, "resident": 0, "memory_source": "sum"}

Rows = dict[int, dict[str, Any]]


def _at(seconds: float) -> dict[str, int]:
    return {"end_boottime": round(seconds * 1e9)}


#: By process group its start in seconds after boot, and what its rows say at seconds after boot.
LIVES: dict[int, tuple[float, Rows]] = {
    ONCE: (112.5, {
        120: {**_ALIVE, "user_ticks": 700, "system_ticks": 50, "memory": 100 * MIB, "memory_source": "sum",
              "memory_peak": 120 * MIB, "memory_peak_low": 100 * MIB, "memory_peak_high": 160 * MIB,
              "memory_peak_source": "high_water", "cpu_source": "lifeline", "io_source": "samples"},
        130: {**_GONE, "user_ticks": 1000, "system_ticks": 100, "memory_peak": 128 * MIB,
              "memory_peak_low": 100 * MIB, "memory_peak_high": 192 * MIB, "memory_peak_source": "high_water",
              "memory_charged_peak": 300 * MIB, "cpu_source": "lifeline", "io_source": "samples", **_at(123.5)},
    }),
    TWICE: (115.0, {
        120: {**_ALIVE, "user_ticks": 500, "system_ticks": 0, "memory": 40 * MIB, "memory_source": "pss"},
        130: {**_ALIVE, "user_ticks": 1500, "system_ticks": 0, "memory": 60 * MIB, "memory_source": "estimate"},
        140: {**_GONE, "user_ticks": 1800, "system_ticks": 0},
    }),
    BETWEEN: (121.0, {
        130: {**_GONE, "user_ticks": 40, "system_ticks": 10, "memory_peak": 3072 * MIB,
              "memory_peak_source": "accounts", "cpu_source": "accounts", "io_source": "accounts",
              "read_bytes": 1000, "write_bytes": 5000, **_at(121.25)},
    }),
    HASTY: (119.9, {
        120: {**_ALIVE, "user_ticks": 80, "system_ticks": 0, "memory": MIB},
        130: {**_ALIVE, "user_ticks": 1080, "system_ticks": 0, "memory": MIB},
        140: {**_GONE, "user_ticks": 1200, "system_ticks": 0, **_at(130.01)},
    }),
    OLD: (50.0, {
        at: {**_ALIVE, "user_ticks": 1000 + 20 * (at - 110), "system_ticks": 0, "memory": MIB, "unattributed": True,
             "cpu_ticks_low": 900 + 16 * (at - 110), "cpu_ticks_high": 1200 + 26 * (at - 110)}
        for at in range(110, 170, 10)
    }),
    YOUNG: (125.0, {
        130: {**_ALIVE, "user_ticks": 100, "system_ticks": 0, "memory": MIB, "read_bytes": 50, "write_bytes": 100},
        140: {**_ALIVE, "user_ticks": 300, "system_ticks": 0, "memory": MIB, "unattributed": True, "cpu_ticks_low": 200,
              "cpu_ticks_high": 700, "read_bytes": 60, "write_bytes": 400, "io_partial": True,
              "write_bytes_low": 300, "write_bytes_high": 900, "cpu_source": "samples"},
        150: {**_GONE, "user_ticks": 400, "system_ticks": 0, "unattributed": True, "cpu_ticks_low": 300,
              "cpu_ticks_high": 800, "read_bytes": 60, "write_bytes": 500, "io_partial": True,
              "write_bytes_low": 400, "write_bytes_high": 1000, "cpu_source": "samples", **_at(145.0)},
    }),
    FLAGGED: (125.0, {
        130: {**_ALIVE, "user_ticks": 100, "system_ticks": 0, "memory": MIB, "memory_peak": 2 * MIB,
              "memory_peak_source": "sampled"},
        140: {**_ALIVE, "user_ticks": 200, "system_ticks": 0, "memory": MIB, "memory_peak": 2 * MIB,
              "memory_peak_source": "sampled", "unattributed": True},
    }),
    # A process that began before the record makes a group of its own: its totals count from there.
    MOVED: (60.0, {
        140: {**_ALIVE, "user_ticks": 400, "system_ticks": 0, "memory": MIB},
        150: {**_ALIVE, "user_ticks": 600, "system_ticks": 0, "memory": MIB},
    }),
    # What was in doubt before the record is settled in it.
    RESOLVED: (40.0, {
        110: {**_ALIVE, "user_ticks": 100, "system_ticks": 0, "unattributed": True, "cpu_ticks_high": 150},
        120: {**_ALIVE, "user_ticks": 160, "system_ticks": 0},
    }),
    # What is in doubt since before the record stays so; what was recorded is exact.
    EARLIER: (45.0, {
        at: {**_ALIVE, "user_ticks": 2 * at, "system_ticks": 0, "memory": MIB, "unattributed": True,
             "cpu_ticks_low": 2 * at, "cpu_ticks_high": 2 * at + 70, "io_partial": True, "read_bytes": 100 * at,
             "write_bytes": at, "read_bytes_low": 100 * at, "read_bytes_high": 100 * at + 500}
        for at in range(110, 170, 10)
    }),
}  # fmt: skip

#: Time of a user that cannot be told apart.
NOT_TOLD: Rows = {
    130: {"user_ticks": 300, "system_ticks": 0},
    140: {"user_ticks": 500, "system_ticks": 0},
}

#: A process: its own I/O and that of children it waited for.
PARENT: Rows = {
    120: {"read_bytes": 100, "write_bytes": 1000, "resident": 10 * MIB, "shared": 0,
          "user_ticks": 50, "system_ticks": 0},
    130: {"read_bytes": 500, "write_bytes": 9000, "child_read_bytes": 300, "child_write_bytes": 7000,
          "resident": 10 * MIB, "shared": 0, "resident_peak": 64 * MIB, "user_ticks": 60, "system_ticks": 0},
}  # fmt: skip


class Lives(Machine):
    """A machine with nothing but these."""

    def rows(self, fresh: bool) -> dict[str, list[Any]]:
        at = round(self.uptime)
        rows = {"node": super().rows(fresh)["node"]}
        rows |= {kind: [] for kind in ("job", "job_info", "process", "process_info")}
        for pgid, (start, told) in LIVES.items():
            if at in told:
                self._add(rows, pgid, round(start * 100), told[at], at == min(told), "anna")
        if at in NOT_TOLD:
            self._add(rows, 0, 1001, NOT_TOLD[at], at == min(NOT_TOLD), "anna", "no_group")
        if at in PARENT:
            rows["process"].append(ProcessRow(pid=7, start_ticks=11500, pgid=ONCE, **PARENT[at]))
            rows["process_info"].append(
                ProcessInfoRow(series_id=self.id(7), pid=7, start_ticks=11500, program="make")
            )
        return rows

    def id(self, number: int) -> str:
        return f"00000000-0000-4000-8000-{number:012}"

    def _add(
        self, rows: dict[str, list[Any]], pgid: int, start: int, told: dict[str, Any], first: bool, user: str,
        source: str = "process_group",
    ) -> None:  # fmt: skip
        rows["job"].append(JobRow(pgid=pgid, start_ticks=start, processes_seen=2, **told))
        if first:
            started = self.booted + timedelta(seconds=start / 100)
            named = {"user_id": 1001, "user_name": user, "started": started, "job_source": source}
            program = {} if source == "no_group" else {"program": "python3", "command": f"python3 {pgid}.py"}
            rows["job_info"].append(JobInfoRow(series_id=self.id(pgid), pgid=pgid, start_ticks=start,
                                               job_id=str(pgid), **named, **program))  # fmt: skip


def make_lives(root: Path, midnight: float | None = None) -> Path:
    """Records them; midnight falls on so many seconds after boot."""
    machine = Lives(root)
    if midnight is not None:
        machine.booted = datetime(2026, 11, 17, tzinfo=UTC) - timedelta(seconds=midnight)
    machine.start_daemon()
    machine.run(6)
    machine.stop_daemon()
    return root
