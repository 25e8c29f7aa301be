"""Times as people give them, to every command alike."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.system.moments import moment_in_utc, parse_moment

from vmsonar import cli

NOW = datetime(2026, 11, 18, 14, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-16", "2026-11-16T00:00:00+00:00"),
        ("2026-11-16T08:30", "2026-11-16T08:30:00+00:00"),
        ("2026-11-16T08:30Z", "2026-11-16T08:30:00+00:00"),
        ("2026-11-16T08:30:00+02:00", "2026-11-16T08:30:00+02:00"),
        ("today", "2026-11-18T00:00:00+00:00"),
        ("yesterday", "2026-11-17T00:00:00+00:00"),
        ("week", "2026-11-16T00:00:00+00:00"),
        ("month", "2026-11-01T00:00:00+00:00"),
        ("now", "2026-11-18T14:30:00+00:00"),
        ("90s", "2026-11-18T14:28:30+00:00"),
        ("90min", "2026-11-18T13:00:00+00:00"),
        ("2h ago", "2026-11-18T12:30:00+00:00"),
        ("1w", "2026-11-11T14:30:00+00:00"),
    ],
)
def test_a_time(text, moment):
    assert parse_moment(text, UTC, lambda: NOW).isoformat() == moment


def test_a_zone_counts_where_the_time_names_none():
    berlin = ZoneInfo("Europe/Berlin")
    assert parse_moment("2026-11-16", berlin, lambda: NOW).isoformat() == "2026-11-16T00:00:00+01:00"


@pytest.mark.parametrize(
    "text", ["soon", "5", "", "2026-13-01", "2h later", "999999w", "99999999d", "0001-01-01T00:00+05:00"]
)
def test_no_time(text):
    with pytest.raises(UsageError, match="not a time"):
        moment_in_utc(text)


@pytest.mark.parametrize(
    "line",
    [
        ["bundle", "--archive", "/nowhere", "--since", "soon"],
        ["bundle", "--archive", "/nowhere", "--to", "soon"],
        ["sql", "/nowhere", "SELECT 1", "--from", "soon"],
        ["sql", "/nowhere", "SELECT 1", "--until", "soon"],
        ["inspect", "/nowhere", "--since", "soon"],
        ["inspect", "/nowhere", "--to", "soon"],
        ["forward", "--once", "--from", "soon"],
    ],
)
def test_every_command_takes_the_same(line, capsys):
    assert cli.run(line) == 2
    assert capsys.readouterr().err.startswith("vmsonar: not a time: 'soon'; give 2026-11-16, ")
