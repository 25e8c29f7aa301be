"""Slurm's own records: what the companion asks it, as rows.

Comes in: plain rows from the companion's socket. Goes out: batch_job and cluster rows, and a gap row for each program
of Slurm that does not answer. Nothing here runs a program.
"""

__all__ = ["collector", "wire"]
