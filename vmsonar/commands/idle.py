"""`vmsonar idle`: may this machine be stopped?"""

from datetime import timedelta
from typing import Annotated

from vmsonar_archive.read.idleness import Activity, idleness
from vmsonar_archive.system.errors import Exit, UsageError
from vmsonar_archive.system.rights import work_as_owner

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption, option, seconds_of
from vmsonar.commands.output import print_json, say
from vmsonar.config.file import load_config
from vmsonar.host.clock import Clock
from vmsonar.host.roots import archive_to_read


def idle_command(
    for_: Annotated[str, option("TIME", "How long it must have done nothing.", "--for")] = "30min",
    archive: ArchiveOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> int:
    """Exit 0 if this machine did nothing for so long, 1 if it did, or if that is not known: for autostop scripts.

    Example: vmsonar idle --for 30min && systemctl poweroff
    """
    seconds = seconds_of(for_, "--for")
    if not 60 <= seconds <= 7 * 86_400:
        raise UsageError(f"--for: {for_} is not between 1min and 7d")
    root = archive_to_read(archive, load_config(config).archive)
    work_as_owner([root])
    answer = idleness(root, timedelta(seconds=seconds), Clock().now())
    if json:
        print_json(answer)
    else:
        say(f"{answer.activity.value}: {answer.why}")
    return Exit.OK if answer.activity is Activity.IDLE else Exit.NO
