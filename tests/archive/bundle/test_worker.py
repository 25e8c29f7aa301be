"""The worker that bundles for root: no fork beside threads, nothing from the folder somebody stands in."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from vmsonar_archive.bundle.make import BundleOptions, bundle_to_file
from vmsonar_archive.verify.path import verify_path

from tests.parts import requires


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return tmp_path / "key"


@requires("root", "ssh_keygen")
def test_beside_threads_that_hold_locks(theirs: Path, key: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def never() -> int:
        raise AssertionError("a fork beside threads may wait for ever")

    monkeypatch.setattr(os, "fork", never)
    stop = threading.Event()
    threads = [threading.Thread(target=_import_and_print, args=(stop,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3):
            bundled = bundle_to_file(theirs, tmp_path / f"{number}.tar", options=BundleOptions(sign=key))
            report = verify_path(Path(bundled.output))
            assert report.ok
            assert report.signed_by is not None
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _import_and_print(stop: threading.Event) -> None:
    """Takes the locks that a forked child would find taken: those of imports and of streams."""
    import importlib

    with open(os.devnull, "w") as nowhere:
        while not stop.wait(0.001):
            importlib.reload(sys.modules["colorsys"] if "colorsys" in sys.modules else __import__("colorsys"))
            print("x" * 100, file=nowhere)


@requires("root", "ssh_keygen")
def test_nothing_is_loaded_from_where_somebody_stands(theirs: Path, key: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for package in ("vmsonar", "vmsonar_archive"):
        (trap / package).mkdir(parents=True)
        (trap / package / "__init__.py").write_text("raise SystemExit('trapped')\n")
    script = Path(sys.executable).with_name("vmsonar")
    command = [script, "bundle", "--archive", theirs, "-o", tmp_path / "x.tar", "--sign", key]
    done = subprocess.run(command, cwd=trap, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "config.yaml").write_text(f"save: {{waiting: {tmp_path}, sign: {key}}}\n")
    command = [script, "teardown", "--archive", theirs, "--config", tmp_path / "config.yaml"]
    done = subprocess.run(command, cwd=trap, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@requires("root")
def test_a_worker_that_dies_is_told_in_one_line(theirs: Path, tmp_path: Path) -> None:
    """Killed as the kernel does when memory runs out."""
    code = (
        "import os, signal, subprocess, sys; from vmsonar.cli import main; begin = subprocess.Popen.__init__\n"
        "def killed(self, *words, **settings):\n"
        "    begin(self, *words, **settings)\n"
        "    os.kill(self.pid, signal.SIGKILL)\n"
        "subprocess.Popen.__init__ = killed; main()\n"
    )
    command = [sys.executable, "-c", code, "bundle", "--archive", theirs, "-o", tmp_path / "x.tar"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "bundling ended without a result" in done.stderr
    assert not list(tmp_path.glob("x.tar*"))
