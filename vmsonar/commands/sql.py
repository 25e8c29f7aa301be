"""`vmsonar sql`: DuckDB over every kind as a table."""

import io
from pathlib import Path
from typing import Annotated, Any, Literal

from vmsonar_archive.read.findings import Finding
from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError
from vmsonar_archive.system.moments import moment_in_utc
from vmsonar_archive.system.rights import published, work_as_owner
from vmsonar_archive.write.outputs import CSV, JSON, PARQUET, guard, whole
from vmsonar_inspect.tables.where import TimeFrame

from vmsonar.commands.options import ForceOption, SinceOption, UntilOption, argument, flag, option
from vmsonar.commands.output import fits, print_json, print_records, print_table, tell_findings, writing_to
from vmsonar.host.streams import for_programs

#: How the answer looks.
AnswerFormat = Literal["table", "csv", "json", "parquet"]
_KINDS = {"json": JSON, "parquet": PARQUET}


def sql_command(
    arguments: Annotated[
        list[str] | None,
        argument("PATH… QUERY", "Archives, bundles, folders of them, lakes; then the query."),
    ] = None,
    form: Annotated[AnswerFormat, flag("--format", "How the answer looks.")] = "table",
    output: Annotated[
        Path | None,
        option("FILE", "Write the answer to a file: as CSV unless --format.", "-o", "--output"),
    ] = None,
    force: ForceOption = False,
    since: SinceOption = None,
    until: UntilOption = None,
    tables: Annotated[bool, flag("--tables", "Explain every table and column.")] = False,
    engine: Annotated[
        Literal["duckdb", "spark"], flag("--engine", "Spark is for lakes that one machine cannot hold.")
    ] = "duckdb",
    json: Annotated[bool, flag("--json", "The same as --format json.")] = False,
) -> int:
    """Answers an SQL query over archives, bundles and lakes; every kind is a table, every rollup a view.

    Example: vmsonar sql /var/lib/vmsonar "SELECT command, cores_p95 FROM job_usage ORDER BY cpu_seconds DESC"
    """
    form = "json" if json else form
    if tables:
        explain(form)
        return Exit.OK
    if not arguments or len(arguments) < 2:
        raise UsageError('give at least one path and then the query: vmsonar sql PATH… "SELECT …"')
    *paths, query = arguments
    if form == "parquet" and output is None:
        raise UsageError("--format parquet writes a file: name it with -o")
    if output is not None:
        output = guard(output, paths, _KINDS.get(form, CSV), force=force)
    work_as_owner(paths, output=output is not None)
    asked = _ask_spark if engine == "spark" else _ask_duckdb
    from vmsonar_inspect.show.answers import covered

    frame = TimeFrame(*(moment_in_utc(text, lambda: covered(paths)) for text in (since, until)))
    findings = asked(paths, query, frame, form, output)
    return tell_findings(findings)


def _ask_duckdb(
    paths: list[str], query: str, frame: TimeFrame, form: AnswerFormat, output: Path | None
) -> list[Finding]:
    from vmsonar_inspect.show.answers import why_no_samples
    from vmsonar_inspect.tables.database import open_tables

    with open_tables(paths, since=frame.since, until=frame.until) as opened:
        import duckdb  # here: open_tables says which extra is missing

        nothing = why_no_samples(opened, frame, paths)
        try:
            result = opened.locked_sql(query, batches=form == "parquet")
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            raise UsageError(str(error)) from None
        _answer(result, form, output)
        if nothing is not None:
            raise AnswerIsNo(nothing)
        return opened.findings


def _ask_spark(
    paths: list[str], query: str, frame: TimeFrame, form: AnswerFormat, output: Path | None
) -> list[Finding]:
    from vmsonar_inspect.tables.spark import SparkTables

    with SparkTables(paths, since=frame.since, until=frame.until) as opened:
        _answer(opened.sql(query), form, output)
        return opened.findings


def _answer(result: Any, form: AnswerFormat, output: Path | None) -> None:
    from vmsonar_inspect.tables import results

    if form == "parquet":
        assert output is not None
        with writing_to(output), published(output) as place, whole(place) as sink:
            results.answer_parquet(result, sink)
    elif form == "table" and output is None:
        rows = [[results.shown(value) for value in row] for row in results.rows_of(result)]
        names = results.names_of(result)
        if not fits(names, rows):
            print_records(names, rows)
        else:
            print_table(names, rows)
    else:
        write = results.answer_json if form == "json" else results.answer_csv
        if output is None:
            write(result, for_programs())
            return
        with writing_to(output), published(output) as place, whole(place) as sink:
            text = io.TextIOWrapper(sink, encoding="utf-8", newline="")
            write(result, text)
            text.detach()


def explain(form: AnswerFormat) -> None:
    """Every table and view with its columns."""
    from vmsonar_inspect.tables.catalog import catalog

    entries = catalog()
    if form == "json":
        print_json(entries)
        return
    for entry in entries:
        print(f"{entry.name}: {entry.summary}")
        print_table(("", ""), [(f"  {name}", text) for name, text in entry.columns.items()], header=False)
        print()
