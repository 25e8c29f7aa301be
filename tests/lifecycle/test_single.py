"""One file installs everything: on a machine without pip, venv and network, twice, and one version over another."""

import base64
import hashlib
import http.server
import re
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from vmsonar_archive.system.errors import UsageError

from tests.parts import requires
from tests.real.certificates import make_authority
from tests.real.guest import Guest
from tests.real.serving import served
from tests.real.wait import wait_until
from vmsonar import __version__
from vmsonar.lifecycle.cloud_init import Site, single_file, user_data
from vmsonar.lifecycle.install import shipped

pytestmark = requires("systemd_guest")
REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SETUP = "/usr/local/sbin/vmsonar-setup"


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory) -> Path:
    """What `make wheelhouse` builds."""
    place = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir"]
    subprocess.run([*build, str(place), f"{REPOSITORY}[sign]", "pip"], check=True, timeout=300)
    pin(place)
    return place


def pin(wheels: Path) -> None:
    subprocess.run([sys.executable, shipped("pin.py"), wheels], check=True)


def pack(wheels: Path, folder: Path) -> Path:
    command = [sys.executable, shipped("single.py"), wheels, folder]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


@pytest.fixture(scope="module")
def single(wheelhouse, tmp_path_factory) -> Path:
    return pack(wheelhouse, tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Iterator[Guest]:
    """A machine that has Python and neither pip nor what makes one."""
    with Guest(tmp_path_factory.mktemp("vm") / "guest", host_name="bare") as guest:
        for path in guest.root.glob("usr/lib/python3*/ensurepip"):
            subprocess.run(["rm", "-r", path], check=True)
        guest.write(SETUP, shipped("setup.sh").read_bytes(), mode=0o755)
        yield guest


def inside(guest: Guest, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command in the guest's tree, with nothing of ours in its environment."""
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, guest.root, FOLDERS, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_wheels_give_the_same_file(wheelhouse, single, tmp_path):
    again = pack(wheelhouse, tmp_path)
    assert again.name == single.name
    assert again.read_bytes() == single.read_bytes()
    with zipfile.ZipFile(single) as packed:
        assert packed.testzip() is None


def test_nothing_but_the_file_is_needed(bare, single):
    bare.copy_in(single, "/root/vmsonar.pyz")
    done = inside(bare, "python3", "/root/vmsonar.pyz", "--no-start", "--save")
    assert done.returncode == 0, done.stderr
    assert {"vmsonar.service", "vmsonar-bundle.service"} <= set(re.findall(r"[\w.-]+", done.stdout))
    assert inside(bare, "vmsonar", "--version").stdout.startswith("vmsonar ")
    assert inside(bare, "vmsonar", "sample").stdout.startswith('{"time":')
    assert (bare.root / "etc/systemd/system/multi-user.target.wants/vmsonar.service").is_symlink()
    again = inside(bare, "python3", "/root/vmsonar.pyz")
    assert again.returncode == 0, again.stderr
    assert list(bare.root.glob("tmp/*")) == []


def test_who_may_not_or_has_another_python_is_told(bare, single, tmp_path):
    bare.copy_in(single, "/usr/local/share/vmsonar.pyz")
    user = ("setpriv", "--reuid", "65534", "--clear-groups")
    done = inside(bare, *user, "python3", "/usr/local/share/vmsonar.pyz")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "run it as root" in done.stderr
    with zipfile.ZipFile(single) as packed, zipfile.ZipFile(tmp_path / "other.pyz", "w") as other:
        for name in packed.namelist():
            other.writestr(name.replace("cp311-cp311", "cp39-cp39"), packed.read(name))
    bare.copy_in(tmp_path / "other.pyz", "/root/other.pyz")
    done = inside(bare, "python3", "/root/other.pyz")
    assert done.returncode == 3
    assert "it was built for cp39 on x86_64, and here is cp311" in done.stderr


def set_up(bare: Guest, source: str, digest: str, *settings: str) -> "subprocess.CompletedProcess[str]":
    chosen = [f"VMSONAR_SINGLE={source}", f"VMSONAR_SHA256={digest}", *settings]
    return inside(bare, *chosen, SETUP, "--no-start")


def test_anything_else_than_what_was_meant_is_refused(bare, single):
    before = (bare.root / "opt/vmsonar/bin/vmsonar").stat()
    bare.copy_in(single, "/root/vmsonar.pyz")
    done = set_up(bare, "/root/vmsonar.pyz", "0" * 64)
    assert done.returncode != 0
    assert f"is not what was meant: its SHA-256 is {sha256(single)}" in done.stderr
    for source in ("/root/gone.pyz", "http://127.0.0.1/x", "https://127.0.0.1:1/x?canary=1"):
        done = set_up(bare, source, sha256(single))
        assert done.returncode != 0
        assert (done.stderr.count("\n"), "canary" in done.stderr) == (1, False), done.stderr
    assert (bare.root / "opt/vmsonar/bin/vmsonar").stat() == before
    assert list(bare.root.glob("tmp/*")) == []


@contextmanager
def serving(folder: Path, certificate: Path) -> Iterator[int]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server):
        yield server.server_port


def test_it_is_fetched_once(bare, single, tmp_path):
    authority = make_authority(tmp_path)
    bare.copy_in(authority.certificate, "/root/ca.pem")
    trust = "SSL_CERT_FILE=/root/ca.pem"
    with serving(single.parent, authority.issue("files")) as port:
        url = f"https://127.0.0.1:{port}/{single.name}"
        done = set_up(bare, url, sha256(single), trust)
        assert done.returncode == 0, done.stderr
    # The server has gone: whoever runs again needs it no more.
    assert set_up(bare, url, sha256(single), trust).returncode == 0
    (bare.root / "opt/vmsonar/bin/vmsonar").unlink()
    assert set_up(bare, url, sha256(single), trust).returncode != 0


def with_version(wheelhouse: Path, version: str, folder: Path) -> Path:
    """The same wheels, with ours under another version."""
    folder.mkdir()
    for wheel in wheelhouse.glob("*.whl"):
        if not wheel.name.startswith("vmsonar-"):
            (folder / wheel.name).symlink_to(wheel)
    (ours,) = wheelhouse.glob("vmsonar-*.whl")
    old = ours.name.split("-")[1]
    records = []
    with (
        zipfile.ZipFile(ours) as read,
        zipfile.ZipFile(folder / ours.name.replace(old, version), "w") as write,
    ):
        for name in read.namelist():
            content = read.read(name)
            target = name.replace(f"vmsonar-{old}.dist-info", f"vmsonar-{version}.dist-info")
            if name.endswith(("/METADATA", "vmsonar/__init__.py")):
                content = content.replace(old.encode(), version.encode())
            if not name.endswith("/RECORD"):
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                records.append(f"{target},sha256={digest},{len(content)}\n")
                write.writestr(target, content)
        write.writestr(f"vmsonar-{version}.dist-info/RECORD", "".join(records))
    pin(folder)
    return folder


def test_one_version_over_another_keeps_what_was_recorded(bare, single, wheelhouse, tmp_path):
    bare.copy_in(single, "/root/vmsonar.pyz")
    assert inside(bare, "python3", "/root/vmsonar.pyz", "--no-start").returncode == 0
    assert inside(bare, "vmsonar", "sample", "--archive", "/var/lib/vmsonar").returncode == 0
    bare.write("/etc/vmsonar/config.yaml", "interval: 30s\n")
    here = inside(bare, "vmsonar", "--version").stdout
    newer = pack(with_version(wheelhouse, "9.9.9", tmp_path / "newer"), tmp_path)
    bare.copy_in(newer, "/root/newer.pyz")
    for file, said in (("newer", "vmsonar 9.9.9\n"), ("vmsonar", here)):
        assert inside(bare, "python3", f"/root/{file}.pyz", "--no-start").returncode == 0
        assert inside(bare, "vmsonar", "--version").stdout == said
        assert inside(bare, "vmsonar", "sample", "--archive", "/var/lib/vmsonar").returncode == 0
        assert inside(bare, "vmsonar", "verify", "/var/lib/vmsonar").returncode == 0
    assert bare.read("/etc/vmsonar/config.yaml") == b"interval: 30s\n"
    assert '"samples": 3' in inside(bare, "vmsonar", "verify", "/var/lib/vmsonar", "--json").stdout
    done = inside(bare, "vmsonar", "uninstall")
    assert done.returncode == 0, done.stderr
    assert list(bare.root.glob("etc/systemd/system/**/vmsonar*")) == []
    assert inside(bare, "vmsonar", "verify", "/var/lib/vmsonar").returncode == 0
    assert inside(bare, "vmsonar", "uninstall", "--purge").returncode == 0
    assert not (bare.root / "usr/local/bin/vmsonar").is_symlink()
    assert not (bare.root / "var/lib/vmsonar").exists()


@contextmanager
def index_of(*folders: Path) -> Iterator[str]:
    """A package index (PEP 503) of the wheels in some folders."""
    wheels = {wheel.name: wheel for folder in folders for wheel in folder.glob("*.whl")}

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[-1]
            if name in wheels:
                return self._answer(wheels[name].read_bytes(), "application/octet-stream")
            found = [wheel for wheel in wheels if wheel.split("-")[0].replace("_", "-") == name]
            links = "".join(f'<a href="/wheels/{wheel}">{wheel}</a>\n' for wheel in found)
            return self._answer(f"<!DOCTYPE html>\n{links}".encode(), "text/html")

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    with served(server):
        yield f"http://127.0.0.1:{server.server_port}/simple"


def test_from_an_index_of_our_own_only_what_has_a_hash(wheelhouse, tmp_path):
    newer = with_version(wheelhouse, "9.9.9", tmp_path / "newer")
    pinned = "/etc/vmsonar/requirements.txt"
    with Guest(tmp_path / "guest") as guest:
        guest.write(SETUP, shipped("setup.sh").read_bytes(), mode=0o755)
        guest.write("/etc/pip.conf", "[global]\nindex-url = http://127.0.0.1:1/\n")
        with index_of(wheelhouse, newer) as index:
            chosen = (f"VMSONAR_INDEX={index}", f"VMSONAR_REQUIREMENTS={pinned}", SETUP, "--no-start")
            guest.write(pinned, f"vmsonar=={__version__}\n")
            refused = inside(guest, *chosen)
            assert refused.returncode != 0
            assert "hash" in refused.stderr
            assert not (guest.root / "opt/vmsonar/bin/vmsonar").exists()
            guest.write(pinned, (wheelhouse / "requirements.txt").read_bytes())
            done = inside(guest, *chosen)
            assert done.returncode == 0, done.stderr
            assert inside(guest, "vmsonar", "--version").stdout == f"vmsonar {__version__}\n"
            guest.write(pinned, (newer / "requirements.txt").read_bytes())
            assert inside(guest, *chosen).returncode == 0
        assert inside(guest, "vmsonar", "--version").stdout == "vmsonar 9.9.9\n"


def test_a_wrong_hash_does_not_hold_up_the_boot_and_a_right_one_installs(bare, single):
    subprocess.run(["rm", "-rf", bare.root / "opt/vmsonar", bare.root / "var/lib/vmsonar"], check=True)
    bare.copy_in(single, "/root/vmsonar.pyz")
    bare.user_data = user_data(Site(single=("/root/vmsonar.pyz", "0" * 64)))
    bare.seed()
    bare.boot()
    assert "SHA-256" in bare.read("/var/log/cloud-init-output.log").decode()
    assert not (bare.root / "opt/vmsonar").exists()
    assert bare.run("systemctl", "is-active", "multi-user.target").stdout == "active\n"
    bare.power_off()
    bare.user_data = user_data(Site(single=("/root/vmsonar.pyz", sha256(single))))
    bare.instance_id = "i-second"
    bare.seed()
    bare.boot()

    def is_active() -> bool:
        return bare.run("systemctl", "is-active", "vmsonar", check=False).stdout == "active\n"

    wait_until(is_active, 60, "the recorder")
    bare.kill()


def test_the_generator_wants_a_hash():
    digest = "0" * 64
    assert single_file("https://x/v.pyz", digest) == ("https://x/v.pyz", digest)
    assert single_file(None, None) is None
    for url, given, message in (
        ("https://x/v.pyz", None, "needs --sha256"),
        ("https://x/v.pyz", "abc", "needs --sha256"),
        ("http://x/v.pyz", digest, "neither a full path nor https"),
        (None, digest, "give both"),
    ):
        with pytest.raises(UsageError, match=message):
            single_file(url, given)
    document = yaml.safe_load(user_data(Site(single=("/v.pyz", digest))))
    assert document["runcmd"] == [["env", "VMSONAR_SINGLE=/v.pyz", f"VMSONAR_SHA256={digest}", SETUP]]
