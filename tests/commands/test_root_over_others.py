"""Root over a stranger's archive: whatever lies there, root's files are neither read nor changed, and nothing hangs."""

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.system.files import Refused
from vmsonar_archive.verify.path import verify_path

from tests.parts import requires
from tests.real.hostile_trees import SECRET, TRAPS, Place, laid, make_model
from tests.real.stranger import ANOTHER, STRANGER, environment, vmsonar
from vmsonar.cli import COMMANDS

pytestmark = [pytest.mark.slow, requires("strace"), requires("stranger")]

#: No command needs a tenth of that; one that waits for a FIFO waits for ever.
_HANGS = 60
_CALLS = (
    "open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,chmod,fchmodat,chown,"
    "lchown,fchownat,link,linkat,symlink,symlinkat,truncate,utimensat,mknod,mknodat,setxattr"
)
CONFIG = {
    "collectors": dict.fromkeys(("process", "job", "container", "gpu", "energy"), "none"),
    "log": "warning",
}
#: Every command that has to do with an archive: its words, with the places of one tree.
RUNS: dict[str, str] = {
    "daemon": "daemon --archive {tree} --config {private}/config.yaml --interval 1s --for 1s",
    "sample": "sample --archive {tree} --config {private}/config.yaml",
    "status": "status --archive {tree} --config {private}/config.yaml",
    "doctor": "doctor --archive {tree} --config {private}/config.yaml",
    "forward": "forward --once --timeout 2s --archive {tree} --config {private}/config.yaml",
    "metrics": "metrics --archive {tree} --config {private}/config.yaml",
    "forward redacted": "forward --once --timeout 2s --redact all --archive {tree} --config {private}/config.yaml",
    "teardown": "teardown --limit 10s --archive {tree} --config {private}/config.yaml",
    "teardown increment": "teardown --increment --limit 10s --archive {tree} --config {private}/config.yaml",
    "bundle": "bundle --archive {tree} -o {output}/bundle.tar",
    "bundle redacted": "bundle --redact all --parquet --archive {tree} -o {output}/redacted.tar",
    "verify": "verify --deep {tree}",
    "verify many": "verify {tree} {tree}",
    "recover": "recover {tree} -o {output}/saved",
    "inspect": "inspect {tree} jobs",
    "inspect page": "inspect {tree} --html {output}/page.html",
    "sql": "sql {tree} 'SELECT * FROM samples'",
    "sql to a file": "sql {tree} 'SELECT * FROM process' -o {output}/answer.csv",
    "export csv": "export {tree} --to csv -o {output}/csv",
    "export parquet": "export {tree} --to parquet -o {output}/lake",
    "export sonar": "export {tree} --to sonar -o {output}/sonar",
    "derive": "derive --archive {tree}",
    "compare": "compare {tree} {tree}",
    "top": "top {tree}",
    "idle": "idle --archive {tree}",
}
#: Commands that open no archive, or only those that they made themselves.
WITHOUT = {"sysinfo", "install", "uninstall", "cloud-init", "run", "runs", "slurm", "collect", "serve"}
#: A few trees with many traps each, for every day.
SHORT = (
    "namespace is a FIFO + today is a link + tables are FIFOs + uploads are a link + the state is made of links",
    "identity is a FIFO",
    "earlier is a link + lock is a FIFO + segments are hard links + temporary names are links",
    "a day is exchanged again and again + tables are links + namespace is a link",
)
#: Commands that go different ways into an archive.
OFTEN = {
    "daemon", "sample", "status", "forward", "teardown increment", "bundle", "verify", "recover", "inspect",
    "sql to a file", "export parquet", "derive",
}  # fmt: skip


