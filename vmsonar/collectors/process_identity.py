"""What does not change during a process's life, or rarely: whose it is, what it runs, where it belongs."""

import os
from dataclasses import dataclass

from vmsonar_archive.lines import encode_row
from vmsonar_archive.records import ProcessInfoRow

from vmsonar.cgroups import Membership, membership
from vmsonar.collectors.process_command import Policy, arguments
from vmsonar.collectors.process_entry import Process
from vmsonar.collectors.process_files import ProcessFiles
from vmsonar.collectors.process_users import Users

_NOWHERE = Membership(None, None, None, None)


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts of an info row that have to be read."""

    user_id: int | None
    user_name: str | None
    program: str
    command: str | None
    membership: Membership
    contained: bool | None
    session: int
    terminal: int

    @property
    def cgroup(self) -> str | None:
        return self.membership.path


class Identities:
    """Reads and describes who a process is."""

    def __init__(self, files: ProcessFiles, users: Users, command_policy: Policy) -> None:
        self._files = files
        self._users = users
        self._policy = command_policy
        self._own_namespaces = {kind: _own_namespace(kind) for kind in ("user", "mnt")}
        # Thousands of processes share a few groups: one object for each.
        self._memberships: dict[bytes, Membership] = {}

    def read(self, process: Process) -> Identity | None:
        """Everything, anew; None if the process is gone. A zombie is what it was: it cannot say it any more."""
        uid = self._files.user_id(process)
        before = process.identity
        if uid is None and before is not None:
            return None
        belongs = self.belongs(process)
        contained = self._contained(process) if belongs.container_id is None else None
        if contained is None and before is not None:
            contained = before.contained
        return Identity(
            user_id=uid,
            user_name=self._users.name(uid) if uid is not None else None,
            program=process.comm.decode("utf-8", "backslashreplace"),
            command=self._command(process, self._files.cmdline(process)),
            membership=belongs,
            contained=contained if belongs.container_id is None else None,
            session=process.session,
            terminal=process.terminal,
        )

    def _command(self, process: Process, cmdline: bytes | None) -> str | None:
        if cmdline:
            return self._policy(arguments(cmdline))
        return process.identity.command if process.identity else None

    def belongs(self, process: Process) -> Membership:
        """Its control groups; also asked of a sleeper, because others can move it."""
        text = self._files.cgroup(process)
        if text is None:
            return process.identity.membership if process.identity else _NOWHERE
        known = self._memberships.get(text)
        if known is None:
            if len(self._memberships) >= 4096:
                self._memberships.clear()
            known = self._memberships[text] = membership(text)
        return known

    def _contained(self, process: Process) -> bool | None:
        if process.is_kernel_thread:
            return None
        unknown = False
        for kind, own in self._own_namespaces.items():
            theirs = self._files.namespace(process, kind)
            unknown = unknown or theirs is None or own is None
            if theirs and own and theirs != own:
                return True
        return None if unknown else False


def encode_info(process: Process, identity: Identity, series_id: str) -> bytes:
    """The info row."""
    return encode_row(
        ProcessInfoRow(
            series_id=series_id,
            pid=process.pid,
            start_ticks=process.start,
            started=process.started,
            session_id=identity.session,
            terminal=identity.terminal,
            program=identity.program,
            command=identity.command,
            user_id=identity.user_id,
            user_name=identity.user_name,
            user_source="process" if identity.user_id is not None else None,
            container_id=identity.membership.container_id,
            contained=identity.contained,
            cgroup=identity.membership.path,
            kernel_thread=True if process.is_kernel_thread else None,
        )
    )


def _own_namespace(kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None
