"""Asks the kernel what the members of a job share (proc_pid_smaps_rollup(5))."""

import re
from collections.abc import Callable

from vmsonar.collectors.process.memory import SMALL, JobMemory
from vmsonar.collectors.process.model import Job, Process

#: Resident bytes that may be walked per second on the average, and at once; a GiB takes about 4 ms.
RATE = 128 << 20
BURST = 4 << 30

#: Nanoseconds for which an answer is trusted if nothing else changed.
PATIENCE = 60 * 10**9

_PSS_ANON = re.compile(rb"^Pss_Anon:\s*(\d+) kB$", re.MULTILINE)


class MemoryReader:
    """Keeps the shares of forked members up to date (Pss_Anon of proc_pid_smaps_rollup(5))."""

    def __init__(self, smaps_rollup: Callable[[Process], bytes | None]) -> None:
        self._read = smaps_rollup
        self._allowance = BURST
        self._filled = 0

    def refresh(self, job: Job, now: int) -> None:
        """Reads the members that may share memory, if that is due and can be afforded."""
        memory = job.memory
        if not memory.forks or len(memory.members) == 1:
            return
        family = memory.family()
        members = [member for member in job.members if member in family]
        if not self._is_due(memory, members, now):
            return
        cost = sum([member.resident for member in members])
        if not self._can_afford(cost, now):
            return
        memory.pss_asked = now
        memory.pss_members = len(members)
        for member in members:
            text = self._read(member)
            match = _PSS_ANON.search(text) if text else None
            member.pss_private = int(match[1]) * 1024 if match else None
            member.pss_at = member.anonymous
            if match is None:
                break  # one that we may not read spoils the sum: the others would be read in vain

    def _is_due(self, memory: JobMemory, members: list[Process], now: int) -> bool:
        if now - memory.pss_asked >= PATIENCE or len(members) != memory.pss_members:
            return True
        if any(member.pss_private is None for member in members):
            return False  # denied; asked again when the minute is over
        return any(
            abs(member.anonymous - member.pss_at) > max(member.pss_at, SMALL) // 20 for member in members
        )

    def _can_afford(self, cost: int, now: int) -> bool:
        gained = (now - self._filled) * RATE // 10**9 if self._filled else 0
        self._allowance = min(BURST, self._allowance + gained)
        self._filled = now
        if cost > self._allowance:
            return False
        self._allowance -= cost
        return True
