"""Network file systems: what the client of each has counted, per mount.

Comes in: the table of mounts and the clients' files below /proc and /sys. Goes out: netfs rows and gap rows. No path on
a share is ever touched: a server that is gone would hold up whoever asks.
"""

__all__ = ["ceph", "cifs", "client", "collector", "lustre", "nfs"]
