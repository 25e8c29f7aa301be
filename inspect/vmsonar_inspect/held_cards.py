"""What each job used of each card at each sample, as a common table for queries."""

# The driver names no use of a process that was idle (nvmlDeviceGetProcessUtilization): then the card tells, if it was
# idle itself or one job alone held it. Otherwise nobody knows.
HELD_CARDS = """
    held AS (
        SELECT archive, boot, run, seq, pgid, gpu_uuid, MIN(time) AS time, SUM(gpu_util) AS util,
            SUM(memory_used) AS memory, COUNT(*) OVER (PARTITION BY archive, run, seq, gpu_uuid) AS jobs
        FROM gpu_process GROUP BY archive, boot, run, seq, pgid, gpu_uuid
    ),
    held_cards AS (
        SELECT h.archive, h.boot, h.run, h.seq, h.pgid, h.gpu_uuid, h.time, h.memory,
            CASE
                WHEN h.util > 100 THEN 100
                WHEN h.util IS NOT NULL THEN h.util
                WHEN c.gpu_util = 0 OR h.jobs = 1 THEN c.gpu_util
            END AS util
        FROM held AS h
        LEFT JOIN gpu AS c
            ON h.archive = c.archive AND h.run = c.run AND h.seq = c.seq AND h.gpu_uuid = c.gpu_uuid
    )"""
