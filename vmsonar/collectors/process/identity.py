"""What rarely changes during a process's life (user, program, control group), and which processes are recorded."""

import os
import re
from fnmatch import translate

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import ProcessInfoRow

from vmsonar.collectors.process.command import Policy, arguments
from vmsonar.collectors.process.files import ProcessFiles
from vmsonar.collectors.process.model import Identity, Process
from vmsonar.config.schema import Filters, Selection
from vmsonar.host.cgroups import Membership, membership
from vmsonar.host.users import Users

_NOWHERE = Membership(None, None, None, None)


class Identities:
    """Reads the identity of a process: user, program, command, control groups."""

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


class _Patterns:
    """A selection by shell patterns; leaving out wins, an empty `keep` keeps all."""

    def __init__(self, selection: Selection) -> None:
        self._keep = _any_of(selection.keep)
        self._leave_out = _any_of(selection.leave_out)

    def keeps(self, text: str | None) -> bool:
        if text is None:  # cannot be matched, so it is not kept
            return self._keep is None
        if self._leave_out is not None and self._leave_out.match(text):
            return False
        return self._keep is None or self._keep.match(text) is not None


class ProcessFilter:
    """Decides by what the configuration says under `filters`."""

    def __init__(self, filters: Filters) -> None:
        self._users = _Patterns(filters.users)
        self._commands = _Patterns(filters.commands)
        self._cgroups = _Patterns(filters.cgroups)
        self._uids = filters.uids
        self.kernel_threads = filters.kernel_threads == "keep"
        #: Whether it leaves anything out at all.
        self.is_selective = filters != Filters(kernel_threads=filters.kernel_threads)

    def keeps(self, identity: Identity) -> bool:
        """Whether this process is recorded."""
        return (
            self._keeps_uid(identity.user_id)
            and self._users.keeps(identity.user_name)
            and self._commands.keeps(identity.program)
            and self._cgroups.keeps(identity.cgroup)
        )

    def _keeps_uid(self, uid: int | None) -> bool:
        keep, leave_out = self._uids.keep, self._uids.leave_out
        if uid is None:
            return not keep
        if any(uid in span for span in leave_out):
            return False
        return not keep or any(uid in span for span in keep)


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(pattern) for pattern in patterns)) if patterns else None
