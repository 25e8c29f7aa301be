"""Says for a collector's capabilities whether a file can be read here, and if not, why."""

from pathlib import Path

from vmsonar_archive.records import Capability


def readable(
    collector: str, item: str, path: Path, remedy: str | None = None, denied: str | None = None
) -> Capability:
    """A capability that is there when a file can be read; `remedy` is for an absent one, `denied` for EACCES."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except PermissionError:
        return Capability(
            collector=collector, item=item, available=False, reason=f"{path}: no permission", remedy=denied
        )
    except OSError as error:
        return Capability(
            collector=collector, item=item, available=False, reason=f"{path}: {error.strerror}", remedy=remedy
        )
    return Capability(collector=collector, item=item, available=True)
