"""The units beside the recorder, each run by systemd as it is shipped: forward, derive, increments, single samples."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from vmsonar_archive.verify.path import verify_path

from tests.lifecycle.conftest import REPOSITORY, WHEELS
from tests.making.load import Recorder
from tests.parts import requires
from tests.real.guest import Guest
from tests.real.wait import wait_until
from vmsonar.fleet.serve.access import new_token
from vmsonar.lifecycle.cloud_init import Site, user_data

pytestmark = requires("systemd_guest")
ARCHIVE = "/var/lib/vmsonar"
VMSONAR = "/opt/vmsonar/bin/vmsonar"  # uninstalling takes the link to it away
FORWARD = {"to": "http", "url": "http://127.0.0.1:8099/", "cluster": "lab", "tls": {"use": "none"}}
FLEET = {"sources": ["/srv/results"], "every": "1s"}
CONFIG = {"interval": "1s", "save": {"to": "/srv/results"}, "forward": FORWARD, "fleet": FLEET}
# Writes down the topic and key of every record that is posted to it.
RECEIVER = """
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open("/var/received", "a") as file:
            for record in body["records"]:
                print(record["topic"], record["key"], file=file)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory, wheelhouse) -> Iterator[Guest]:
    """After its first boot, with the units for saving and forwarding."""
    data = user_data(Site(config=CONFIG, wheels=WHEELS, options=("--save", "--forward")))
    with Guest(tmp_path_factory.mktemp("vm") / "guest", data, host_name="units") as guest:
        guest.copy_in(wheelhouse, WHEELS)
        # Units see a folder that is there when they start; the service user is not there yet.
        (guest.root / "srv/results").mkdir()
        (guest.root / "srv/results").chmod(0o777)
        guest.boot()
        yield guest


def journal(guest: Guest, unit: str) -> str:
    return guest.run("journalctl", "-u", unit, "--no-pager", "-o", "cat").stdout


def test_records_are_forwarded_as_they_are_recorded(guest):
    guest.run("systemd-run", "--unit", "receiver", "python3", "-c", RECEIVER)
    guest.run("systemctl", "restart", "vmsonar-forward")
    assert guest.run("systemctl", "is-active", "vmsonar-forward").stdout == "active\n"

    def received() -> list[str]:
        return guest.run("cat", "/var/received", check=False).stdout.splitlines()

    wait_until(lambda: received().count("lab.sample units") >= 3, 60, journal(guest, "vmsonar-forward"))
    assert "lab.sysinfo units" in received()
    told = json.loads(guest.run("vmsonar", "status", "--json", check=False).stdout)["forward"]
    assert told["trouble"] is None
    # What is the archive's is read, never written, by this unit.
    assert guest.run("systemctl", "show", "-P", "NRestarts", "vmsonar-forward").stdout == "0\n"
    guest.run("systemctl", "disable", "--now", "vmsonar-forward")


def test_prometheus_is_answered(guest):
    asks = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9798/metrics').read().decode())"
    assert guest.run("systemctl", "is-enabled", "vmsonar-metrics", check=False).stdout == "disabled\n"
    guest.run("systemctl", "start", "vmsonar-metrics")

    def answered() -> bool:
        done = guest.run("/opt/vmsonar/bin/python", "-c", asks, check=False)
        return 'vmsonar_node_cpu_seconds_total{mode="user"}' in done.stdout

    wait_until(answered, 60, journal(guest, "vmsonar-metrics"))
    assert guest.run("systemctl", "show", "-P", "NRestarts", "vmsonar-metrics").stdout == "0\n"
    guest.run("systemctl", "stop", "vmsonar-metrics")


def test_an_increment_goes_out_and_verifies(guest, tmp_path):
    assert guest.run("systemctl", "is-active", "vmsonar-increment.timer").stdout == "active\n"
    guest.run("systemctl", "restart", "vmsonar")  # seals what there is
    guest.run("systemctl", "start", "vmsonar-increment.service")
    bundles = sorted(guest.copy_out("/srv/results", tmp_path / "results").glob("*.tar"))
    assert bundles, journal(guest, "vmsonar-increment")
    report = verify_path(bundles[-1])
    assert report.ok, report.findings
    assert report.samples > 0


# What the server needs, from a folder; Debian's own venv has no pip.
INSTALL = """
export PYTHONPATH=$(echo $1/pip-*.whl)
/opt/vmsonar/bin/python -m pip install --quiet --no-index --find-links $1 'vmsonar[serve]'
mkdir -p /etc/systemd/system/vmsonar-collect.service.d
printf '[Service]\\nReadWritePaths=/srv/results\\n' >/etc/systemd/system/vmsonar-collect.service.d/bundles.conf
echo "tokens: [{name: root, sha256: $2, role: admin}]" >/etc/vmsonar/access.yaml
systemctl daemon-reload
systemctl start vmsonar-increment vmsonar-collect vmsonar-serve
"""
ASK = """
import sys, urllib.request as r
asked = r.Request("http://127.0.0.1:8060/api/v1/machines", headers={"Authorization": f"Bearer {sys.argv[1]}"})
print(r.urlopen(asked).read().decode())
"""


