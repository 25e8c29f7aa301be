"""`vmsonar forward`: tails the archive into Kafka or an HTTP endpoint."""

from typing import Annotated

import msgspec
import typer
from vmsonar_archive.bundle.redact import parse_kinds
from vmsonar_archive.errors import AnswerIsNo, Exit, UsageError
from vmsonar_archive.moments import moment_in_utc
from vmsonar_archive.records import KINDS

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption
from vmsonar.commands.output import print_json
from vmsonar.config_file import load_config
from vmsonar.config_forward import Forward
from vmsonar.forward.build import Plan
from vmsonar.forward.run import Forwarder, Way, is_all_sent
from vmsonar.forward.sender import Refused
from vmsonar.forward.status import ForwardStatus
from vmsonar.log import Log
from vmsonar.places import archive_to_read, forward_state
from vmsonar.quantities import parse_duration
from vmsonar.signals import Signals


def command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Send what there is; exit 0 when all of it is acknowledged.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="2min", help="How long --once may take; 0s means as long as it takes.")
    ] = "2min",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            "--from",
            metavar="TIME",
            help="Send again from then on: 2026-11-16T08:00Z, today, 2h (ago).",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only this kind of row, or sysinfo; repeatable.")
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(metavar="KINDS", help="Hide user, host, command, path, label, or all; as bundle does."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Sends every record of the archive, as it is written, to Kafka or an HTTP endpoint.

    Where to is said by the section `forward` of the configuration. Nothing is lost while the archive holds it.

    Example: vmsonar forward --once --timeout 30s
    """
    settings = load_config(config)
    forward = _with_options(settings.forward, select, redact)
    way = Way(once, _duration(timeout) if once else None, moment_in_utc(since))
    plan = Plan(forward)
    signals = Signals()
    signals.install()
    try:
        forwarder = Forwarder(
            archive_to_read(archive, settings.archive),
            forward_state(forward.state),
            plan,
            way,
            Log(settings.log),
            signals,
        )
        status = forwarder.run()
    except Refused as error:
        raise AnswerIsNo(str(error)) if once else error from None
    finally:
        signals.uninstall()
    return _answer(status, once, json)


def _with_options(forward: Forward, select: list[str] | None, redact: str | None) -> Forward:
    chosen = select or forward.select
    unknown = [kind for kind in chosen if kind not in KINDS and kind != "sysinfo"]
    if unknown:
        raise UsageError(f"no such kind: {unknown[0]}; there are sysinfo, {', '.join(KINDS)}")
    if redact:
        parse_kinds(redact)
    hidden = [name.strip() for name in redact.split(",")] if redact else forward.redact
    return msgspec.structs.replace(forward, select=chosen, redact=hidden)


def _duration(text: str) -> float | None:
    try:
        return float(parse_duration(text)) or None
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from None


def _answer(status: ForwardStatus, once: bool, json: bool) -> int:
    if json:
        print_json(status)
    if not once:
        return Exit.OK
    left = status.lag_records
    if not json and is_all_sent(status):
        print(f"all is sent: {status.counts.sent} records to {status.destination}")
    if is_all_sent(status):
        return Exit.OK
    if json:
        return Exit.NO
    why = f" ({status.trouble})" if status.trouble else ""
    raise AnswerIsNo(
        f"{left} records are not acknowledged by {status.destination}{why}: the archive still holds them"
    )
