"""Opens archives and bundles for an inspection, and reads what it will need in one go."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vmsonar_archive.system.text import plain

from vmsonar_inspect.advice.verdicts import size_words
from vmsonar_inspect.facts.runs import RunUse
from vmsonar_inspect.inspection.judgement import Inspection
from vmsonar_inspect.inspection.recorded import InspectionSettings
from vmsonar_inspect.tables.database import BASES, open_tables
from vmsonar_inspect.tables.progress import waiting

#: Segments of at most this size are read with all rows of processes: that takes 0.25 s of CPU time more for each MiB
#: (a day of 300 processes has 40), once. Of larger ones the first screen reads processes in brief.
_SMALL = 16 * 2**20
# Tables that the first screen does not need, and those it needs for one machine only; read on demand all the same.
_NOT_AT_FIRST = ("cpu", "cost")
_NOT_OF_MANY = (*_NOT_AT_FIRST, "job_day", "energy")


@contextmanager
def opened(
    paths: Sequence[Path | str],
    settings: InspectionSettings,
    deep: bool | None = True,
    quiet: bool = False,
    first: bool = False,
) -> Iterator[Inspection]:
    """An inspection of everything that lies at these paths; a shallow one never reads processes.

    None reads them in brief where there are many machines. With `first` only what the first screen shows is made ready,
    anything else when it is asked for, and None is brief for a large machine too.
    """
    frame = settings.frame
    with ExitStack() as stack:
        with waiting(f"looking at {_what(paths)}", quiet) as wait:
            tables = open_tables(list(paths), since=frame.since, until=frame.until, wait=wait)
            stack.enter_context(tables)
            if tables.errors and not tables.places:
                raise tables.errors[0]
            many = len(tables.places) > 1
            if is_brief := deep is None and (many or (first and tables.bytes_to_derive > _SMALL)):
                tables.look_briefly()
            deep = deep is not False
            wait.title = f"reading {_what(list(tables.places.values()))}"
            unread = (_NOT_OF_MANY if many else _NOT_AT_FIRST) if first and (is_brief or not deep) else ()
            bases = [base for base in BASES if base not in unread]
            # Reading segments finds the damage. Everything needed is read in one go, processes only where they matter.
            tables.require([base for base in bases if deep or not base.startswith("process")], wait)
        yield Inspection(tables, settings, deep)


def _what(places: Sequence[Path | str]) -> str:
    return plain(str(places[0])) if len(places) == 1 else f"{len(places)} archives"


def judge_run(use: RunUse, archive: Path) -> None:
    """Adds to a command what only the whole record tells: why it ended, the verdicts, the size that was enough."""
    with opened([archive], InspectionSettings(), quiet=True) as inspection:
        jobs = inspection._jobs
        if not jobs:
            return
        first = max(jobs, key=lambda key: (jobs[key].ending.source == "run", jobs[key].cpu_seconds or 0.0))
        busiest = max(jobs, key=lambda key: jobs[key].cpu_seconds or 0.0)
        if jobs[first].ending.source == "run":
            use.ended_by = jobs[first].ending.words
        advice = inspection.job_advice(busiest)
    for verdict in advice.verdicts:
        use.verdicts.append(f"{verdict.title}: {verdict.says} ({verdict.confidence} confidence)")
    if advice.size_peak is not None:
        use.size = "at least " * advice.size_is_lower_bound + size_words(advice.size_peak)