def test_a_fleet_is_collected_and_served(guest, tmp_path):
    """With all that the units take away: the database and the tables work within it."""
    wheels, (token, kept) = tmp_path / "wheels", new_token()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--wheel-dir", str(wheels), "pip", f"{REPOSITORY}[serve]"], check=True, timeout=600)
    guest.copy_in(wheels, "/opt/serve-wheels")
    guest.run("sh", "-c", INSTALL, "sh", "/opt/serve-wheels", kept)

    def answered() -> bool:
        done = guest.run("/opt/vmsonar/bin/python", "-c", ASK, token, check=False)
        return '"hostname":"units"' in done.stdout

    for unit in ("vmsonar-collect", "vmsonar-serve"):
        assert guest.run("systemctl", "is-active", unit).stdout == "active\n", journal(guest, unit)
    wait_until(answered, 90, journal(guest, "vmsonar-serve"))
    for unit in ("vmsonar-collect", "vmsonar-serve"):
        assert guest.run("systemctl", "show", "-P", "NRestarts", unit).stdout == "0\n"
        guest.run("systemctl", "stop", unit)
        assert guest.run("systemctl", "show", "-P", "Result", unit).stdout == "success\n", journal(
            guest, unit
        )


def test_finished_days_become_tables(guest, tmp_path):
    """In place of the machine's own archive, which has no finished day, lies one that has."""
    assert guest.run("systemctl", "is-enabled", "vmsonar-derive.timer").stdout == "enabled\n"
    recorder = Recorder(tmp_path / "archive", 5)
    recorder.record(60)
    recorder.writer.close()
    guest.run("systemctl", "stop", "vmsonar")
    guest.run("mv", ARCHIVE, "/var/lib/own")
    guest.copy_in(tmp_path / "archive", ARCHIVE)
    guest.run("chown", "-R", "vmsonar:vmsonar", ARCHIVE)
    guest.run("systemctl", "start", "vmsonar-derive.service")
    day = f"{ARCHIVE}/2026/11/01"
    tables = guest.run("ls", day).stdout.split()
    assert {"process.parquet", "job.parquet", "node.parquet", "series_day.parquet"} <= set(tables)
    assert guest.run("stat", "-c", "%U %a", f"{day}/process.parquet").stdout == "vmsonar 640\n"
    assert guest.run("vmsonar", "verify", "--deep", ARCHIVE).returncode == 0
    guest.run("rm", "-r", ARCHIVE)
    guest.run("mv", "/var/lib/own", ARCHIVE)
    guest.run("systemctl", "start", "vmsonar")


def test_single_samples_by_a_timer_take_the_recorders_place(guest):
    guest.run(VMSONAR, "uninstall")
    failed = guest.run("systemctl", "--failed", "--no-legend", "--plain").stdout
    assert "vmsonar" not in failed, journal(guest, "vmsonar-bundle")
    guest.run(VMSONAR, "install", "--one-shot")
    assert guest.run("systemctl", "is-active", "vmsonar-sample.timer").stdout == "active\n"
    assert guest.run("systemctl", "is-active", "vmsonar", check=False).stdout == "inactive\n"
    before = json.loads(guest.run(VMSONAR, "verify", ARCHIVE, "--json").stdout)["samples"]
    for _ in range(2):
        guest.run("systemctl", "start", "vmsonar-sample.service")
    after = json.loads(guest.run(VMSONAR, "verify", ARCHIVE, "--json").stdout)["samples"]
    assert after >= before + 2
    assert json.loads(guest.run(VMSONAR, "status", "--json", check=False).stdout)["mode"] == "cron"
    assert "vmsonar" not in guest.run("systemctl", "--failed", "--no-legend", "--plain").stdout


def test_pressure_of_cgroup_v2_is_recorded(guest):
    """By the kernel of the host, where it has it; the guest's tree of control groups is v2 alone."""
    assert guest.run("stat", "-f", "-c", "%T", "/sys/fs/cgroup").stdout == "cgroup2fs\n"
    sample = json.loads(guest.run(VMSONAR, "sample").stdout)
    has_pressure = guest.run("test", "-e", "/proc/pressure/cpu", check=False).returncode == 0
    assert bool(sample.get("pressure")) == has_pressure
    cgroups = {row.get("cgroup") for row in sample["process_info"]}
    assert "/init.scope" in cgroups
