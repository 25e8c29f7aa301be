"""`vmsonar forward`: tails the archive into Kafka or an HTTP endpoint."""

import hashlib
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from vmsonar_archive.bundle.redact import parse_kinds
from vmsonar_archive.records import KINDS
from vmsonar_archive.system.errors import AnswerIsNo, Exit, UsageError
from vmsonar_archive.system.moments import moment_in_utc, span_words
from vmsonar_archive.system.rights import make_for_owner, work_as_owner

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption, flag, option, seconds_of
from vmsonar.commands.output import print_json, say
from vmsonar.config.file import load_config
from vmsonar.config.shipping import Forward
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals, leave_soon
from vmsonar.forward.messages import ReceiverRefused
from vmsonar.forward.plan import ForwardPlan
from vmsonar.forward.run import Forwarder
from vmsonar.forward.state import ForwardStatus, is_all_sent
from vmsonar.host.roots import archive_to_read, forward_state


def forward_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    once: Annotated[
        bool, flag("--once", "Send what there is; exit 0 when all of it is acknowledged.")
    ] = False,
    timeout: Annotated[
        str, option("2min", "How long --once may take; 0s means as long as it takes.")
    ] = "2min",
    to: Annotated[
        str | None,
        option("URL", "An OpenTelemetry collector: otlp+https://host:4318, or otlp+http:// on loopback."),
    ] = None,
    since: Annotated[
        str | None,
        option("TIME", "Send again from then on: 2026-11-16T08:00Z, today, 2h (ago).", "--since", "--from"),
    ] = None,
    select: Annotated[
        list[str] | None, option("KIND", "Only this kind of row, or sysinfo; repeatable.")
    ] = None,
    redact: Annotated[
        str | None, option("KINDS", "Hide user, host, command, path, label, or all; as bundle does.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Sends every record of the archive, as it is written, to Kafka, an HTTP endpoint or an OpenTelemetry collector.

    Where to is said by the section `forward` of the configuration. Nothing is lost while the archive holds it.

    Example: vmsonar forward --once --timeout 30s
    """
    settings = load_config(config)
    forward = _with_options(_to(settings.forward, to), select, redact)
    limit, begin = seconds_of(timeout, "--timeout") or None if once else None, moment_in_utc(since)
    plan = ForwardPlan(forward, settings.metrics.places)
    root, state = archive_to_read(archive, settings.archive), forward_state(forward.state)
    make_for_owner(state, root)
    state = _own_state(state, settings.forward, plan)
    work_as_owner([root], output=True)
    signals = Signals(hurry=partial(leave_soon, signal.SIGINT))
    signals.install()
    forwarder = Forwarder(root, state, plan, Log(settings.log), signals, once, limit, begin)
    try:
        status = forwarder.run()
    except ReceiverRefused as error:
        if json and forwarder.status is not None:
            print_json(forwarder.status)
        raise AnswerIsNo(str(error)) if once else error from None
    finally:
        signals.uninstall()
    if signals.interrupted:
        return 128 + signal.SIGINT
    if begin is not None and once and is_all_sent(status) and not forwarder.sent_now:
        if json:
            print_json(status)
        until = f": the last is of {status.sent_until}" if status.sent_until else ""
        raise AnswerIsNo(f"no records {span_words(begin, None)}{until}")
    return _answer(status, once, json)


def _to(forward: Forward, url: str | None) -> Forward:
    if url is None:
        return forward
    if not url.startswith(("otlp+http://", "otlp+https://")):
        raise UsageError(
            f"--to {url}: give otlp+https://host:4318; other receivers stand in the section forward"
        )
    return msgspec.structs.replace(forward, to="otlp", url=url.removeprefix("otlp+"))


def _own_state(state: Path, configured: Forward, plan: ForwardPlan) -> Path:
    """The folder of the cursor: one below for a receiver beside the configured one, of which it says nothing."""
    is_named = configured.url is not None or configured.brokers
    if not is_named or (plan.forward.to, plan.forward.url) == (configured.to, configured.url):
        return state
    return state / f"otlp-{hashlib.sha256(plan.destination.encode()).hexdigest()[:12]}"


def _with_options(forward: Forward, select: list[str] | None, redact: str | None) -> Forward:
    chosen = select or forward.select
    unknown = [kind for kind in chosen if kind not in KINDS and kind != "sysinfo"]
    if unknown:
        raise UsageError(f"no such kind: {unknown[0]}; there are sysinfo, {', '.join(KINDS)}")
    if redact:
        parse_kinds(redact)
    hidden = [name.strip() for name in redact.split(",")] if redact else forward.redact
    return msgspec.structs.replace(forward, select=chosen, redact=hidden)


def _answer(status: ForwardStatus, once: bool, json: bool) -> int:
    if json:
        print_json(status)
    if not once:
        return Exit.OK
    if json:
        return Exit.OK if is_all_sent(status) else Exit.NO
    if is_all_sent(status):
        counts = status.counts
        passed = f"; {counts.undeliverable} undeliverable messages or points: see undeliverable.jsonl"
        unread = f"; {counts.unreadable} records cannot be read"
        told = (passed if counts.undeliverable else "") + (unread if counts.unreadable else "")
        say(f"all is sent: {counts.sent} records to {status.destination}{told}")
        return Exit.OK
    why = f" ({status.trouble})" if status.trouble else ""
    raise AnswerIsNo(
        f"{status.lag_records} records are not acknowledged by {status.destination}{why}: the archive still holds them"
    )
