"""Errors that are answers: each carries its exit code and one sentence saying what, where and what to do."""

from enum import IntEnum

import msgspec

#: What decoding JSON that somebody else wrote can raise.
NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Exit(IntEnum):
    """What the shell is told."""

    OK = 0
    NO = 1
    USAGE = 2
    CANNOT = 3


class VmsonarError(Exception):
    """A failure to be told in one line, without a traceback."""

    exit_code = Exit.CANNOT


class UsageError(VmsonarError):
    """The request itself makes no sense."""

    exit_code = Exit.USAGE


class AnswerIsNo(VmsonarError):
    """The question was answered, and the answer is no."""

    exit_code = Exit.NO


class FormatError(VmsonarError):
    """Something that is not, or not yet, a format we read."""

    exit_code = Exit.CANNOT


class Locked(VmsonarError):
    """Another writer holds the archive."""


def missing_extra(extra: str, needed_for: str) -> VmsonarError:
    """The error of a command whose optional dependency is not installed."""
    return VmsonarError(f"{needed_for} needs an extra that is not installed: pip install 'vmsonar[{extra}]'")
