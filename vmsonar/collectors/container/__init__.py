"""Containers: numbers from control groups, names and events from the companion that asks the engine.

Comes in: cgroup files of v1 and v2, and lines from the companion. Goes out: container and container_info rows and
events.
"""

__all__ = ["cgroup", "collector", "wire"]
