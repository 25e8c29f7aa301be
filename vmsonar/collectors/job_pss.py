"""Asks the kernel what forks still share (Pss_Anon of proc_pid_smaps_rollup(5)), where we may, and rarely.

The kernel walks every page of the process for it, so it is asked only of jobs with large forks, when their memory
or their number changed, and within a budget of memory walked.
"""

import re
from collections.abc import Callable

from vmsonar.collectors.job import Job
from vmsonar.collectors.job_memory import SMALL, family
from vmsonar.collectors.process_entry import Process

#: Resident bytes that may be walked per second on the average, and at once; a GiB takes about 4 ms.
RATE = 128 << 20
BURST = 4 << 30

#: An answer is believed so long, in nanoseconds, if nothing else changed.
PATIENCE = 60 * 10**9

_PSS_ANON = re.compile(rb"^Pss_Anon:\s*(\d+) kB$", re.MULTILINE)


class PssReader:
    """Keeps the shares of forked members up to date."""

    def __init__(self, smaps_rollup: Callable[[Process], bytes | None]) -> None:
        self._read = smaps_rollup
        self._allowance = BURST
        self._filled = 0

    def refresh(self, job: Job, now: int) -> None:
        """Reads the members that may share memory, if that is due and can be afforded."""
        if not job.forks or len(job.members) == 1:
            return
        members = family(job.members, job.forks)
        if not self._is_due(job, members, now):
            return
        cost = sum([member.resident for member in members])
        if not self._can_afford(cost, now):
            return
        job.pss_asked = now
        job.pss_members = len(members)
        for member in members:
            text = self._read(member)
            match = _PSS_ANON.search(text) if text else None
            member.pss_private = int(match[1]) * 1024 if match else None
            member.pss_at = member.anonymous
            if match is None:
                break  # one that we may not read spoils the sum: the others would be read in vain

    def _is_due(self, job: Job, members: list[Process], now: int) -> bool:
        if now - job.pss_asked >= PATIENCE or len(members) != job.pss_members:
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
