"""The recorder: ticks, the session of one configuration, samples under guards, signals, sd_notify.

Comes in: a configuration and the clock. Goes out: samples in an archive. Never imports pyarrow, duckdb, rich, typer
or confluent_kafka. Imports collectors, config and host.
"""

__all__ = [
    "log",
    "notify",
    "once",
    "options",
    "run_folders",
    "sampler",
    "session",
    "signals",
    "supervisor",
    "sysinfo",
]
