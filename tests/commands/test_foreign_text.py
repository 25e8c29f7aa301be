"""What a stranger wrote into an archive is shown on a terminal, and never obeyed."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmsonar_archive.format.identity import read_identity
from vmsonar_archive.format.journal import DROP, Journal, JournalEntry
from vmsonar_archive.records import GapRow, SysInfo
from vmsonar_archive.write.writer import ArchiveWriter

from tests.making.machines import Load
from tests.making.scenes import idle_gpu, out_of_memory
from tests.real.pseudo import Pseudo
from vmsonar.cli import run
from vmsonar.daemon.log import Log

pytestmark = pytest.mark.slow

#: A title, a cleared screen, an 8-bit CSI, a reversed order, a second line.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\n\x1b[41mfake: all is well"
#: Ours: colours by rich, a hidden and a shown cursor, a bar's line wiped away and written again.
OURS = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A")
_IDS = {"boot", "run", "machine_id", "container_id", "gpu", "uuid", "event", "state", "reason", "collector"}
VIEWS = ["summary", "jobs", "containers", "gpus", "users", "programs", "timeline", "advice", "gaps"]


def tainted(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: tainted(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [tainted(part, key) for part in value]
    free = isinstance(value, str) and key not in _IDS and not re.match(r"\d{4}-\d\d-\d\d|[0-9a-f]{32}", value)
    return f"{value}{EVIL}" if free else value


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text of every row and record is evil, a journal's reason too."""
    append, append_sysinfo = ArchiveWriter.append, ArchiveWriter.append_sysinfo

    def evil_append(
        self: ArchiveWriter, time: datetime, boot: str, boottime: int, rows: Mapping[str, list[bytes]]
    ) -> int:
        made = {
            kind: [json.dumps(tainted(json.loads(row))).encode() for row in each]
            for kind, each in rows.items()
        }
        gap = GapRow(collector=f"disk{EVIL}", reason=f"denied{EVIL}", detail=EVIL)
        return append(self, time, boot, boottime, {**made, "gap": [msgspec.json.encode(gap)]})

    def evil_sysinfo(self: ArchiveWriter, info: SysInfo) -> int:
        return append_sysinfo(self, msgspec.convert(tainted(msgspec.to_builtins(info)), SysInfo))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveWriter, "append", evil_append)
        patch.setattr(ArchiveWriter, "append_sysinfo", evil_sysinfo)
        machine = out_of_memory()
        gpu = idle_gpu().gpus
        loads = [*machine.loads, Load(500, "train.py", begin=0, cores=1.0, user="eve", gpu={gpu[0]: 50.0})]
        root = replace(machine, loads=loads, gpus=gpu).record(
            tmp_path_factory.mktemp("evil") / "archive", 1300
        )
    journal = Journal(root, lambda _point: None)
    created = read_identity(root).created
    journal.append(
        JournalEntry(op=DROP, path="2026/11/01/sample-000000-1.jsonl.zst", time=created, bytes=1, sha256="0" * 64,
              records=3, reason=f"max_bytes{EVIL}")
    )  # fmt: skip
    journal.close()
    return root


@pytest.fixture(scope="module")
def bundle(archive: Path) -> Path:
    place = archive.parent / "evil.tar"
    assert run(["bundle", "--archive", str(archive), "-o", str(place)]) == 0
    return place


def shown(folder: Path, *line: object) -> str:
    """What a command writes to a terminal, checked to be text and our own colours."""
    with Pseudo([sys.executable, "-m", "vmsonar", *map(str, line)], folder) as command:
        command.wait()
    rest = OURS.sub(b"", command.written)
    assert b"Traceback" not in rest, rest.decode()
    text = rest.decode()
    bad = [char for char in text if not char.isprintable() and char not in "\r\n"]
    assert not bad, (bad[:5], text)
    assert not any(part.startswith("\\x1b[41mfake") for part in text.splitlines())
    assert "\x1b[41m" not in command.written.decode()
    return text


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_obeys(bundle: Path, tmp_path: Path, view: str) -> None:
    shown(tmp_path, "inspect", bundle, view)
    if view == "jobs":
        assert "\\x1b]0;owned" in shown(tmp_path, "inspect", bundle, view, "--csv")
        assert "\\u001b]0;owned" in shown(tmp_path, "inspect", bundle, view, "--json")


@pytest.mark.parametrize(
    "line",
    [
        ["verify", "BUNDLE"],
        ["verify", "--deep", "ARCHIVE"],
        ["verify", "BUNDLE", "--json"],
        ["sql", "BUNDLE", "SELECT * FROM job_info LIMIT 5"],
        ["sql", "BUNDLE", "SELECT command, command AS \"a\x1b[41m\" FROM job_info", "--format", "csv"],
        ["sql", "BUNDLE", "SELECT * FROM gap LIMIT 3", "--json"],
        ["sql", "BUNDLE", "SELECT \x1b[41m"],
        ["inspect", "BUNDLE", "--job", "500"],
        ["inspect", "BUNDLE", "--html", "page\x1b[41m.html"],
        ["export", "BUNDLE", "--to", "csv", "-o", "out\x1b[41m"],
        ["recover", "BUNDLE", "-o", "saved"],
        ["recover", "nowhere\x1b[41m", "-o", "saved"],
        ["bundle", "--archive", "ARCHIVE", "-o", "b\x1b[41m.tar"],
        ["status", "--archive", "ARCHIVE"],
        ["derive", "--archive", "nowhere\x1b[41m"],
        ["\x1b[41m"],
    ],
)  # fmt: skip
def test_no_command_obeys(archive: Path, bundle: Path, tmp_path: Path, line: list[str]) -> None:
    places = {"ARCHIVE": archive, "BUNDLE": bundle}
    shown(tmp_path, *(places.get(word, word) for word in line))


def test_a_journal_s_reason_is_shown(bundle: Path, tmp_path: Path) -> None:
    assert "max_bytes\\x1b]0;owned\\x07" in shown(tmp_path, "verify", bundle)


def test_in_a_pipe_data_stay_as_they_are(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT command FROM job_info LIMIT 1"
    assert run(["sql", str(bundle), query, "--format", "csv"]) == 0
    assert EVIL in capsys.readouterr().out
    assert run(["sql", str(bundle), query, "--json"]) == 0
    assert EVIL in json.loads(capsys.readouterr().out)[0]["command"]


def test_a_log_shows_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Log().warning(f"the server says {EVIL}")
    line = capsys.readouterr().err
    assert line.endswith("\\x1b[41mfake: all is well\n")
    assert line[:-1].isprintable()
