"""`vmsonar run` and `runs`: one command recorded and explained, and those that were."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import AnswerIsNo, UsageError, VmsonarError

from vmsonar.commands.options import JsonOption, argument, flag, option
from vmsonar.commands.output import print_json, print_table
from vmsonar.commands.runner import RunOptions, run_and_report
from vmsonar.config.schema import interval as every
from vmsonar.daemon.run_folders import KEPT, RunFolders

_COLUMNS = ("command", "started", "ended_by", "elapsed_seconds", "cores", "memory_peak_bytes")


def run_command(
    command: Annotated[list[str], argument("COMMAND…", "The command, after --.")],
    archive: Annotated[str, option("DIR", "Record into this archive instead of a folder of runs.")] = "",
    interval: Annotated[str, option("1s", "Time between samples, after a quicker start.")] = "1s",
    keep: Annotated[int, option("N", "Runs to keep, this one included.", min=1)] = KEPT,
    quiet: Annotated[bool, flag("--quiet", "Say nothing.")] = False,
    json: Annotated[Path | None, option("FILE", "Write the card as JSON.")] = None,
    markdown: Annotated[Path | None, option("FILE", "Append the card as Markdown, for CI summaries.")] = None,
    html: Annotated[Path | None, option("FILE", "Write one self-contained page.")] = None,
    bundle: Annotated[Path | None, option("FILE", "Write the record as a bundle.")] = None,
) -> None:
    """Runs a command as if vmsonar were not there, records it, and says what it used.

    The exit code is the command's own.

    Example: vmsonar run -- make -j8

    Example: vmsonar run --quiet --json build.json -- ./train.sh
    """
    try:
        every(interval)
    except ValueError as error:
        raise UsageError(f"--interval: {error}") from None
    options = (Path(archive) if archive else None, interval, keep, quiet, json, markdown, html, bundle)
    run_and_report(RunOptions(tuple(command), *options))


def runs_command(json: JsonOption = False) -> None:
    """Lists the recorded runs of this user, the newest first; inspect and compare take them as @1, @2.

    Example: vmsonar runs

    Example: vmsonar inspect @1
    """
    from vmsonar_inspect.facts.fields import shown_field
    from vmsonar_inspect.facts.runs import RunUse, read_run

    runs = {}
    for number, folder in enumerate(RunFolders.of_user().newest_first(), start=1):
        with suppress(VmsonarError):  # killed before its command began: nothing to tell
            runs[f"@{number}"] = read_run(folder)
    if json:
        print_json(list(runs.values()))
        return
    if not runs:
        raise AnswerIsNo("no run is recorded: vmsonar run -- COMMAND makes one")
    columns = [shown_field(RunUse, name) for name in _COLUMNS]
    rows = ((number, *(column.marked(run)[:40] for column in columns)) for number, run in runs.items())
    print_table(("", *(column.title for column in columns)), rows)


def run_path(name: str) -> Path:
    """The path that an argument means; `@1` is the newest run."""
    if not name.startswith("@") or not name[1:].isdecimal():
        return Path(name)
    runs = RunFolders.of_user().newest_first()
    if not 1 <= int(name[1:]) <= len(runs):
        raise UsageError(f"there is no run {name}: vmsonar runs lists the {len(runs)} that there are")
    return runs[int(name[1:]) - 1]
