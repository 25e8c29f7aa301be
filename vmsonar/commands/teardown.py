"""`vmsonar teardown`: brings what was recorded to safety before the VM is gone."""

import signal
import sys
from pathlib import Path
from typing import Annotated

from vmsonar_archive.system.errors import UsageError

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption, flag, option, seconds_of
from vmsonar.commands.output import print_json, say
from vmsonar.config.file import load_config
from vmsonar.config.quantities import show_size
from vmsonar.config.schema import Config
from vmsonar.host.roots import archive_to_read
from vmsonar.lifecycle.step import Saved
from vmsonar.lifecycle.teardown import Forwarding, SaveJob, increment, resume, teardown


def teardown_command(
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    limit: Annotated[str, option("2min", "How long all of it may take.")] = "2min",
    only_new: Annotated[
        bool, flag("--increment", "Send what is new while the VM lives; for a timer.")
    ] = False,
    only_waiting: Annotated[bool, flag("--resume", "Send only bundles that wait on the disk.")] = False,
    json: JsonOption = False,
) -> int:
    """Bundles what no bundle has taken yet, signs it, brings it where the section `save` says, and forwards the rest.

    Exit 0 only when everything is safe where it was to go; 3 when a bundle still waits on this disk.

    Example: sudo vmsonar teardown --limit 60s
    """
    if only_new and only_waiting:
        raise UsageError("--increment and --resume exclude each other: give one of them")
    # Told to stop, by timeout(1) for example: what was begun is ended too, not left to itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = load_config(config)
    seconds = seconds_of(limit, "--limit")
    if seconds < 1:
        raise UsageError("--limit: less than a second is no time at all")
    job = SaveJob(archive_to_read(archive, settings.archive), settings.save, seconds)
    part = increment if only_new else resume if only_waiting else None
    saved = part(job) if part else _everything(job, settings, config)
    _tell(saved, json)
    return saved.exit_code


def _everything(job: SaveJob, settings: Config, config: Path | None) -> Saved:
    forwarding = None
    if settings.forward.brokers or settings.forward.url:
        forwarding = Forwarding(job.archive, config, settings.forward, job.seconds)
    saved = teardown(job)
    if forwarding is not None:
        forwarding.tell(saved)
    return saved


def _ended(saved: Saved) -> str:
    """How many bundles are where, and what to do next."""
    there = f"{len(saved.delivered)} bundle{'' if len(saved.delivered) == 1 else 's'} delivered"
    if saved.waiting:
        return f"{there}, {len(saved.waiting)} still on this disk (next: vmsonar teardown --resume)"
    if not saved.delivered:
        return "nothing new to save: the VM may go"
    size = sum(Path(place).stat().st_size for place in saved.delivered if Path(place).is_file())
    large = f", {show_size(size)}" if size else ""
    return f"{there}{large}: the VM may go (next: vmsonar verify, where the bundle went)"


def _tell(saved: Saved, json: bool) -> None:
    if json:
        print_json(saved)
        return
    for place in saved.delivered:
        say(place)
    if sys.stdout.isatty():
        say(_ended(saved))
    for trouble in saved.troubles:
        say(f"vmsonar teardown: {' '.join(trouble.split())}", sys.stderr)
    for bundle in saved.waiting:
        say(f"vmsonar teardown: {bundle} waits to be sent: vmsonar teardown --resume", sys.stderr)
    if saved.forwarded is False:
        why = f" ({saved.forward_trouble})" if saved.forward_trouble else ""
        say(f"vmsonar teardown: not all records are forwarded{why}; the archive holds them", sys.stderr)
    if saved.undeliverable:
        say(
            f"vmsonar teardown: the receiver refused {saved.undeliverable} messages or points, which are "
            "undeliverable: see vmsonar status; the archive holds them",
            sys.stderr,
        )
