"""Compiles the stub of libnvidia-ml.so.1, which the real pynvml then loads."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")


def build(folder: Path, version: str = "", name: str = "libnvidia-ml.so.1") -> Path:
    """The library; one with a version refuses any other driver."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / name
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f'-DVERSION="{version}"']
    command = ["gcc", *flags, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return library
