"""What the single-file build runs: installs the wheels that it holds into /opt/vmsonar; nothing is fetched.

sudo python3 vmsonar.pyz [OPTIONS OF vmsonar install]
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__.strip())
        return 0
    if os.geteuid() != 0:
        return fail("it installs into /opt/vmsonar and /etc/systemd/system: run it as root")
    with zipfile.ZipFile(Path(__file__).parent) as packed, tempfile.TemporaryDirectory() as folder:
        if (reason := misfit(packed.namelist())) is not None:
            return fail(reason)
        packed.extractall(folder)
        Path(folder, "requirements.txt").rename(Path(folder, "wheels", "requirements.txt"))
        settings = {**os.environ, "VMSONAR_WHEELS": f"{folder}/wheels"}
        settings.pop("VMSONAR_SINGLE", None)
        return subprocess.run(["sh", f"{folder}/setup.sh", *arguments], env=settings, check=False).returncode


def misfit(names: list[str]) -> str | None:
    """Why the wheels are not for the Python that is here; None when they are."""
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tags = {found[1] for name in names if (found := re.search(r"-(cp3\d+)-cp3\d+-", name))}
    machines = {found[1] for name in names if (found := re.search(r"_(x86_64|aarch64)\.whl", name))}
    if here not in tags or os.uname().machine not in machines:
        built = f"{', '.join(sorted(tags))} on {', '.join(sorted(machines))}"
        return f"it was built for {built}, and here is {here} on {os.uname().machine}: build one for that"
    return None


def fail(reason: str) -> int:
    print(f"vmsonar: {reason}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
