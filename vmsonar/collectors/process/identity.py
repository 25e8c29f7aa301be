"""What rarely changes during a process's life (user, program, control group), and which processes are recorded."""

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Any

from vmsonar_archive.format.lines import encode_row
from vmsonar_archive.records import ProcessInfoRow

from vmsonar.collectors.base import Descent
from vmsonar.collectors.process.command import Policy, arguments
from vmsonar.collectors.process.files import ProcessFiles, read_link
from vmsonar.collectors.process.lives import Look
from vmsonar.collectors.process.model import Identity, Process
from vmsonar.config.schema import Filters, UidRange
from vmsonar.host.cgroups import BatchStep, Membership, Unit, batch_step, membership
from vmsonar.host.proc_pid import real_uid
from vmsonar.host.users import Users

_LIMITS = re.compile(rb"^Max (open files|processes) +([0-9]+)", re.MULTILINE)
_LIMIT_FIELDS = {b"open files": "open_files_limit", b"processes": "processes_limit"}
#: Slurm's step daemon names its step as its command line; by its owner it is told from somebody who calls himself so.
STEP_DAEMON = b"slurmstepd"
_STEP = re.compile(rb"slurmstepd: \[([0-9]{1,10})\.(\w{1,24})", re.ASCII)
#: A compiled module, or a library that was packed with one (`numpy.libs`).
_PACKAGE = re.compile(rb"/(?:site|dist)-packages/([A-Za-z]\w*)[./][^\n]*\.so")
_MOST_PACKAGES = 64
#: SLUIDs whose number is remembered.
_MOST_NUMBERS = 4096
#: Nanoseconds of CPU time after which a look at what was loaded is worth its cost.
_BUSY = 5 * 10**9
_NOWHERE = Membership(None, None, None, None)


