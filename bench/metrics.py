"""`vmsonar metrics --listen`: what a scrape of a crowded machine costs the exporter, and what the exporter holds."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import Figure
from bench.forward import forwarded
from tests.making.metered import CONTAINERS, GPUS, JOBS, Crowded
from tests.real.meter import cpu_ns, pss
from tests.real.ports import accepts, free_ports
from tests.real.wait import wait_until
from vmsonar.config.shipping import Forward

_SCRAPES = 15


def run() -> list[Figure]:
    """The figures of this area."""
    with TemporaryDirectory() as folder:
        now = datetime.now(UTC)
        machine = Crowded(Path(folder) / "archive", booted=now - timedelta(seconds=1000), uptime=900.0)
        machine.start_daemon()
        machine.run(3, seconds=10)
        with _exporter(machine.root) as (pid, url):
            size = len(_scrape(url))
            idle = cpu_ns([pid]) / 1e9
            time.sleep(5)
            idle = (cpu_ns([pid]) / 1e9 - idle) / 5
            began, spent = time.monotonic(), cpu_ns([pid]) / 1e9
            for _ in range(_SCRAPES):
                machine.run(1, seconds=1)
                time.sleep(1.2)
                _scrape(url)
            spent = cpu_ns([pid]) / 1e9 - spent - idle * (time.monotonic() - began)
            lines = _scrape(url).count(b"\n")
            memory = pss([pid])
        machine.stop_daemon()
        sent, encoding = forwarded(machine.root, Forward(to="otlp", url="http://127.0.0.1:4318"))
    where = f"{JOBS} jobs, {CONTAINERS} containers, {GPUS} GPUs"
    return [
        Figure(
            f"a scrape of {where}: CPU",
            spent / _SCRAPES * 1e3,
            "ms",
            30.0,
            note="reading the sample included",
        ),
        Figure("lines in it", lines, ""),
        Figure("its size", size / 1e3, "kB"),
        Figure(
            "the same sample forwarded as OTLP, read to acknowledged: CPU", encoding / sent * 1e3, "ms", 60.0
        ),
        Figure("exporter, PSS", memory / 1e6, "MB", 40.0),
        Figure("exporter between scrapes: CPU", idle * 100, "% of a core"),
    ]


@contextmanager
def _exporter(archive: Path) -> Iterator[tuple[int, str]]:
    (port,) = free_ports(1)
    line = [
        sys.executable,
        "-I",
        "-m",
        "vmsonar",
        "metrics",
        "--archive",
        archive,
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: accepts(port), 30, "the exporter")
            yield process.pid, f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()
            process.wait(10)


def _scrape(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        body: bytes = answer.read()
    return body
