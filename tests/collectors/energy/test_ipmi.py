"""The root helper (vmsonar.lifecycle.ipmi): both commands' words, a command that hangs, a folder that is not ours."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collectors.energy.meters import FREEIPMI, UNITS
from vmsonar.collectors.energy import read_ipmi_file
from vmsonar.lifecycle.ipmi import main

IPMITOOL = """
    Instantaneous power reading:                   142 Watts
    Minimum during sampling period:                  8 Watts
    Maximum during sampling period:                467 Watts
    Average power reading over sample period:      141 Watts
    IPMI timestamp:                           Mon Nov 16 14:00:31 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated
"""


def command(folder: Path, name: str, body: str) -> None:
    """A command in place of the real one."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def ask(tmp_path: Path, *more: str) -> tuple[int, dict[str, object]]:
    code = main(["--run", str(tmp_path / "run"), "--folders", str(tmp_path / "bin"), *more])
    return code, json.loads((tmp_path / "run/vmsonar/ipmi.json").read_text())


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()


def figures(content: dict[str, object]) -> list[object]:
    return [content.get(name) for name in ("power", "power_min", "power_max", "power_average", "active")]


def test_freeipmi(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", f"[ $# = 1 ] && cat <<'E'\n{FREEIPMI}\nE")
    code, content = ask(tmp_path, "--interval", "30")
    assert code == 0
    assert figures(content) == [332, 163, 487, 265, True]
    assert content.keys() == {
        "time", "boottime", "interval", "power", "power_min", "power_max", "power_average", "active"
    }  # fmt: skip
    assert content["interval"] == 30
    path = tmp_path / "run/vmsonar/ipmi.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert read_ipmi_file(path).meter == "ipmi:dcmi"
    assert os.listdir(path.parent) == ["ipmi.json"]


def test_ipmitool(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ipmitool", f"[ \"$*\" = 'dcmi power reading' ] && cat <<'E'\n{IPMITOOL}\nE")
    code, content = ask(tmp_path)
    assert (code, figures(content)) == (0, [142, 8, 467, 141, True])


def test_a_machine_that_does_not_measure_has_no_0_for_a_power(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", "echo 'Power Measurement : Not Available'")
    code, content = ask(tmp_path)
    assert (code, figures(content)) == (0, [None, None, None, None, False])


def test_a_command_that_hangs_is_ended_with_its_children(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    begin = time.monotonic()
    code, content = ask(tmp_path, "--limit", "0.5")
    assert time.monotonic() - begin < 60
    assert (code, content["error"]) == (3, "ipmi-dcmi gave no answer within 0.5 s")
    assert capsys.readouterr().err == "vmsonar.lifecycle.ipmi: ipmi-dcmi gave no answer within 0.5 s\n"
    child = int((tmp_path / "child").read_text())
    assert not _lives(child)


def _lives(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("echo 'Could not open device' >&2; exit 1", "ipmi-dcmi failed with 1: Could not open device"),
        ("echo hello", "the answer over IPMI has no power in it"),
    ],
)
def test_a_failure_is_left_for_the_daemon(tmp_path: Path, body: str, error: str) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", body)
    code, content = ask(tmp_path)
    assert (code, content["error"]) == (3, error)


def test_no_command(tmp_path: Path) -> None:
    code, content = ask(tmp_path)
    assert code == 3
    assert content["error"] == "no command to ask over IPMI: install freeipmi-tools or ipmitool"


def test_links_laid_by_the_folders_owner_are_replaced_not_followed(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", f"cat <<'E'\n{FREEIPMI}\nE")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run/vmsonar").mkdir()
    (tmp_path / "run/vmsonar/ipmi.json").symlink_to(victim)
    code, content = ask(tmp_path)
    assert (code, content["power"], victim.read_text()) == (0, 332, "mine")
    assert not (tmp_path / "run/vmsonar/ipmi.json").is_symlink()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", f"cat <<'E'\n{FREEIPMI}\nE")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/vmsonar").symlink_to(tmp_path / "elsewhere")
    assert main(["--run", str(tmp_path / "run"), "--folders", str(tmp_path / "bin")]) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert capsys.readouterr().err.count("\n") == 1


def test_it_runs_as_a_module_and_loads_nothing_heavy(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ipmi-dcmi", f"cat <<'E'\n{FREEIPMI}\nE")
    program = (
        "import runpy, sys\n"
        f"sys.argv[1:] = ['--run', {str(tmp_path / 'run')!r}, '--folders', {str(tmp_path / 'bin')!r}]\n"
        "try:\n    runpy.run_module('vmsonar.lifecycle.ipmi', run_name='__main__')\n"
        "except SystemExit as end:\n    print(int(end.code))\n"
        "print([name for name in ('pyarrow', 'rich', 'typer', 'psutil', 'yaml') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n[]\n", "")


def test_the_timer_is_a_unit_of_its_own_that_nothing_enables() -> None:
    service = (UNITS / "vmsonar-ipmi.service").read_text()
    assert "-m vmsonar.lifecycle.ipmi " in service
    assert "[Install]" not in service
    assert "TimeoutStartSec=20" in service
    others = [path for path in UNITS.parent.rglob("*") if path.is_file() and path.parent != UNITS]
    assert not [path for path in others if "enable --now vmsonar-ipmi" in path.read_text(errors="replace")]