class Identities:
    """Reads the identity of a process: user, program, command, control groups."""

    def __init__(self, files: ProcessFiles, users: Users, command_policy: Policy) -> None:
        self._files = files
        self._users = users
        self._policy = command_policy
        self._own_namespaces = {kind: read_link(f"/proc/self/ns/{kind}") for kind in ("user", "mnt")}
        # Thousands of processes share a few groups: one object for each.
        self._memberships: dict[bytes, Membership] = {}
        #: The number of each batch job whose groups have its SLUID, as its step daemons tell.
        self.numbers: dict[str, str] = {}

    def read(self, process: Process, parent: Process | None = None) -> Identity | None:
        """Everything, anew; None if the process is gone. A zombie is what it was: it cannot say it any more."""
        uid = self._files.user_id(process)
        started_by = self._started_by(process, parent) if uid == 0 else None
        before = process.identity
        if uid is None and before is not None:
            return None
        source = "process" if started_by is None else "real_uid"
        if uid is None:
            uid, source = _inherited(process, parent)
        belongs, command = self.belongs(process), self._command(process)
        contained = self._contained(process) if belongs.container_id is None else None
        if contained is None and before is not None:
            contained = before.contained
        if started_by is not None:
            uid = started_by
        return Identity(
            user_id=uid,
            user_name=self._users.name(uid) if uid is not None else None,
            program=process.comm.decode("utf-8", "backslashreplace"),
            command=command,
            membership=belongs,
            batch=self._batch(process, uid, parent, belongs),
            contained=contained if belongs.container_id is None else None,
            session=process.session,
            terminal=process.terminal,
            user_source=source,
            libraries=self._libraries(process, command),
        )

    def _batch(
        self, process: Process, uid: int | None, parent: Process | None, belongs: Membership
    ) -> BatchStep | None:
        """The step that it works for: by its group, else by its step daemon; then for life, whoever its parent is."""
        if process.comm == STEP_DAEMON and uid == 0:
            self._step_of(process, belongs)
            return None
        own = belongs.batch
        if own is not None and own.job is not None:
            return own
        before = process.job.batch if process.job is not None else None  # of a job that an earlier run knew
        if process.identity is not None:
            before = process.identity.batch
        if before is not None and before.job is not None:
            self._remember(before)
            return before
        told = parent.identity.batch if parent is not None and parent.identity is not None else None
        if (
            parent is not None
            and parent.comm == STEP_DAEMON
            and parent.identity
            and parent.identity.user_id == 0
        ):
            told = self._step_of(parent, belongs)
        if own is not None:
            return own._replace(job=self.numbers.get(own.sluid or ""))
        return told._replace(source="ancestor") if told is not None else None

    def _step_of(self, daemon: Process, belongs: Membership) -> BatchStep | None:
        """The step that a daemon names, whose number is that of the SLUID in its own path or its child's."""
        named = _STEP.match(self._files.cmdline(daemon) or b"")
        if named is None:
            return None
        for unit in belongs.units:
            if unit.kind == "slurm" and (step := batch_step(unit.path)) is not None:
                self._remember(step._replace(job=named[1].decode()))
        return BatchStep(named[1].decode(), named[2].decode())

    def _remember(self, step: BatchStep) -> None:
        if step.sluid is None or step.job is None or step.sluid in self.numbers:
            return
        if len(self.numbers) >= _MOST_NUMBERS:
            del self.numbers[next(iter(self.numbers))]
        self.numbers[step.sluid] = step.job

    def _libraries(self, process: Process, command: str | None) -> str | None:
        """What a Python that works for a while has loaded; looked for at each review until there is something."""
        known = process.identity
        if known is None or command is None or known.command != command:
            return None
        if known.libraries is not None or sum(process.used[:2]) < _BUSY:
            return known.libraries
        if not command.split(" ", 1)[0].rpartition("/")[2].startswith(("python", "pypy")):
            return None
        found = {name.decode("ascii") for name in _PACKAGE.findall(self._files.maps(process))}
        return ",".join(sorted(found)[:_MOST_PACKAGES]) or None

    def _started_by(self, process: Process, parent: Process | None) -> int | None:
        """The real user of a setuid program; only a child of somebody else is looked at so closely."""
        known = parent.identity.user_id if parent is not None and parent.identity is not None else None
        if not known:
            return None
        status = self._files.status(process)
        return (real_uid(status) or None) if status else None

    def of_look(self, look: Look, stand_in: Process, parent: Process | None) -> Identity:
        """The identity of one that no sample saw, by what was read in passing."""
        belongs = self._membership(look.cgroup) if look.cgroup else _NOWHERE
        return Identity(
            user_id=look.uid,
            user_name=self._users.name(look.uid),
            program=look.name.decode("utf-8", "backslashreplace"),
            command=self._policy(arguments(look.cmdline)) if look.cmdline else None,
            membership=belongs,
            batch=self._batch(stand_in, look.uid, parent, belongs),
            contained=None,
            session=look.session,
            terminal=look.terminal,
        )

    def _command(self, process: Process) -> str | None:
        cmdline = self._files.cmdline(process)
        if cmdline:
            return self._policy(arguments(cmdline))
        return process.identity.command if process.identity else None

    def belongs(self, process: Process) -> Membership:
        """Its control groups; also asked of a sleeper, because others can move it."""
        text = self._files.cgroup(process)
        if text is None:
            return process.identity.membership if process.identity else _NOWHERE
        return self._membership(text)

    def limits(self, process: Process) -> dict[str, Any]:
        """Its user's own limits, as fields of the row of its job; without those that do not limit."""
        found = _LIMITS.findall(self._files.limits(process) or b"")
        return {_LIMIT_FIELDS[name]: int(value) for name, value in found}

    def _membership(self, text: bytes) -> Membership:
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


def _inherited(process: Process, parent: Process | None) -> tuple[int | None, str]:
    """The user of one that ended before it could be asked: as it was known before, or its parent's.

    Process 1 is the parent of everybody's orphans.
    """
    if process.life is not None and process.life.uid is not None:
        return process.life.uid, "process"
    identity = None if parent is None or parent.pid == 1 else parent.identity
    return (None if identity is None else identity.user_id), "parent"


def encode_info(process: Process, identity: Identity, series_id: str) -> bytes:
    """The info row."""
    return encode_row(
        ProcessInfoRow(
            series_id=series_id,
            pid=process.pid,
            start_ticks=process.start_ticks,
            started=process.started,
            terminal=identity.terminal,
            contained=identity.contained,
            cgroup=identity.membership.path,
            libraries=identity.libraries,
            kernel_thread=process.is_kernel_thread or None,
            **identity.row_fields(),
        )
    )


