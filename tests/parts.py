"""Which real parts (engines, brokers, guests, tools) this machine has, and what a test does without one.

A test says `@requires("docker")`; `.ci/parts` installs the parts. A missing part skips the test and is named; with a
list such as VMSONAR_REQUIRE=docker,kafka it fails the test instead. With VMSONAR_REQUIRE=all nothing is skipped,
whatever it lacks.
"""

import glob
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.real import stranger
from vmsonar.collectors.process.connector import Connector, NoConnector

PROBE_SECONDS = 20
# Parts that take seconds to start, or serve one user at a time: their tests get the mark `real`, and all tests with the
# same part run in one process.
HEAVY = {
    "chromium",
    "docker",
    "kafka",
    "kernel_guest",
    "moto",
    "nfs_guest",
    "podman",
    "slurm",
    "spark",
    "systemd_guest",
}
DOCKER_SOCKET = "/var/run/docker.sock"


def cache_dir() -> Path:
    """Where `.ci/parts` keeps what is not a Debian package."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vmsonar-tests"


def _commands(*names: str) -> str | None:
    absent = [name for name in names if shutil.which(name, path=_search_path()) is None]
    return f"no {', '.join(absent)} on the PATH" if absent else None


def _search_path() -> str:
    # An ordinary user's PATH often lacks the system folders.
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def _modules(*names: str) -> str | None:
    absent = [name for name in names if find_spec(name) is None]
    return f"Python package {', '.join(absent)} is not installed" if absent else None


def _works(*command: str) -> str | None:
    """Runs a command that must succeed; says what it answered if it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()[-200:]}"


def _first(*reasons: str | None) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


def docker_answers() -> bool:
    """Does an engine answer on the usual socket?"""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PROBE_SECONDS)
        try:
            client.connect(DOCKER_SOCKET)
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in client.recv(64)
        except OSError:
            return False


def _docker() -> str | None:
    if reason := _commands("/usr/bin/docker", "busybox"):
        return reason
    if docker_answers():
        return None
    return _first(_root(), _commands("dockerd"))  # the fixture starts one


def _podman() -> str | None:
    return _first(_commands("podman", "busybox"), _root())


def _kafka() -> str | None:
    if not list((cache_dir() / "kafka").glob("kafka_*.jar")):
        return f"no Kafka jars in {cache_dir() / 'kafka'}"
    return _first(_commands("java", "openssl"), _modules("confluent_kafka"))


def _systemd_guest() -> str | None:
    if reason := _first(_root(), _commands("systemd-nspawn", "nsenter")):
        return reason
    tree = cache_dir() / "guest"
    return None if (tree / "usr/bin/cloud-init").exists() else f"no guest tree in {tree}"


def _kernel_guest() -> str | None:
    if reason := _first(_root(), _commands("linux.uml", "mount", "systemctl")):
        return reason
    wanted = (cache_dir() / "guest.disk", cache_dir() / "guest/usr/sbin/slurmd")
    return next((f"no {path}: run .ci/parts" for path in wanted if not path.exists()), None)


def _nfs_guest() -> str | None:
    if reason := _kernel_guest():
        return reason
    wanted = (cache_dir() / "guest/usr/sbin/rpc.nfsd", Path("/usr/lib/uml/modules"))
    return next((f"no {path}" for path in wanted if not path.exists()), None)


def _chromium() -> str | None:
    return _first(_commands("chromium", "chromedriver"), _modules("selenium"))


def axe_script() -> Path:
    """axe-core, which judges a page's accessibility from within it."""
    return cache_dir() / "axe-core" / "axe.min.js"


def _axe() -> str | None:
    return None if axe_script().exists() else f"no {axe_script()}"


def collector_program() -> Path:
    """The OpenTelemetry collector that `.ci/parts` builds."""
    return cache_dir() / "otelcol" / "otelcol"


def _collector() -> str | None:
    return None if collector_program().exists() else f"no {collector_program()}"


def faketime_library() -> str | None:
    """The library to preload for a wrong clock (faketime(1))."""
    return next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketime.so.1"))), None)


def _faketime() -> str | None:
    return None if faketime_library() else "no libfaketime.so.1"


def _slurm() -> str | None:
    return _first(_root(), _commands("slurmctld", "slurmd", "slurmdbd", "sacct", "munged", "mariadbd"))


def _netns() -> str | None:
    return _first(_root(), _commands("ip"), _works("unshare", "--net", "true"))


def _tmpfs_mount() -> str | None:
    # In a mount namespace of its own, so that nothing is left behind.
    return _first(_root(), _works("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"))


