"""The life of a VM: installation, user-data, termination notices, and saving the archive before the VM is gone.

Comes in: configuration, notices of clouds. Goes out: units, user-data, delivered bundles. Imports forward and below.
"""

__all__ = ["cloud_init", "install", "notice", "step", "target", "teardown"]
