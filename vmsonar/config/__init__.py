"""The configuration: Structs that define it, the strict reader of its file, quantities as people write them.

Comes in: YAML. Goes out: a validated Config, or an error that names the key. Imports host.
"""

__all__ = ["errors", "file", "quantities", "schema", "shipping"]
