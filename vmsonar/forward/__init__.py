"""Sends the records of an archive to a broker or an HTTP endpoint: the archive is the queue."""
