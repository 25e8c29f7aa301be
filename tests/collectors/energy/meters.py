"""Meters as files, and what FreeIPMI prints."""

from datetime import UTC, datetime
from pathlib import Path

START = datetime(2026, 11, 16, 14, 0, tzinfo=UTC)


RANGE = 262_143_328_850
UNITS = Path(__file__).parents[3] / "cloud-init/units"


FREEIPMI = """\
Current Power                        : 332 Watts
Minimum Power over sampling duration : 163 watts
Maximum Power over sampling duration : 487 watts
Average Power over sampling duration : 265 watts
Time Stamp                           : 11/16/2026 - 14:00:31
Statistics reporting time period     : 1000 milliseconds
Power Measurement                    : Active
"""


def write(root: Path, files: dict[str, str | int]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
