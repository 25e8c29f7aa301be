"""What may be asked of the API, and the forms of what it answers beside the documents of `inspect --json`."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from vmsonar_archive.records.fields import about
from vmsonar_inspect.show.answers import Document

from vmsonar.fleet.machines import State

_TEXT = Annotated[str, msgspec.Meta(max_length=300)]
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_MOMENT = Annotated[datetime, msgspec.Meta(tz=True)]


class Span(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The time that is asked about."""

    since: _MOMENT | None = msgspec.field(default=None, name="from")
    until: _MOMENT | None = msgspec.field(default=None, name="to")

    @property
    def first(self) -> float:
        return self.since.timestamp() if self.since else -1e12

    @property
    def last(self) -> float:
        return self.until.timestamp() if self.until else 1e12

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day that it touches, in UTC."""
        ends = (
            datetime.fromtimestamp(min(max(end, 0), _LATEST), UTC) for end in (self.first, self.last - 1e-6)
        )
        first, last = (str(end.date()) for end in ends)
        return first, last


class DayPage(Span, kw_only=True, forbid_unknown_fields=True):
    """Days, page by page."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=31)] = 7
    offset: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0


class Page(Span, kw_only=True, forbid_unknown_fields=True):
    """A list, page by page."""

    archive: _TEXT | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0


class JobPage(Page, kw_only=True, forbid_unknown_fields=True):
    user: _TEXT | None = None
    program: _TEXT | None = None
    min_runtime: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None
    sort: Literal["cpu", "memory", "gpu", "runtime", "read", "write", "energy", "start", "cost"] = "cpu"


class BoxPage(Page, kw_only=True, forbid_unknown_fields=True):
    user: _TEXT | None = None
    sort: Literal["cpu", "memory", "runtime", "read", "write", "energy", "start"] = "cpu"


class EventPage(Page, kw_only=True, forbid_unknown_fields=True):
    kind: _TEXT | None = None


class MachinePage(Page, kw_only=True, forbid_unknown_fields=True):
    state: State | None = None
    host: _TEXT | None = None


class Provenance(msgspec.Struct, kw_only=True):
    """An archive that an answer comes from, and how complete it is."""

    archive: str
    hostname: str | None
    first: datetime | None
    last: datetime | None
    coverage: Annotated[float | None, about("share of its time that was seen")]
    damaged: Annotated[bool, about("some of it cannot be read")]


class Answer(Document, kw_only=True):
    """A document of `inspect --json`, with the archives that it comes from and the way to the next page."""

    archives: list[Provenance]
    next: Annotated[str | None, about("address of the next rows")] = None


class Share(msgspec.Struct, kw_only=True):
    """What a user's or a program's jobs used, and what they had and made no use of."""

    name: str | None
    jobs: int
    core_hours: float | None
    gpu_hours: float | None
    lost_core_hours: Annotated[
        float | None, about("cores given and idle, and work that was killed, by verdicts on them")
    ]
    lost_gib_hours: Annotated[float | None, about("memory held for nothing, by verdicts on them")]
    lost_gpu_hours: Annotated[
        float | None, about("GPUs held and idle, by verdicts; one that several hold is each one's")
    ]


class Life(msgspec.Struct, kw_only=True):
    """One machine and whether it is heard of."""

    archive: str
    hostname: str | None
    state: Annotated[
        State,
        about("alive, late, gone (orderly), lost (without a word); by when it was heard and its last words"),
    ]
    heard: Annotated[datetime | None, about("when something newer came from it")]
    last: Annotated[datetime | None, about("its last prepared sample")]
    end: Annotated[str | None, about("how its last boot ended, as far as was told")]


class FleetUse(msgspec.Struct, kw_only=True):
    """All machines together."""

    states: Annotated[dict[State, int], about("machines by state")]
    machines: Annotated[list[Life], about("those first that need somebody, at most 1000")]
    core_hours: float | None
    idle_core_hours: float | None
    idle_gib_hours: float | None
    idle_gpu_hours: float | None
    jobs: int
    users: Annotated[list[Share], about("the costliest first, at most 50")]
    programs: Annotated[list[Share], about("the costliest first, at most 50")]