def _device(path: str) -> str | None:
    return None if Path(path).exists() else f"no {path}"


def _strace() -> str | None:
    return _first(_commands("strace"), _works("strace", "-o", "/dev/null", "true"))


def _pcp() -> str | None:
    names = "/var/lib/pcp/pmns/root"  # made by the service, or by .ci/parts where no service runs
    return _first(_commands("pmval"), None if Path(names).exists() else f"no {names}")


def _connector() -> str | None:
    try:
        Connector().close()
    except NoConnector as error:
        return str(error.strerror)
    return None


def _taskstats() -> str | None:
    return _first(_root(), _works(sys.executable, "-c", _LISTEN))


_LISTEN = "from vmsonar.companion.taskstats import *; Taskstats(possible_cpus(), 65536)"


PROBES: dict[str, Callable[[], str | None]] = {
    "ansible": lambda: _modules("ansible"),
    "atop": lambda: _commands("atop"),
    "axe": _axe,
    "bagit": lambda: _modules("bagit"),
    "chromium": _chromium,
    "connector": _connector,
    "docker": _docker,
    "duckdb": lambda: _modules("duckdb"),
    "faketime": _faketime,
    "fuse_mount": lambda: _first(_tmpfs_mount(), _device("/dev/fuse")),
    "gcc": lambda: _commands("gcc"),
    "hcl2": lambda: _modules("hcl2"),
    "java": lambda: _commands("java"),
    "jq": lambda: _commands("jq"),
    "kafka": _kafka,
    "kcat": lambda: _commands("kcat"),
    "kernel_guest": _kernel_guest,
    "loop_mount": lambda: _first(_tmpfs_mount(), _commands("mkfs.ext4"), _device("/dev/loop-control")),
    "moto": lambda: _modules("moto", "boto3", "flask"),
    "netns": _netns,
    "nfs_guest": _nfs_guest,
    "otel_collector": _collector,
    "pcp": _pcp,
    "podman": _podman,
    "prometheus": lambda: _commands("prometheus", "promtool", "prometheus-node-exporter"),
    "root": _root,
    "shellcheck": lambda: _commands("shellcheck"),
    "slurm": _slurm,
    "spark": lambda: _first(_modules("pyspark"), _commands("java")),
    "ssh_keygen": lambda: _commands("ssh-keygen"),
    "strace": _strace,
    "stranger": stranger.missing,
    "systemd_guest": _systemd_guest,
    "taskstats": _taskstats,
    "tmpfs_mount": _tmpfs_mount,
    "tmux": lambda: _commands("tmux"),
    "zstd": lambda: _commands("zstd"),
}


@cache
def missing(part: str) -> str | None:
    """Why the part cannot be used here; None if it can. Probed once a session."""
    reason = PROBES[part]()
    return f"real part {part!r} is missing: {reason}" if reason else None


def _demanded() -> set[str]:
    return {name.strip() for name in os.environ.get("VMSONAR_REQUIRE", "").split(",")} - {""}


def need(part: str) -> None:
    """For fixtures: skips (or fails) here and now if the part is missing."""
    reason = missing(part)
    if reason and part in _demanded():
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def requires(*parts: str) -> pytest.MarkDecorator:
    """A mark for a test, a class or a module (`pytestmark = requires("docker")`)."""
    unknown = [part for part in parts if part not in PROBES]
    if unknown:
        raise ValueError(f"no such real part: {', '.join(unknown)}")
    return pytest.mark.requires(*parts)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requires(*parts): skip, or fail, without these real parts")
    config.addinivalue_line("markers", "real: needs a heavy part (set by requires)")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Names())
    # A misspelt demand would demand nothing.
    if unknown := sorted(_demanded() - {"all"} - PROBES.keys()):
        raise pytest.UsageError(f"VMSONAR_REQUIRE names no real part: {', '.join(unknown)}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what needs a heavy part as `real`, before `-m` selects, and says with whom it shares a process."""
    parts = {part for mark in item.iter_markers("requires") for part in mark.args} & HEAVY
    if parts:
        item.add_marker("real")
        item.add_marker(pytest.mark.xdist_group(min(parts)))


class _Names:
    """Calls tests what they are called without groups, so that --last-failed finds them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, _, group = report.nodeid.rpartition("@")
        if group in HEAVY:
            report.nodeid = name


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("requires"):
        for part in mark.args:
            need(part)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where all is demanded, a skip is a failure; a test that is expected to fail is no skip."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and "all" in _demanded():
        *_, reason = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
        report.outcome, report.longrepr = "failed", str(reason)
    return report
