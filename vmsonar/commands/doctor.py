"""`vmsonar doctor`: what can be seen here, what not, and how to change that."""

from vmsonar_archive.records import Capability
from vmsonar_archive.system.errors import Exit

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption
from vmsonar.commands.output import print_json, print_table
from vmsonar.config.file import load_config
from vmsonar.health.doctor import can_record, examine
from vmsonar.host.roots import archive_to_write


def command(archive: ArchiveOption = None, config: ConfigOption = None, json: JsonOption = False) -> int:
    """Shows what could be collected here, what not, why, and what would change that, for the user who asks.

    Exit 1 only if nothing could be recorded at all.

    Example: sudo -u vmsonar vmsonar doctor
    """
    settings = load_config(config)
    found = examine(settings, archive_to_write(archive, settings.archive))
    if json:
        print_json(found)
    else:
        print_table(("", "collector", "what", "why not", "remedy"), [_row(one) for one in found])
    return Exit.OK if can_record(found) else Exit.NO


def _row(one: Capability) -> tuple[str, ...]:
    return ("yes" if one.available else "NO", one.collector, one.item, one.reason or "", one.remedy or "")
