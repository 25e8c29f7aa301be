"""Makes the rows about a container that come from the engine and from its owner's traces."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from vmsonar_archive.ids import SeriesIds
from vmsonar_archive.records import ContainerInfoRow, EventRow

from vmsonar.containers.owner import Owners
from vmsonar.containers.wire import ContainerEvent, ContainerFacts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def info_row(
    ids: SeriesIds,
    container_id: str,
    facts: ContainerFacts | None,
    owners: Owners | None,
    user_name: Callable[[int], str | None],
    engine: str | None,
    cgroup: str | None,
) -> ContainerInfoRow:
    """The info row; without facts from the engine, what the control group tells."""
    row = ContainerInfoRow(
        series_id=ids.container(container_id), container_id=container_id, engine=engine, cgroup=cgroup
    )
    if owners is not None:
        row.user_source = owners.source
        # Several people cannot be one id: then only their names stand there.
        row.user_id = owners.users[0] if len(owners.users) == 1 else None
        names = [user_name(user) or (str(user) if len(owners.users) > 1 else None) for user in owners.users]
        row.user_name = ",".join(name for name in names if name) or None
    if facts is not None:
        _add_facts(row, facts)
    return row


def _add_facts(row: ContainerInfoRow, facts: ContainerFacts) -> None:
    row.engine = facts.engine
    row.name = facts.name
    row.image = facts.image
    row.image_digest = facts.image_digest
    row.command = facts.command
    row.labels = facts.labels
    row.compose_project = facts.compose_project
    row.compose_service = facts.compose_service
    row.created = parse_time(facts.created)
    row.started = parse_time(facts.started)
    row.restart_count = facts.restart_count
    row.network_mode = facts.network_mode


def event_row(ids: SeriesIds, event: ContainerEvent) -> EventRow:
    """The row of something that the engine told."""
    return EventRow(
        event_type=f"container_{event.action}",
        happened=_EPOCH + timedelta(microseconds=event.time_ns // 1000) if event.time_ns else None,
        series_id=ids.container(event.container_id),
        container_id=event.container_id,
        exit_code=event.exit_code,
        cpu_time=event.cpu_time,
        detail=event.detail,
    )


def seen_event(ids: SeriesIds, action: str, container_id: str) -> EventRow:
    """The row of something that only the control groups showed: when exactly is not known."""
    return EventRow(
        event_type=f"container_{action}",
        series_id=ids.container(container_id),
        container_id=container_id,
        detail="seen in the control groups",
    )


def parse_time(text: str | None) -> datetime | None:
    """An engine's time in UTC; engines write nanoseconds and any offset."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None
