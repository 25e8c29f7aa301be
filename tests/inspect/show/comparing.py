"""Expected text of views."""

import os
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected"


def compare(name: str, text: str) -> None:
    file = EXPECTED / f"{name}.txt"
    if os.environ.get("VMSONAR_EXPECT") == "write":
        EXPECTED.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
