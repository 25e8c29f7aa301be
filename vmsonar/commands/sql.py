"""`vmsonar sql`: DuckDB over every kind as a table."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from vmsonar_archive.errors import Exit, UsageError
from vmsonar_archive.findings import Finding, Severity
from vmsonar_archive.moments import moment_in_utc
from vmsonar_inspect.frames import Frame

from vmsonar.commands.options import SinceOption, UntilOption
from vmsonar.commands.output import print_table, tell_findings, writing_to
from vmsonar.streams import for_programs

if TYPE_CHECKING:
    from vmsonar_inspect.tables import Tables


class Format(StrEnum):
    """How the answer looks."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class Engine(StrEnum):
    """Who runs the query."""

    duckdb = "duckdb"
    spark = "spark"


def command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH… QUERY", help="Archives, bundles, folders of them, lakes; then the query."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How the answer looks.")] = Format.table,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write the answer to a file: as CSV unless --format.",
            metavar="FILE",
            readable=False,
        ),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    tables: Annotated[bool, typer.Option("--tables", help="Explain every table and column.")] = False,
    engine: Annotated[
        Engine, typer.Option(help="Spark is for lakes that one machine cannot hold.")
    ] = Engine.duckdb,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> int:
    """Answers an SQL query over archives, bundles and lakes; every kind is a table, every rollup a view.

    Example: vmsonar sql /var/lib/vmsonar "SELECT command, cores_p95 FROM job_usage ORDER BY cpu_seconds DESC"
    """
    form = Format.json if json else form
    if tables:
        explain(form)
        return Exit.OK
    if not arguments or len(arguments) < 2:
        raise UsageError('give at least one path and then the query: vmsonar sql PATH… "SELECT …"')
    *paths, query = arguments
    asked = _ask_spark if engine is Engine.spark else _ask_duckdb
    findings = asked(paths, query, Frame(moment_in_utc(since), moment_in_utc(until)), form, output)
    tell_findings(findings)
    return Exit.NO if any(finding.severity is Severity.ERROR for finding in findings) else Exit.OK


def _ask_duckdb(
    paths: list[str], query: str, frame: Frame, form: Format, output: Path | None
) -> list[Finding]:
    from vmsonar_inspect.tables import open_tables

    with open_tables(paths, since=frame.since, until=frame.until) as opened:
        _answer(_run(opened, query, form), form, output)
        return opened.findings


def _ask_spark(
    paths: list[str], query: str, frame: Frame, form: Format, output: Path | None
) -> list[Finding]:
    from vmsonar_inspect.on_spark import SparkTables

    with SparkTables(paths, since=frame.since, until=frame.until) as opened:
        _answer(opened.sql(query), form, output)
        return opened.findings


def _run(tables: "Tables", query: str, form: Format) -> Any:
    import duckdb

    try:
        return tables.locked_sql(query, batches=form is Format.parquet)
    except duckdb.Error as error:
        raise UsageError(str(error)) from None


def _answer(result: Any, form: Format, output: Path | None) -> None:
    from vmsonar_inspect import answers_sql as answers
    from vmsonar_inspect.cells import shown

    if form is Format.parquet:
        if output is None:
            raise UsageError("--format parquet writes a file: name it with -o")
        with writing_to(output), output.open("wb") as sink:
            answers.answer_parquet(result, sink)
    elif form is Format.table and output is None:
        rows = ([shown(value) for value in row] for row in answers.rows_of(result))
        print_table(answers.names_of(result), rows)
    else:
        write = answers.answer_json if form is Format.json else answers.answer_csv
        if output is None:
            write(result, for_programs())
            return
        with writing_to(output), output.open("w", encoding="utf-8", newline="") as text:
            write(result, text)


def explain(form: Format) -> None:
    """Every table and view with its columns."""
    from vmsonar_inspect.catalog import catalog

    from vmsonar.commands.output import print_json

    entries = catalog()
    if form is Format.json:
        print_json(entries)
        return
    for entry in entries:
        print(f"{entry.name}: {entry.summary}")
        print_table(("", ""), [(f"  {name}", text) for name, text in entry.columns.items()], header=False)
        print()
