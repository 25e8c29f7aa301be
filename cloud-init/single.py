"""Packs a wheelhouse into one file that installs it: `single.py WHEELHOUSE FOLDER`; the same wheels, the same bytes.

A zip that Python runs (PEP 441); it holds setup.sh, so that every way to install is the same way.
"""

import re
import sys
import zipfile
from pathlib import Path

_HERE = Path(__file__).parent
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def pack(wheels: Path, target: Path) -> None:
    """Writes the file."""
    content = {
        "__main__.py": (_HERE / "single_main.py").read_bytes(),
        "setup.sh": (_HERE / "setup.sh").read_bytes(),
        "requirements.txt": (wheels / "requirements.txt").read_bytes(),
        **{f"wheels/{wheel.name}": wheel.read_bytes() for wheel in sorted(wheels.glob("*.whl"))},
    }
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
            for name, data in content.items():
                packed.writestr(zipfile.ZipInfo(name, _LONG_AGO), data)
    target.chmod(0o755)


def name_for(wheels: Path) -> str:
    """vmsonar-VERSION-PYTHONS-MACHINE.pyz, by what is in it."""
    names = [wheel.name for wheel in wheels.glob("*.whl")]
    (version,) = {name.split("-")[1] for name in names if name.startswith("vmsonar-")}
    pythons = sorted({found[1] for name in names if (found := re.search(r"-(cp3\d+)-cp3\d+-", name))})
    machines = {found[1] for name in names if (found := re.search(r"_(x86_64|aarch64)\.whl", name))}
    return "-".join(["vmsonar", version, ".".join(pythons), *sorted(machines)]) + ".pyz"


if __name__ == "__main__":
    wheelhouse, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    pack(wheelhouse, folder / name_for(wheelhouse))
    print(folder / name_for(wheelhouse))
