"""The last sample of an archive, without reading the rest."""

from pathlib import Path

from vmsonar_archive.errors import VmsonarError
from vmsonar_archive.layout import SAMPLE
from vmsonar_archive.lines import BadLine, decode_sample
from vmsonar_archive.reader import open_archive
from vmsonar_archive.records import Sample


def last_sample(root: Path) -> Sample | None:
    """The newest sample that can be read; None for an archive without one, or no archive."""
    try:
        archive = open_archive(root)
    except VmsonarError:
        return None
    with archive:
        for segment in reversed(archive.segments(SAMPLE)):
            line = None
            for line in archive.lines(segment):  # noqa: B007 - the last one is wanted
                pass
            if line is not None:
                try:
                    return decode_sample(line)
                except BadLine:
                    continue
    return None
