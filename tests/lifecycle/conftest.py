"""A machine to be torn down and a server that takes its bundles; what a guest is born from."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.bundle.tls_server import Store, running
from tests.lifecycle.metadata_service import Cloud
from tests.lifecycle.vm import Vm
from tests.parts import need
from tests.real.certificates import Authority, make_authority
from tests.real.machine import Machine
from tests.real.serving import served
from vmsonar.lifecycle.install import shipped

REPOSITORY = Path(__file__).resolve().parents[2]
WHEELS = "/opt/vmsonar-wheels"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def store(authority: Authority) -> Iterator[Store]:
    """A server that keeps what is sent to it."""
    with running(authority.issue("store")) as server:
        yield server


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A cloud's metadata service."""
    with served(Cloud()) as server:
        yield server


@pytest.fixture
def vm(tmp_path: Path, authority: Authority) -> Vm:
    """A machine with an archive and a configuration."""
    return Vm(tmp_path, authority)


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheelhouse` builds, and what tables and containers need."""
    place = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--wheel-dir", str(place), f"{REPOSITORY}[sign,parquet,docker]"], check=True, timeout=600
    )
    subprocess.run([sys.executable, str(REPOSITORY / "cloud-init/pin.py"), str(place)], check=True)
    return place


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, wheelhouse: Path) -> Iterator[Machine]:
    """Off; an image with vmsonar on it, as `vmsonar install --root` makes one."""
    need("kernel_guest")
    with Machine(tmp_path_factory.mktemp("uml") / "machine") as machine:
        machine.put("etc/vmsonar/config.yaml", "interval: 1s\nsave: {to: /srv/results}\n")
        machine.put("etc/tmpfiles.d/results.conf", "d /srv/results 0750 vmsonar vmsonar -\n")
        # The first half of the script that cloud-init runs; the rest would speak to systemd, which does not run here.
        script = shipped("setup.sh").read_text().replace("\nexec ", "\nexit 0\n")
        machine.change(INSTALL, str(wheelhouse), WHEELS, script, sys.executable)
        yield machine


INSTALL = """
cp -rT "$1" ".$2"
chroot . env VMSONAR_WHEELS="$2" sh -c "$3"
"$4" -m vmsonar install --root "$PWD" --save --accounts
"""
