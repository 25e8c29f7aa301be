"""`vmsonar collect`: takes in what machines ship."""

from pathlib import Path
from typing import Annotated

import msgspec
from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.system.rights import write_as_owner
from vmsonar_inspect.facts.units import plural

from vmsonar.commands.options import ConfigOption, JsonOption, argument, flag, option
from vmsonar.commands.output import print_json, say
from vmsonar.config.file import load_config
from vmsonar.config.shipping import FleetSection
from vmsonar.daemon.log import Log
from vmsonar.daemon.signals import Signals
from vmsonar.fleet.collector import Collector
from vmsonar.fleet.intake import intake_by
from vmsonar.fleet.store import fleet_place, open_fleet

FleetOption = Annotated[Path | None, option("DIR", "The fleet's folder. [env: VMSONAR_FLEET]", "--fleet")]


def collect_command(
    sources: Annotated[
        list[str] | None, argument("[SOURCE]...", "Folders and s3:// addresses where bundles arrive.")
    ] = None,
    fleet: FleetOption = None,
    config: ConfigOption = None,
    once: Annotated[bool, flag("--once", "Take what is there, and end.")] = False,
    keep: Annotated[bool, flag("--keep", "Leave in the sources what was filed.")] = False,
    json: JsonOption = False,
) -> int:
    """Takes in what machines ship and keeps it as ordinary archives, one per machine.

    Bundles and increments come from folders and buckets, records from Kafka (section `fleet` of the configuration).
    Without any of them it keeps the fleet in order and watches its machines: beside `vmsonar serve`, which takes
    uploads.

    Example: vmsonar collect /srv/bundles --fleet /var/lib/vmsonar-fleet
    """
    configured = load_config(config)
    settings = _with_options(configured.fleet, sources, keep)
    if once and not settings.sources and not settings.kafka.brokers:
        raise UsageError("nothing to collect from: name a folder or an s3:// address, or set fleet.sources")
    root = fleet_place(fleet, settings.place)
    write_as_owner(root)
    intake = intake_by(open_fleet(root, lake=settings.lake_at, create=True), settings)
    signals = Signals()
    signals.install()
    try:
        done = Collector(settings, intake, Log(configured.log), signals, once=once).run()
    finally:
        signals.uninstall()
    if json:
        print_json(done)
    elif once:
        filed = f"filed {plural(done.accepted, 'bundle')} with {plural(done.records, 'new record')}"
        left = f", {done.waiting} not complete yet or no plain files" if done.waiting else ""
        say(f"{filed}, refused {done.refused}{left}")
    if not once:
        return Exit.OK
    return Exit.CANNOT if done.failed else Exit.NO if done.refused else Exit.OK


def _with_options(settings: FleetSection, sources: list[str] | None, keep: bool) -> FleetSection:
    return msgspec.structs.replace(
        settings, sources=sources or settings.sources, keep_shipped=keep or settings.keep_shipped
    )
