"""The files of cloud-init/ as they were shipped: inside the wheel, or beside the sources."""

from pathlib import Path

from vmsonar_archive.errors import VmsonarError

_IN_WHEEL = Path(__file__).with_name("files")
_IN_SOURCES = Path(__file__).resolve().parents[2] / "cloud-init"


def shipped(name: str) -> Path:
    """Where a file of cloud-init/ lies here."""
    for folder in (_IN_WHEEL, _IN_SOURCES):
        if (folder / name).exists():
            return folder / name
    raise VmsonarError(f"{name} is missing from this installation: install vmsonar again")
