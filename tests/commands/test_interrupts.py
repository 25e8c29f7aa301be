"""One Ctrl-C ends every command within a second: exit 130, no traceback, no half file, nobody left at work."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.making.scenes import healthy
from tests.real.pseudo import Pseudo

pytestmark = pytest.mark.slow

#: What is promised is one; the rest is for a busy machine.
SECONDS = 5.0
LONG = "SELECT count(*) FROM range(100000000) AS a, range(3000) AS b WHERE (a.range * 7 + b.range) % 13 = 5"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy().record(tmp_path_factory.mktemp("interrupts") / "archive", 600)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("work", "scratch"):
        (tmp_path / name).mkdir()
    return tmp_path


def begin(place: Path, stuck: str, line: list[str]) -> Pseudo:
    more = {"STUCK_MARK": str(place / "mark"), "TMPDIR": str(place / "scratch"), "PYTHONPATH": str(ROOT)}
    return Pseudo([sys.executable, "-m", "tests.commands.stuck", stuck, *line], place / "work", more)


def wait_for(path: Path, command: Pseudo) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        command.read(0.02)
        assert time.monotonic() < end, command.written


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_work(command: Pseudo) -> None:
    """Until the query itself runs: nothing before it takes that much."""
    begun, end = cpu_seconds(command.pid), time.monotonic() + 60
    while cpu_seconds(command.pid) < begun + 2.5:
        command.read(0.02)
        assert time.monotonic() < end, command.written


def session_of(pid: int) -> list[int]:
    """Processes that are still there of the session that a command led."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and int(fields[3]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def check_nothing_is_left(place: Path, command: Pseudo) -> None:
    assert b"Traceback" not in command.written
    assert b"nanobind" not in command.written
    assert list((place / "work").rglob("*")) == []
    assert list((place / "scratch").iterdir()) == []
    end = time.monotonic() + SECONDS
    while left := session_of(command.pid):
        assert time.monotonic() < end, left
        time.sleep(0.02)


CASES = {
    "sql": (
        "vmsonar_inspect.tables.database:Tables.locked_sql",
        ["sql", "ARCHIVE", LONG, "-o", "answer.csv"],
    ),
    "sql on the screen": ("vmsonar_inspect.tables.database:Tables.locked_sql", ["sql", "ARCHIVE", LONG]),
    "sql to parquet": (
        "vmsonar_inspect.tables.database:Tables.locked_sql",
        ["sql", "ARCHIVE", LONG, "--format", "parquet", "-o", "answer.parquet"],
    ),
    "inspect": ("vmsonar_inspect.facts.queries:Queries.rows", ["inspect", "ARCHIVE", "jobs"]),
    "page": ("vmsonar_inspect.show.page.build:_page", ["inspect", "ARCHIVE", "--html", "page.html"]),
    "csv": (
        "vmsonar_inspect.export.csv:write_csv",
        ["export", "ARCHIVE", "--to", "csv", "-o", "."],
    ),
    "verify": ("vmsonar_archive.verify.content:check_segment", ["verify", "ARCHIVE"]),
    "verify several": ("vmsonar_archive.verify.path:verify_path", ["verify", "ARCHIVE", "ARCHIVE"]),
    "bundle": ("vmsonar_archive.bundle.make:work", ["bundle", "--archive", "ARCHIVE", "-o", "b.tar"]),
    "recover": ("vmsonar_archive.verify.recover:rewrite", ["recover", "ARCHIVE", "-o", "saved"]),
    "derive": ("vmsonar_archive.parquet.derive:due_days", ["derive", "--archive", "ARCHIVE"]),
}


@pytest.mark.parametrize("case", CASES)
def test_one_ctrl_c_ends_it(archive: Path, place: Path, case: str) -> None:
    stuck, line = CASES[case]
    with begin(place, stuck, [str(archive) if word == "ARCHIVE" else word for word in line]) as command:
        wait_for(place / "mark", command)
        if case.startswith("sql"):
            wait_for_work(command)
        command.press(b"\x03")
        assert command.wait(SECONDS) == 130, command.written
        check_nothing_is_left(place, command)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("case", ["sql", "csv", "verify several"])
def test_other_signals_tidy_up_too(archive: Path, place: Path, case: str, number: int) -> None:
    stuck, line = CASES[case]
    with begin(place, stuck, [str(archive) if word == "ARCHIVE" else word for word in line]) as command:
        wait_for(place / "mark", command)
        if case.startswith("sql"):
            wait_for_work(command)
        os.kill(command.pid, number)
        assert command.wait(SECONDS) == 128 + number
        check_nothing_is_left(place, command)


def test_folders_of_other_layouts_stay_empty(archive: Path, place: Path) -> None:
    with begin(
        place,
        "vmsonar_inspect.export.sonar_tree:SonarTree.finish",
        ["export", str(archive), "--to", "sonar", "-o", "tree"],
    ) as command:
        wait_for(place / "mark", command)
        command.press(b"\x03")
        assert command.wait(SECONDS) == 130
        assert [path for path in (place / "work").rglob("*") if path.is_file()] == []


def test_forwarding_to_a_server_that_never_answers(archive: Path, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = place / "config.yaml"
        port = server.getsockname()[1]
        config.write_text(
            f"archive: {archive}\nforward:\n  state: {place / 'state'}\n"
            f"  to: http\n  url: http://127.0.0.1:{port}/\n  cluster: x.example.org\n"
        )
        with begin(
            place, "", ["forward", "--once", "--timeout", "10min", "--config", str(config)]
        ) as command:
            server.settimeout(60)
            with server.accept()[0] as connection:
                connection.recv(1)
                command.press(b"\x03")
                assert command.wait(SECONDS) == 130
        check_nothing_is_left(place, command)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_command_is_even_loaded(place: Path, number: int) -> None:
    """The import of typer stands for all that a slow disk may take its time to load."""
    (place / "slow").mkdir()
    (place / "slow/typer.py").write_text(
        f"import time\nopen({str(place / 'mark')!r}, 'w').close()\ntime.sleep(60)\n"
    )
    more = {"PYTHONPATH": f"{place / 'slow'}:{ROOT}", "TMPDIR": str(place / "scratch")}
    line = [sys.executable, "-m", "vmsonar", "verify", "nothing"]
    with Pseudo(line, place / "work", more) as command:
        wait_for(place / "mark", command)
        os.kill(command.pid, number)
        assert command.wait(SECONDS) == 128 + number
        assert b"Traceback" not in command.written
