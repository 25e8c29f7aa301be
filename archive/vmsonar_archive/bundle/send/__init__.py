"""Brings a planned bundle to where it goes: a file, a signed URL, S3.

Comes in: a plan whose bytes are hashed as they are copied. Goes out: the bytes, whole or not at all, and what the
other side confirmed.
"""

__all__ = ["delivery", "mint", "s3", "upload"]