def test_every_command_is_tried() -> None:
    assert {words.split()[0] for words in RUNS.values()} | WITHOUT == set(COMMANDS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {ours: make_model(folder / str(ours), ours=ours) for ours in (True, False)}


@dataclass
class Outcome:
    """What became of one command over one tree."""

    name: str
    seconds: float = 0.0
    code: int = 0
    said: str = ""
    wrong: list[str] = field(default_factory=list)


def prepare(place: Place) -> None:
    """What root says: a configuration, and a token that nobody else may read."""
    token = place.private / "token"
    token.write_text("of-root")
    token.chmod(0o600)
    told = {
        "forward": {"to": "http", "url": "http://127.0.0.1:9/", "cluster": "lab", "auth": "bearer",
                    "token_file": str(token), "state": str(place.state)},
        "save": {"to": str(place.output), "waiting": str(place.waiting), "sign": "none"},
    }  # fmt: skip
    (place.private / "config.yaml").write_text(json.dumps(CONFIG | told))


def look(folder: Path) -> dict[str, tuple[int, ...] | str]:
    """All that can be seen of root's folder, but not when it was read."""
    found: dict[str, tuple[int, ...] | str] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns)
        if path.is_file():
            found[f"{path} content"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def tried(name: str, place: Place) -> Outcome:
    """Runs one command as root under strace."""
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", RUNS[name])]
    words = [
        word.format(tree=place.tree, private=place.private, output=place.output) if "{" in word else word
        for word in words
    ]
    trace = place.private / "trace"
    known = environment() | {"TMPDIR": str(place.scratch), "HOME": str(place.private)}
    before = look(place.root)
    outcome = Outcome(name)
    began = time.monotonic()
    process = subprocess.Popen(
        ["strace", "-f", "-y", "--seccomp-bpf", "-qq", "-s", "4096", "-e", f"trace={_CALLS}", "-o", str(trace),
         *vmsonar(*words)],
        cwd=place.private, env=known, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        told, _ = process.communicate(timeout=_HANGS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        told, _ = process.communicate()
        outcome.wrong.append("hangs")
    outcome.seconds = time.monotonic() - began
    outcome.code, outcome.said = process.returncode, told.decode(errors="replace")
    if not outcome.wrong and outcome.code not in (0, 1, 2, 3):
        outcome.wrong.append(f"exit {outcome.code}: {outcome.said[-300:]}")
    if "Traceback" in outcome.said:
        outcome.wrong.append(f"traceback: {outcome.said[-600:]}")
    if SECRET in outcome.said:
        outcome.wrong.append("tells the secret")
    if look(place.root) != before:
        outcome.wrong.append("changes what is root's")
    outcome.wrong += escapes(trace, place)
    outcome.wrong += [f"leaks into {path}" for path in leaks(place)]
    return outcome


def leaks(place: Place) -> Iterator[Path]:
    for path in place.output.rglob("*"):
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
            yield path


def escapes(trace: Path, place: Place) -> Iterator[str]:
    """What was opened for writing or changed outside the tree, and whatever of root's was opened at all."""
    allowed = tuple(
        f"{folder}/"
        for folder in (
            place.home,
            place.waiting,
            place.output,
            place.scratch,
            place.private,
            "/dev",
            "/proc/self",
        )
    )
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)\) += (\d+)(?:<(.*)>)?", line)
        # What Python and its packages keep for themselves is not ours.
        if call is None or "__pycache__" in line or "/site-packages/" in line:
            continue
        name, arguments, _, opened = call.groups()
        if name.startswith(("open", "creat")):
            # The folder itself is what root named, wherever a link leads at that moment; what lies in it is not.
            named = f'"{place.tree}"' in arguments and "O_DIRECTORY" in arguments
            if opened and opened.startswith(f"{place.root}") and not named:
                yield f"opens {line}"
            writes = re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", arguments) or name == "creat"
            if writes and opened and opened.startswith("/") and not f"{opened}/".startswith(allowed):
                yield f"writes {line}"
            continue
        for folder, path in re.findall(
            r'(?:AT_FDCWD|\d+)?(?:<([^>]*)>)?(?:, )?"((?:[^"\\]|\\.)*)"', arguments
        ):
            whole = os.path.normpath(os.path.join(folder or str(place.private), path))
            if not f"{whole}/".startswith(allowed) and name != "symlinkat":
                yield f"changes {line}"


def all_tried(trap: str, models: dict[bool, Path], names: list[str]) -> list[Outcome]:
    """Each command over a fresh tree, two at a time."""

    def one(name: str) -> Outcome:
        with laid(trap, models) as place:
            prepare(place)
            return tried(name, place)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, names))


@pytest.mark.parametrize("trap", SHORT)
def test_root_is_not_led_astray(trap: str, models: dict[bool, Path]) -> None:
    names = [name for name in RUNS if name in OFTEN]
    outcomes = all_tried(trap, models, names)
    assert [(outcome.name, outcome.wrong) for outcome in outcomes if outcome.wrong] == []


@pytest.mark.chaos
@pytest.mark.parametrize("trap", TRAPS)
def test_no_command_is_led_astray_by_any_trap(trap: str, models: dict[bool, Path]) -> None:
    outcomes = all_tried(trap, models, list(RUNS))
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    print(f"{trap}: {len(outcomes)} runs, slowest {slowest.name} {slowest.seconds:.1f} s")
    assert [(outcome.name, outcome.wrong) for outcome in outcomes if outcome.wrong] == []


@pytest.fixture
def place(models: dict[bool, Path]) -> Iterator[Place]:
    """A stranger who means no harm."""
    with laid("", models) as place:
        prepare(place)
        yield place


