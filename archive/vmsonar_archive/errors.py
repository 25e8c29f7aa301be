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


def cannot_open(path: object, error: OSError) -> VmsonarError:
    """The error of a path that is there, but not for us."""
    remedy = ": ask as root, as its owner, or in its group" if isinstance(error, PermissionError) else ""
    return VmsonarError(f"cannot open {path}: {error.strerror}{remedy}")


def reason_of(error: OSError | UnicodeDecodeError) -> str:
    """Why a text could not be read, without the path that the sentence around it names."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def missing_extra(extra: str, needed_for: str) -> VmsonarError:
    """The error of a command whose optional dependency is not installed."""
    return VmsonarError(f"{needed_for} needs an extra that is not installed: pip install 'vmsonar[{extra}]'")
