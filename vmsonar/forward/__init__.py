"""Sends the records of an archive to Kafka or an HTTP endpoint: the archive is the queue.

Comes in: an archive that is being written, a cursor. Goes out: messages; the cursor follows what was acknowledged.
Imports daemon's log and signals, config, host.
"""

__all__ = ["messages", "plan", "run", "settings", "state"]
