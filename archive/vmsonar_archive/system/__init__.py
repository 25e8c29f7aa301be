"""How we touch the system: errors with exit codes, durable files, rights, child processes, safe text, HTTPS.

Comes in: paths, bytes, addresses of strangers. Goes out: descriptors that follow no link, files that are durable,
one-line errors. Imports no other room.
"""

__all__ = ["children", "errors", "files", "moments", "progress", "rights", "text", "web"]
