"""The receiving half: what a fleet of machines sends, taken in, kept and watched in one folder.

Comes in: bundles and increments from folders, buckets and uploads, records from Kafka. Goes out: ordinary archives,
one per machine, with what the machine said of its own history beside them as evidence; and receipts. Everything goes
through `intake.Intake`, which verifies first and acknowledges last. Several processes may work on one fleet. Imports
config, forward (the receiver's settings) and both other packages; nothing of the recorder.
"""

__all__ = [
    "collector", "evidence", "holdings", "hooks", "intake", "kafka", "machines", "refusals", "sources", "store",
    "stream", "upkeep", "watch",
]  # fmt: skip
