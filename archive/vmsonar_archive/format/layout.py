"""Names and places of the files of an archive."""

import re
from dataclasses import dataclass
from datetime import date, datetime

#: The table that is written last: a day that has it has all.
LAST_TABLE = "samples.parquet"

ARCHIVE_FILE = "archive.json"
NAMESPACE_FILE = "namespace"
JOURNAL_FILE = "journal.jsonl"
LOCK_FILE = "writer.lock"
#: What uploads have been acknowledged; stays on the node.
UPLOADS_FILE = "uploads.json"
EARLIER_FOLDER = "earlier"
#: Files beside the days, which the journal does not list.
OWN_FILES = {ARCHIVE_FILE, JOURNAL_FILE, LOCK_FILE, NAMESPACE_FILE, UPLOADS_FILE}

SAMPLE = "sample"
SYSINFO = "sysinfo"
RECORD_KINDS = (SAMPLE, SYSINFO)

_DAY = re.compile(r"(\d{4})/(\d{2})/(\d{2})")
_SEGMENT = re.compile(r"(sample|sysinfo)-(\d{6})-(\d{1,18})\.jsonl\.zst")
_PARQUET = re.compile(r"[a-z_]{1,40}\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The path of a segment, parsed."""

    first_seq: int
    kind: str
    path: str

    @classmethod
    def of(cls, kind: str, time: datetime, first_seq: int) -> "SegmentName":
        """The name of a segment whose first record is this one."""
        path = f"{day_path(time.date())}/{kind}-{time:%H%M%S}-{first_seq}.jsonl.zst"
        return cls(first_seq, kind, path)

    @classmethod
    def parse(cls, path: str) -> "SegmentName | None":
        """Reads a path relative to the archive; None when it is not a segment's."""
        folder, _, name = path.rpartition("/")
        match = _SEGMENT.fullmatch(name)
        if match is None or day_of(folder) is None:
            return None
        return cls(int(match[3]), match[1], path)

    @property
    def day(self) -> date:
        day = day_of(self.path.rpartition("/")[0])
        assert day is not None
        return day

    @property
    def hour(self) -> str:
        """Day and hour of the first record: what is merged when there are several."""
        folder, _, name = self.path.rpartition("/")
        return f"{folder} {name.split('-')[1][:2]}"


def hour_of(time: datetime) -> str:
    """The hour of a segment that begins at this time."""
    return f"{day_path(time.date())} {time:%H}"


def day_path(day: date) -> str:
    # Not by %Y, which leaves out the noughts of an early year.
    return f"{day.year:04}/{day:%m/%d}"


def day_of(folder: str) -> date | None:
    """The day of a folder YYYY/MM/DD, None when it is not one."""
    match = _DAY.fullmatch(folder)
    try:
        return date(int(match[1]), int(match[2]), int(match[3])) if match else None
    except ValueError:
        return None


def is_parquet(path: str) -> bool:
    """Whether a path relative to the archive is a derived table."""
    folder, _, name = path.rpartition("/")
    return _PARQUET.fullmatch(name) is not None and day_of(folder) is not None


def is_archived(path: str) -> bool:
    """Whether a journal may name this path; journals are foreign input, and what they name is removed and renamed."""
    return SegmentName.parse(path) is not None or is_parquet(path)


def temporary(path: str) -> str:
    """Where the next version of a file is written before it takes its place."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.tmp"


def is_temporary(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".tmp")


def final(temporary_path: str) -> str:
    """The place for which a temporary file was written."""
    folder, slash, name = temporary_path.rpartition("/")
    return f"{folder}{slash}{name[1:-4]}"
