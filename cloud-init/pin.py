"""Writes requirements.txt beside the wheels of a folder: each by version and hash, for pip --require-hashes."""

import hashlib
import sys
from pathlib import Path


def pinned(folder: Path) -> str:
    lines = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(lines)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "requirements.txt").write_text(pinned(place))
