"""Processes and jobs: who runs, what they use, and what became of those who ended.

Comes in: /proc/PID through kept descriptors. Goes out: process, process_info, job and job_info rows, and the facts
other collectors need. The hot path: every microsecond is paid per process and sample.
"""

__all__ = ["collector", "command"]
