"""Asks the board for its power and leaves the answer below /run; run as root by a timer of its own.

`python -m vmsonar.lifecycle.ipmi` runs ipmi-dcmi(8) of FreeIPMI or ipmitool(1), no shell, with a time limit.
"""

import argparse
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from vmsonar_archive.system.errors import Exit, VmsonarError
from vmsonar_archive.system.files import AtomicFile
from vmsonar_archive.system.text import printable

from vmsonar.collectors.energy import IPMI_FILE, IpmiReading
from vmsonar.host.clock import Clock

_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_COMMANDS = (("ipmi-dcmi", "--get-system-power-statistics"), ("ipmitool", "dcmi", "power", "reading"))
_WATTS = r"[^:\n]*:\s*([0-9]+)\s*[Ww]atts"
#: Both commands' words for the same four figures.
_FIGURES = {
    "power": rf"(?:Current Power|Instantaneous power reading){_WATTS}",
    "power_min": rf"(?:Minimum Power|Minimum during sampling){_WATTS}",
    "power_max": rf"(?:Maximum Power|Maximum during sampling){_WATTS}",
    "power_average": rf"(?:Average Power|Average power reading){_WATTS}",
}
_STATE = re.compile(r"(?:Power Measurement|Power reading state is)\s*:\s*(\w+(?: \w+)?)")


def main(arguments: Sequence[str] | None = None, clock: Clock | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m vmsonar.lifecycle.ipmi", description="Reads the machine's power over IPMI."
    )
    parser.add_argument("--run", type=Path, default=Path("/run"), help="where vmsonar/ipmi.json is left")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between two runs of the timer")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds that the command may take")
    parser.add_argument("--folders", nargs="+", default=_FOLDERS, help="where the command is looked for")
    options = parser.parse_args(arguments)
    clock = clock or Clock()
    reading = IpmiReading(time=clock.now(), boottime=clock.boottime_ns(), interval=options.interval)
    try:
        fill(reading, run(find_command(options.folders), options.limit))
    except VmsonarError as error:
        reading.error = str(error)
    try:
        write(options.run / IPMI_FILE, msgspec.json.encode(reading) + b"\n")
    except OSError as error:
        return _complain(f"cannot write {options.run / IPMI_FILE}: {error.strerror}")
    return _complain(reading.error) if reading.error else Exit.OK


def find_command(folders: Sequence[str]) -> list[str]:
    """The first of the commands that is installed, by its absolute path."""
    for name, *arguments in _COMMANDS:
        for folder in folders:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return [path, *arguments]
    raise VmsonarError("no command to ask over IPMI: install freeipmi-tools or ipmitool")


def run(command: list[str], limit: float) -> str:
    """What the command prints; it and whatever it started end when its time is up."""
    environment = {"PATH": ":".join(_FOLDERS), "LC_ALL": "C"}
    name = os.path.basename(command[0])
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise VmsonarError(f"{name} gave no answer within {limit:g} s") from None
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        raise VmsonarError(
            f"{name} failed with {process.returncode}: {said[-1][:150] if said else 'no words'}"
        )
    return output.decode(errors="replace")


def fill(reading: IpmiReading, output: str) -> None:
    """Takes the figures out of what either command printed."""
    for field, pattern in _FIGURES.items():
        match = re.search(pattern, output)
        if match is not None:
            setattr(reading, field, float(match[1]))
    state = _STATE.search(output)
    if state is not None:
        reading.active = state[1].lower() in ("active", "activated")
    if reading.power is None and reading.active is None:
        raise VmsonarError("the answer over IPMI has no power in it")


def write(path: Path, content: bytes) -> None:
    """Puts the file in place in one step.

    The folder belongs to the daemon's user and we are root: no link in it is followed, nothing there is opened.
    """
    path.parent.mkdir(mode=0o755, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fresh = f".{path.name}.{secrets.token_hex(8)}"
    try:
        with AtomicFile(Path(path.name), folder=folder, mode=0o600, temporary=fresh, durable=False) as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
    finally:
        os.close(folder)


def _complain(error: str) -> int:
    print(f"vmsonar.lifecycle.ipmi: {printable(error)}", file=sys.stderr)
    return Exit.CANNOT


if __name__ == "__main__":
    sys.exit(main())
