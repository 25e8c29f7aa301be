"""No process of ours imports what lies in the folder somebody happens to stand in."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import vmsonar_archive
import vmsonar_inspect

import vmsonar
from tests.making.bundles import make_archive

HOSTILE = (
    "json", "msgspec", "zstandard", "pyarrow", "duckdb", "yaml", "psutil", "docker", "typer", "cryptography",
    "vmsonar", "vmsonar_archive", "vmsonar_inspect", "multiprocessing", "pickle", "subprocess", "hashlib", "socket",
    "signal", "ctypes", "runpy", "concurrent", "logging", "datetime", "encodings_of_ours",
)  # fmt: skip
TRAP = 'import os\nopen(os.environ["WITNESS"], "a").write(__name__ + "\\n")\nraise ImportError(__name__)\n'
CHILDREN = {
    "recompression": """
from tests.making.archives import open_writer, utc_now
from tests.making.bundles import NODE
writer = open_writer(Path(archive), node=NODE, now=utc_now)
child = writer._house.upkeep.start(writer._house.upkeep.due())
assert child.communicate()[0], "the child says what it wrote"
writer.close()
""",
    "companion": """
import socket
from vmsonar.host.clock import Clock
from vmsonar.collectors.container.link import Companion, Link
engine = socket.socket(socket.AF_UNIX)
engine.bind("engine.sock")
engine.listen()
link = Link(Path("no-unit"), Companion(sockets=[os.path.abspath("engine.sock")], more=["--help"]), Clock())
link.messages()
assert link._child.wait() == 0, "it shows its help"
link.close()
""",
    "accounts companion": """
from vmsonar.collectors.process.accounts import Accounts
from vmsonar.config.schema import Accounts as Settings
from vmsonar.host.clock import Clock
from vmsonar.host.roots import Host
accounts = Accounts(Host(), Settings(socket=os.path.abspath("none.sock")), Clock())
subprocess.run([*accounts.own_command(0), "--help"], check=True)
""",
    "signer": """
from vmsonar_archive.bundle.make import bundle_to_file, BundleOptions
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"], check=True)
assert bundle_to_file(Path(archive), Path("signed.tar"), options=BundleOptions(sign=Path("key"))).ok
""",
    "bundle worker": """
from vmsonar_archive.bundle.make import run, NO_OPTIONS
from vmsonar_archive.bundle.send.delivery import ToDescriptor
with open("made.tar", "wb") as file:
    assert run(Path(archive), NO_OPTIONS, ToDescriptor(), lambda _: file.fileno(), in_worker=True).ok
""",
    "teardown's step": """
from vmsonar.config.shipping import Save
from vmsonar.lifecycle.teardown import SaveJob, teardown
os.mkdir("results")
saved = teardown(SaveJob(Path(archive), Save(to=os.path.abspath("results"), waiting=os.path.abspath(".")), 60))
assert saved.delivered and not saved.troubles, saved
""",
    "teardown's forwarding": """
from vmsonar.config.shipping import Forward
from vmsonar.lifecycle.step import Saved
from vmsonar.lifecycle.teardown import Forwarding
settings = Forward(to="http", url="http://127.0.0.1:9/", cluster="lab", state=os.path.abspath("state"))
Path("config.yaml").write_text("forward: {to: http, url: 'http://127.0.0.1:9/', cluster: lab, state: state}")
saved = Saved()
Forwarding(Path(archive), Path("config.yaml"), settings, 3).tell(saved)
assert not saved.forwarded, "nobody listens there"
assert os.path.exists("state/cursor.json"), "it has run"
""",
    "notice's teardown": """
from vmsonar.lifecycle.notice import tear_down_with
os.mkdir("results")
Path("config.yaml").write_text(f"archive: {archive}\\nsave: {{to: {os.getcwd()}/results, waiting: {os.getcwd()}}}")
assert tear_down_with(Path("config.yaml"))(60) == 0
""",
    "daemon": """
from vmsonar.cli import run
run(["daemon", "--archive", os.path.abspath("new"), "--interval", "1s", "--for", "1s"])
""",
    "verification of many": """
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_paths
assert all(report.ok for report in verify_paths([Path(archive)] * 2, Depth.FULL, None, None, 2))
""",
    "verification in depth": """
from vmsonar_archive.verify import content
from vmsonar_archive.verify.archive import Depth
from vmsonar_archive.verify.path import verify_path
content._WORTH_BYTES = 0
assert verify_path(Path(archive), Depth.DEEP).ok
""",
    "derivation of many": """
from vmsonar_inspect import open_tables
from vmsonar_inspect.tables import derive, plan
plan._LARGE = derive._WORTH_BYTES = 0
derive.os.sched_getaffinity = lambda _: {0, 1}
started = []
start = derive._start
derive._start = lambda *share: started.append(start(*share)) or started[-1]
from tests.making.bundles import make_archive
with open_tables([archive, make_archive(Path("other"))], cache=False) as tables:
    assert tables.sql("SELECT count(*) FROM job").fetchone() == (240,)
assert [child.returncode for child in started] == [0], "one helper, and it has done its share"
""",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_no_child_imports_from_the_current_folder(kind: str, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "archive")
    here = tmp_path / "here"
    here.mkdir()
    for number, name in enumerate(HOSTILE):
        place = here / f"{name}.py" if number % 2 else here / name / "__init__.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(TRAP)
    code = f"import os, subprocess\nfrom pathlib import Path\narchive = {str(archive)!r}\n{CHILDREN[kind]}"
    program = tmp_path / "program.py"
    program.write_text(code)
    repository = Path(__file__).resolve().parents[2]
    places = ":".join(str(repository / name) for name in ("", "archive", "inspect"))
    environment = {**os.environ, "WITNESS": str(tmp_path / "witness"), "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=here, env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    witness = tmp_path / "witness"
    assert not witness.exists(), witness.read_text()
    assert done.returncode == 0, done.stderr


def test_the_trap_works(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(TRAP)
    environment = {**os.environ, "WITNESS": str(tmp_path / "witness")}
    subprocess.run([sys.executable, "-c", "import json"], cwd=tmp_path, env=environment, capture_output=True)
    assert (tmp_path / "witness").read_text() == "json\n"


def test_one_function_alone_says_how_python_is_started() -> None:
    """Whoever names sys.executable, or lets multiprocessing start children, goes round it."""
    found = []
    for package in (vmsonar, vmsonar_archive, vmsonar_inspect):
        folder = Path(package.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable"):
                    found.append(f"{path.relative_to(folder.parent)}: sys.{node.attr}")
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                imported = [f"{module}.{alias.name}" for alias in node.names] if module else names
                for name in imported:
                    if name.startswith("multiprocessing") or name.endswith("ProcessPoolExecutor"):
                        found.append(f"{path.relative_to(folder.parent)}: {name}")
    assert set(found) == {
        "vmsonar_archive/system/children.py: sys.executable",
        "vmsonar_archive/system/rights.py: sys.executable",  # only whether the owner may read it
    }


def test_units_and_installation_start_python_apart_from_the_current_folder() -> None:
    folder = Path(__file__).resolve().parents[2] / "cloud-init"
    places = [*sorted((folder / "units").rglob("*.service")), folder / "setup.sh"]
    lines = [line for path in places for line in path.read_text().splitlines() if not line.startswith("#")]
    calls = [call for line in lines for call in re.findall(r'python3?"? -(?!x)\S+', line)]
    assert len(calls) > 12
    assert [call for call in calls if not call.endswith((" -I", " -P"))] == []
