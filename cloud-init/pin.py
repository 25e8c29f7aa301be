"""Writes requirements.txt beside the wheels of a folder: each by version and hashes, for pip --require-hashes."""

import hashlib
import sys
from pathlib import Path


def pinned(folder: Path) -> str:
    """One line per package; several wheels of it, for several Pythons, are several hashes."""
    hashes: dict[str, list[str]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        hashes.setdefault(f"{name}=={version}", []).append(f"--hash=sha256:{digest}")
    return "".join(f"{package} {' '.join(found)}\n" for package, found in hashes.items())


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "requirements.txt").write_text(pinned(place))
