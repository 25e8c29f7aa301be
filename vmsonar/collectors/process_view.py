"""What of other users' processes can be seen here, and what would change that (proc(5) hidepid, ptrace(2))."""

from vmsonar_archive.records import Capability

from vmsonar.collectors.process_entry import DENIED
from vmsonar.collectors.process_table import ProcessTable

_HIDDEN = "processes of other users are hidden: /proc is mounted with hidepid"
_IO_DENIED = "the I/O counters of other users' processes need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
_REMEDY_HIDDEN = (
    "run vmsonar in the group that the mount option gid= of /proc names, or mount it with hidepid=0"
)
_REMEDY_IO = (
    "the drop-in vmsonar-io.conf gives both capabilities; the second one also reads every file on the machine"
)


def process_gaps(table: ProcessTable) -> list[tuple[str, str]]:
    """What is missing from the rows, as stable word and in words."""
    gaps = []
    if _is_hidden(table):
        gaps.append(("hidepid", _HIDDEN))
    if denied := _denied(table):
        gaps.append(("permission", f"{_IO_DENIED}; hidden for {denied} processes"))
    return gaps


def process_capabilities(collector: str, table: ProcessTable) -> list[Capability]:
    """The same for `vmsonar doctor`."""
    hidden, denied = _is_hidden(table), _denied(table)
    return [
        Capability(
            collector=collector,
            item="processes of all users",
            available=not hidden,
            reason=_HIDDEN if hidden else None,
            remedy=_REMEDY_HIDDEN if hidden else None,
        ),
        Capability(
            collector=collector,
            item="I/O of other users' processes",
            available=not denied,
            reason=_IO_DENIED if denied else None,
            remedy=_REMEDY_IO if denied else None,
        ),
    ]


def _is_hidden(table: ProcessTable) -> bool:
    return bool(table.by_name) and "1" not in table.by_name


def _denied(table: ProcessTable) -> int:
    return sum(process.io_fd == DENIED for process in table.by_name.values())
