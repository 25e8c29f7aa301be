"""`vmsonar status` and `doctor`: is the recorder healthy, and what can be seen here?"""

from vmsonar_archive.system.errors import Exit
from vmsonar_archive.system.rights import work_as_owner

from vmsonar.commands.options import ArchiveOption, ConfigOption, JsonOption
from vmsonar.commands.output import print_json, print_table, say
from vmsonar.config.file import load_config
from vmsonar.config.quantities import show_size
from vmsonar.daemon.session import budget_of
from vmsonar.forward.state import show_status
from vmsonar.health.status import Status, status
from vmsonar.host.clock import Clock
from vmsonar.host.roots import archive_to_read, archive_to_write, forward_state

_SHOWN_ERRORS = 10


def doctor_command(
    archive: ArchiveOption = None, config: ConfigOption = None, json: JsonOption = False
) -> int:
    """Shows what could be collected here, what not, why, and what would change that, for the user who asks.

    Exit 1 only if nothing could be recorded at all.

    Example: sudo -u vmsonar vmsonar doctor
    """
    from vmsonar.health.doctor import can_record, examine

    settings = load_config(config)
    found = examine(settings, archive_to_write(archive, settings.archive))
    if json:
        print_json(found)
    else:
        rows = [
            ("yes" if one.available else "NO", one.collector, one.item, one.reason or "", one.remedy or "")
            for one in found
        ]
        print_table(("", "collector", "what", "why not", "remedy"), rows)
    return Exit.OK if can_record(found) else Exit.NO


def status_command(
    archive: ArchiveOption = None, config: ConfigOption = None, json: JsonOption = False
) -> int:
    """Says whether the recorder runs and writes: exit 0 if it is healthy, 1 if not.

    Example: vmsonar status --archive /var/lib/vmsonar
    """
    settings = load_config(config)
    root = archive_to_read(archive, settings.archive)
    state = forward_state(settings.forward.state)
    work_as_owner([root])
    answer = status(root, budget_of(settings), Clock().now(), state)
    if json:
        print_json(answer)
    else:
        _show(answer)
    return Exit.OK if answer.healthy else Exit.NO


def _show(answer: Status) -> None:
    print_table(("", ""), [(f"{name}:", value) for name, value in _lines(answer)], header=False)
    for problem in answer.problems:
        say(f"problem: {problem}")
    for error in answer.errors[-_SHOWN_ERRORS:]:
        say(f"{error.time:%H:%M:%S} UTC {error.collector}: {error.reason}: {error.detail or ''}".rstrip(": "))


def _lines(answer: Status) -> list[tuple[str, str]]:
    share = "not known yet" if answer.cpu_share is None else f"{answer.cpu_share * 100:.3f} % of one core"
    segments = "1 segment" if answer.segments == 1 else f"{answer.segments} segments"
    return [
        ("health", "healthy" if answer.healthy else "not recording" if answer.stopped else "NOT HEALTHY"),
        ("recorder", _recorder(answer)),
        ("last sample", _last(answer)),
        ("samples", f"{answer.samples} in {segments}"),
        ("last hour", f"{answer.samples_lost} samples lost, {answer.ticks_missed} ticks missed"),
        ("archive", f"{answer.archive} ({answer.archive_id})"),
        (
            "size",
            f"{show_size(answer.size)} of {show_size(answer.budget)}, {show_size(answer.free)} free on disk",
        ),
        ("journal head", f"{answer.journal_head} after {answer.journal_lines} lines"),
        ("cost", share),
        ("errors", f"{len(answer.errors)} in the last hour"),
        *(show_status(answer.forward) if answer.forward is not None else ()),
    ]


def _recorder(answer: Status) -> str:
    if answer.mode != "daemon":
        told = (
            f"stopped as asked, {answer.stopped:%Y-%m-%d %H:%M:%S} UTC" if answer.stopped else "not running"
        )
        return "single samples, by cron" if answer.mode == "cron" else told
    since = f" since {answer.running_since:%Y-%m-%d %H:%M:%S %Z}" if answer.running_since else ""
    return f"running as process {answer.pid}{since}"


def _last(answer: Status) -> str:
    if answer.last_sample is None:
        return "none"
    return f"{answer.last_sample:%Y-%m-%d %H:%M:%S} UTC, {answer.last_sample_age:.0f} s ago"