Predicate = Callable[[Any], object]


class _Kept:
    """A selection: leaving out wins, without anything to keep all is kept, what is unknown is not matched."""

    def __init__(self, keep: Predicate | None, leave_out: Predicate | None) -> None:
        self._keep = keep
        self._leave_out = leave_out

    def __contains__(self, value: object) -> bool:
        if value is None:
            return self._keep is None
        if self._leave_out is not None and self._leave_out(value):
            return False
        return self._keep is None or bool(self._keep(value))


class Memberships:
    """Which processes are in which container and unit."""

    def __init__(self) -> None:
        self.containers: dict[str, list[int]] = {}
        self.units: dict[Unit, set[int]] = {}

    def enter(self, pid: int, identity: Identity) -> None:
        for unit in identity.membership.units:
            self.units.setdefault(unit, set()).add(pid)
        if identity.membership.container_id is not None:
            self.containers.setdefault(identity.membership.container_id, []).append(pid)

    def leave(self, pid: int, identity: Identity | None) -> None:
        """Where there is nobody left, nothing is kept."""
        for unit in identity.membership.units if identity else ():
            if unit in self.units:
                self.units[unit].discard(pid)
                if not self.units[unit]:
                    del self.units[unit]
        container_id = identity.membership.container_id if identity else None
        if container_id is not None:
            members = self.containers[container_id]
            members.remove(pid)
            if not members:
                del self.containers[container_id]


class ProcessFilter:
    """Decides by what the configuration says under `filters`."""

    def __init__(self, filters: Filters) -> None:
        self._users, self._commands, self._cgroups = (
            _Kept(_matches_any(texts.keep), _matches_any(texts.leave_out))
            for texts in (filters.users, filters.commands, filters.cgroups)
        )
        self._uids = _Kept(_lies_in_any(filters.uids.keep), _lies_in_any(filters.uids.leave_out))
        self.kernel_threads = filters.kernel_threads == "keep"
        #: Whether it leaves anything out at all.
        self.is_selective = filters != Filters(kernel_threads=filters.kernel_threads)

    def keeps(self, identity: Identity) -> bool:
        """Whether this process is recorded."""
        return (
            self.keeps_user(identity.user_id, identity.user_name)
            and identity.program in self._commands
            and identity.membership.path in self._cgroups
        )

    def keeps_user(self, user_id: int | None, user_name: str | None) -> bool:
        """Whether anything of this user is recorded."""
        return user_id in self._uids and user_name in self._users


class MemberFilter:
    """Tells by its parent, by its birth or by what only descendants share whether a process is one of a command."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._own: set[int] = set()

    def keeps(
        self, process: Process, parent: Process | None, belongs: Callable[[Process], Membership]
    ) -> bool:
        """Whether this process is recorded; of all others nothing more is read."""
        known = self._descent
        is_member = bool(known.root) and (
            process.pid in known.members
            or (process.looks > 1 and process.kept)
            or (parent is not None and parent.kept)
            or not self._own.isdisjoint((process.pgid, process.session))
            or (known.group is not None and belongs(process).path == known.group)
        )
        if is_member:
            known.members.add(process.pid)
            # Groups and sessions that began within the command have nobody else in them.
            self._own.update({process.pgid, process.session}.difference(known.shared))
        return is_member

    def concerns(self, process: Process) -> bool:
        """Whether a look at it can tell of the command: one of it, a newcomer, or who may wait for its orphans."""
        return process.kept or process.looks < 2 or process.pid in self._descent.ancestors

    def forget(self, process: Process) -> None:
        """Its number may be another's soon."""
        self._descent.members.discard(process.pid)


def _matches_any(patterns: list[str]) -> Predicate | None:
    return re.compile("|".join(map(translate, patterns))).match if patterns else None


def _lies_in_any(spans: list[UidRange]) -> Predicate | None:
    return (lambda uid: any(uid in span for span in spans)) if spans else None