def ran(place: Place, *words: str | Path) -> subprocess.CompletedProcess[str]:
    known = environment() | {"TMPDIR": str(place.scratch), "HOME": str(place.private)}
    return subprocess.run(
        vmsonar(*map(str, words)), cwd=place.private, env=known, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.mark.parametrize("words", [("derive",), ("sample",), ("daemon", "--for", "1s", "--interval", "1s")])
def test_what_root_leaves_in_an_archive_is_its_owners(place: Place, words: tuple[str, ...]) -> None:
    before = len(list(place.tree.rglob("*")))
    done = ran(place, *words, "--archive", place.tree, "--config", place.private / "config.yaml")
    assert done.returncode == 0, done.stderr
    assert len(list(place.tree.rglob("*"))) > before
    assert owners(place.tree) == {STRANGER}
    bundled = ran(place, "bundle", "--archive", place.tree, "-o", place.output / "b.tar")
    assert bundled.returncode == 0, bundled.stderr
    assert verify_path(place.output / "b.tar").ok


def test_a_new_archive_in_a_home_is_its_owners_and_one_of_roots_is_refused(place: Place) -> None:
    words = ("sample", "--config", place.private / "config.yaml", "--archive")
    assert ran(place, *words, place.home / "new").returncode == 0
    assert owners(place.home / "new") == {STRANGER}
    (place.home / "roots").mkdir()
    done = ran(place, *words, place.home / "roots")
    assert done.returncode == 3
    assert "who could exchange it" in done.stderr
    assert list((place.home / "roots").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (("sql", "TREE", "SELECT count(*) AS n FROM samples", "-o", "OUT/a.csv"), "a.csv"),
        (("inspect", "TREE", "--html", "OUT/a.html"), "a.html"),
        (("export", "TREE", "--to", "csv", "-o", "OUT/csv"), "csv/samples.csv"),
        (("export", "TREE", "--to", "parquet", "-o", "OUT/lake"), "lake"),
        (("recover", "TREE", "-o", "OUT/saved"), "saved/archive.json"),
    ],
)
def test_outputs_are_written_with_the_rights_of_root(place: Place, words: tuple[str, ...], made: str) -> None:
    done = ran(
        place, *(word.replace("TREE", str(place.tree)).replace("OUT", str(place.output)) for word in words)
    )
    assert done.returncode == 0, done.stderr
    assert (place.output / made).exists()
    assert owners(place.output) == {0}
    assert list(place.scratch.iterdir()) == []
    if made == "a.csv":
        assert (place.output / made).read_text() == "n\n32\n"
    if words[0] == "recover":
        assert verify_path(place.output / "saved").ok
        assert ran(place, "recover", place.tree, "-o", place.output / "saved").returncode == 2


def test_waiting_bundles_lie_where_nobody_exchanges_them(place: Place) -> None:
    config = json.loads((place.private / "config.yaml").read_text())
    config["save"]["waiting"] = str(place.home / "waiting")
    (place.home / "waiting").mkdir()
    (place.private / "config.yaml").write_text(json.dumps(config))
    done = ran(
        place, "teardown", "--increment", "--archive", place.tree, "--config", place.private / "config.yaml"
    )
    assert done.returncode == 3
    assert "who could exchange it while root writes there" in done.stderr


def test_folders_of_two_owners_are_not_mixed(place: Place) -> None:
    other = place.base / "other"
    subprocess.run(["cp", "-r", str(place.tree), str(other)], check=True)
    subprocess.run(["chown", "-R", f"{ANOTHER}:{ANOTHER}", str(other)], check=True)
    for words in (("verify", place.tree, other), ("sql", place.tree, other, "SELECT 1")):
        done = ran(place, *words)
        assert done.returncode == 3
        assert f"{place.tree} to uid {STRANGER} and {other} to uid {ANOTHER}" in done.stderr


def test_the_state_of_forwarding_is_the_owners(place: Place) -> None:
    words = ("forward", "--once", "--timeout", "1s", "--archive", place.tree)
    config = json.loads((place.private / "config.yaml").read_text())
    config["forward"]["state"] = str(place.base / "state")
    (place.private / "config.yaml").write_text(json.dumps(config))
    done = ran(place, *words, "--config", place.private / "config.yaml")
    assert "Connection refused" in done.stderr  # the token, which only root can read, was read
    assert owners(place.base / "state") == {STRANGER}
    os.chown(place.base / "state", ANOTHER, ANOTHER)
    done = ran(place, *words, "--config", place.private / "config.yaml")
    assert done.returncode == 3
    assert f"{place.base / 'state'} belongs to uid {ANOTHER}" in done.stderr


def test_the_interface_opens_nothing_of_others_as_root(place: Place) -> None:
    with pytest.raises(Refused, match="root does not open it"):
        open_archive(place.tree)


def test_a_program_that_the_owner_cannot_read_is_told_of(place: Place) -> None:
    hidden = place.private / "packages"
    hidden.mkdir()
    for name, folder in (("vmsonar", "."), ("vmsonar_archive", "archive"), ("vmsonar_inspect", "inspect")):
        (hidden / name).symlink_to(Path(__file__).resolve().parents[2] / folder / name)
    known = environment()
    known["PYTHONPATH"] = f"{hidden}:{known['PYTHONPATH']}"
    done = subprocess.run(
        vmsonar("status", "--archive", str(place.tree)),
        env=known,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "install vmsonar where everybody can read it" in done.stderr
