"""Errors that are answers: each carries its exit code and one sentence saying what, where and what to do."""

from enum import IntEnum
from typing import TYPE_CHECKING

#: What decoding JSON that somebody else wrote can raise.
NOT_JSON: tuple[type[Exception], type[RecursionError], type[UnicodeDecodeError]]

if not TYPE_CHECKING:

    def __getattr__(name):
        # Whoever decodes has msgspec loaded; a command of `vmsonar run` would wait 15 ms for it.
        if name != "NOT_JSON":
            raise AttributeError(name)
        import msgspec

        return msgspec.MsgspecError, RecursionError, UnicodeDecodeError


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    NO = 1
    USAGE = 2
    CANNOT = 3


class VmsonarError(Exception):
    """A failure that the user sees as one line, without a traceback."""

    exit_code = Exit.CANNOT


class UsageError(VmsonarError):
    """The request itself makes no sense."""

    exit_code = Exit.USAGE


class AnswerIsNo(VmsonarError):
    """The question was answered, and the answer is no."""

    exit_code = Exit.NO


class FormatError(VmsonarError):
    """Something that is not in a format we read."""


class NewerFormat(FormatError):
    """Something that a later version wrote."""

    @classmethod
    def at(cls, where: str, number: int, known: int) -> "NewerFormat":
        return cls(
            f"{where} is written in format {number}, this vmsonar reads up to {known}: install a newer vmsonar"
        )


class Locked(VmsonarError):
    """Another writer holds the archive."""


def cannot_open(path: object, error: OSError) -> VmsonarError:
    """The error of a path that is there, but not for us."""
    remedy = ": ask as root, as its owner, or in its group" if isinstance(error, PermissionError) else ""
    return VmsonarError(f"cannot open {path}: {error.strerror}{remedy}")


def reason_of(error: OSError | UnicodeDecodeError) -> str:
    """Why a text could not be read, without the path that the sentence around it names."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def way_to_add(extra: str) -> str:
    """The command that brings an extra, from wheels of our own: the name in a public index is not ours."""
    return f"pip install 'vmsonar[{extra}]' --no-index --find-links WHEELHOUSE"


def missing_extra(extra: str, needed_for: str) -> VmsonarError:
    """The error of a command whose optional dependency is not installed."""
    return VmsonarError(f"{needed_for} needs an extra that is not installed: {way_to_add(extra)}")
