"""Rows about file systems: how much room is left on each (statvfs(3), proc_pid_mountinfo(5))."""

from typing import Annotated

from vmsonar_archive.records.fields import (
    Bytes,
    Choice,
    Count,
    Flag,
    Ident,
    Row,
    Sensitivity,
    Text,
    about,
)


class FilesystemRow(Row, kw_only=True):
    """One mounted file system; a row once a minute, at a change of a per cent, and while below a per cent."""

    device_major: Annotated[Ident, about("major number of its device; mountinfo")]
    device_minor: Annotated[Ident, about("minor number; mountinfo")]
    mount_point: Annotated[
        Text | None, about("where it is mounted, one place of several; mountinfo", Sensitivity.PATH)
    ] = None
    device: Annotated[
        Text | None, about("what is mounted, such as /dev/vda1; mountinfo", Sensitivity.PATH)
    ] = None
    fs_type: Annotated[Text | None, about("type of the file system; mountinfo")] = None
    read_only: Annotated[
        Flag | None, about("nobody can write to it: ro among the superblock's options; mountinfo")
    ] = None
    bytes_total: Annotated[Bytes | None, about("size; f_blocks of statvfs")] = None
    bytes_free: Annotated[Bytes | None, about("free for root; f_bfree of statvfs")] = None
    bytes_available: Annotated[Bytes | None, about("free for everybody; f_bavail of statvfs")] = None
    inodes_total: Annotated[
        Count | None, about("inodes; f_files of statvfs, null where it makes them as needed")
    ] = None
    inodes_free: Annotated[Count | None, about("free for root; f_ffree of statvfs")] = None
    inodes_available: Annotated[Count | None, about("free for everybody; f_favail of statvfs")] = None
    space_source: Annotated[
        Choice | None,
        about(
            "who asked: statvfs, or helper for what may hang; none is for network types, which are not asked"
        ),
    ] = None
