"""Which processes are recorded, by user, user id, command and control group."""

import re
from fnmatch import translate
from typing import Protocol

from vmsonar.config import Filters, Selection


class Subject(Protocol):
    """What a filter looks at."""

    @property
    def user_id(self) -> int | None: ...
    @property
    def user_name(self) -> str | None: ...
    @property
    def program(self) -> str | None: ...
    @property
    def cgroup(self) -> str | None: ...


class _Patterns:
    """A selection by shell patterns; leaving out wins, an empty `keep` keeps all."""

    def __init__(self, selection: Selection) -> None:
        self._keep = _any_of(selection.keep)
        self._leave_out = _any_of(selection.leave_out)

    def keeps(self, text: str | None) -> bool:
        if text is None:  # nobody can say that it is one of those to keep
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
        self.is_choosy = filters != Filters(kernel_threads=filters.kernel_threads)

    def keeps(self, subject: Subject) -> bool:
        """Whether this process is recorded."""
        return (
            self._keeps_uid(subject.user_id)
            and self._users.keeps(subject.user_name)
            and self._commands.keeps(subject.program)
            and self._cgroups.keeps(subject.cgroup)
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
