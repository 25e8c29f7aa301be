"""`vmsonar bundle`: one file that can be carried away and trusted."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from vmsonar_archive.bundle.make import (
    Bundled,
    BundleOptions,
    bundle_to_descriptor,
    bundle_to_file,
    bundle_to_url,
    read_url,
    to_url,
)
from vmsonar_archive.bundle.redact import parse_kinds
from vmsonar_archive.bundle.select import parse_only
from vmsonar_archive.system.errors import Exit, UsageError, VmsonarError
from vmsonar_archive.system.moments import moment_in_utc

from vmsonar.commands.options import ArchiveOption, ConfigOption, SinceOption, UntilOption, flag, option
from vmsonar.commands.output import print_findings, print_json, progress_bar, say, writing_to
from vmsonar.config.file import archive_in_question
from vmsonar.config.quantities import show_size
from vmsonar.host.streams import is_nowhere

_MAX_KEY = 1024 * 1024


def bundle_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    output: Annotated[
        str,
        option(
            "OUT",
            "A file, a folder, -, https://… (signed for PUT), s3://bucket/key, @FILE that holds a URL.",
            "--output",
            "-o",
        ),
    ] = ".",
    since: SinceOption = None,
    until: UntilOption = None,
    only: Annotated[str | None, option("KINDS", "Only these kinds of rows, such as node,cpu,job.")] = None,
    redact: Annotated[str | None, option("WHAT", "Hide user, host, command, path, label, or all.")] = None,
    redact_key: Annotated[
        Path | None, option("FILE", "A secret file for the pseudonyms, instead of the archive's own.")
    ] = None,
    parquet: Annotated[
        bool, flag("--parquet", "Also make the Parquet tables of days that have none.")
    ] = False,
    increment: Annotated[
        bool, flag("--increment", "Only what no confirmed upload has taken before.")
    ] = False,
    sign: Annotated[
        Path | None, option("KEY", "Sign with this ed25519 key, such as the host's SSH key.")
    ] = None,
    json: Annotated[bool, flag("--json", "Print what was made as JSON.")] = False,
) -> int:
    """Makes one transportable file of an archive; safe while the recorder runs.

    Example: vmsonar bundle -o /tmp --sign /etc/ssh/ssh_host_ed25519_key
    """
    if increment and (since or until):
        raise UsageError("--increment goes by what was taken before: leave out --since and --until")
    if increment and only is not None:
        raise UsageError(
            "--increment counts records as taken: leave out --only, or the other rows are never sent"
        )
    if redact_key is not None and redact is None:
        raise UsageError("--redact-key is the key for --redact: say what to hide")
    options = BundleOptions(
        sign=sign,
        since=moment_in_utc(since, _today),
        until=moment_in_utc(until, _today),
        only=parse_only(only) if only is not None else (),
        redact=parse_kinds(redact) if redact is not None else frozenset(),
        redact_key=_read_key(redact_key) if redact_key else None,
        increment=increment,
        parquet=parquet,
    )
    bundled = _bundle(archive_in_question(archive, config), output, options, json)
    if json:
        print_json(bundled)
    else:
        print_findings(bundled.findings, to=sys.stderr)
        if bundled.output:
            say(_made(bundled) if sys.stdout.isatty() else bundled.output)
    return Exit.OK if bundled.ok else Exit.NO


def _today() -> tuple[datetime, datetime]:
    """A time without a date is one of today: the archive of this machine is being written."""
    return datetime.now(UTC), datetime.now(UTC)


def _made(bundled: Bundled) -> str:
    """What was made, how large, where, and what to do next; programs get only where."""
    what = f"bundle of {bundled.files} files, {show_size(bundled.bytes)}: {bundled.output}"
    return what if bundled.sha256 else f"{what} (next: vmsonar verify {shlex.quote(bundled.output)})"


def _bundle(source: Path, output: str, options: BundleOptions, json: bool) -> Bundled:
    if output == "-":
        if json or sys.stdout.isatty():
            raise UsageError("-o - sends the bundle itself to standard output: redirect it, without --json")
        if is_nowhere(sys.stdout):
            raise VmsonarError("standard output is closed: redirect it, or name a file with -o")
        with progress_bar("bundling") as progress:
            return bundle_to_descriptor(source, sys.stdout.fileno(), progress, options)
    if "://" in output or output.startswith(("https:", "http:", "s3:", "@")):
        target = to_url(read_url(output))
        with progress_bar("bundling") as progress:
            return bundle_to_url(source, target, progress, options)
    with writing_to(output), progress_bar("bundling") as progress:
        return bundle_to_file(source, Path(output), progress, options)


def _read_key(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_KEY)
    except OSError as error:
        raise VmsonarError(f"cannot read the key {path}: {error.strerror}") from None
